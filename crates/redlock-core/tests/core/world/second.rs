//! A second lock that the candidates of some worlds contend for as well: its calls travel with those of the first lock.

use redlock_core::{Event, FencingToken};

use super::{What, World};
use crate::{candidate::SecondEvent, master::Master};

/// Reports whether the candidates of this seed have two locks.
pub(crate) const fn has_second(seed: u64) -> bool {
    matches!(seed % 32, 12 | 20 | 28)
}

impl World {
    pub(super) fn second(&mut self, candidate: usize, event: SecondEvent) {
        let out = self.candidates[candidate].on_second(self.now, event, &mut self.rng);
        self.carry(candidate, out);
    }

    pub(super) fn second_at(&mut self, at: u64, candidate: usize, event: SecondEvent) {
        let life = self.candidates[candidate].life;
        let what = What::Second {
            candidate,
            life,
            event,
        };
        self.at(at, what);
    }

    pub(super) fn publish_second(&mut self, master: usize) {
        for candidate in 0..self.candidates.len() {
            if self.is_told_by(candidate, master) {
                let at = self.now + self.delay();
                self.second_at(at, candidate, SecondEvent::Happens(Event::Released { master }));
            }
        }
    }

    /// Checks S1, S2 and S3 of the second lock when authority over it is published: it only ends afterwards.
    pub(super) fn on_second_active(&mut self, candidate: usize, token: FencingToken, won: bool) {
        let greatest = self.second_token;
        self.second_token = greatest.max(token.0);
        if self.clock_stood_still(candidate) {
            return;
        }
        if won {
            self.count("win of the second lock");
        }
        if won && token.0 <= greatest {
            let how = format!("second lock: token {} after {greatest}", token.0);
            self.checks.fail("S2", self.now, how);
        }
        let believes = |other: &usize| {
            let authority = self.candidates[*other].second_authority(self.now);
            *other != candidate && authority.is_some() && !self.clock_stood_still(*other)
        };
        if (0..self.candidates.len()).any(|other| believes(&other)) {
            let how = "second lock: two candidates believe".to_owned();
            self.checks.fail("S1", self.now, how);
        }
        let nonce = self.candidates[candidate].second_nonce();
        let free = |master: &&Master| {
            let lease = master.second_lease(self.now);
            master.sealed && lease.is_none_or(|lease| Some(lease.nonce) != nonce)
        };
        let others = self.masters.iter().filter(free).count();
        if others >= self.size.majority() && self.candidates[candidate].second_authority(self.now).is_some() {
            let how = format!("second lock: {others} masters could grant it");
            self.checks.fail("S3", self.now, how);
        }
    }

    /// Reports whether the second lock is held, or no candidate contends for one.
    pub(crate) fn second_is_held(&self) -> bool {
        !self.has_second
            || (0..self.candidates.len()).any(|c| self.candidates[c].second_authority(self.now).is_some())
    }
}
