//! A lease that vanishes alone: the master misbehaves (A2 of docs/safety.md) until the next renewal puts the lease back.

use super::Strained;
use crate::world::{What, World};

impl World {
    /// Removes the lease of the holder at a master, within A2: a majority of the other masters has the lease for as long
    /// as the holder believes in it, and no renewal is under way, whose vote may be counted after the removal.
    pub(super) fn lose_lease(&mut self, master: usize) {
        let rests = |candidate: &usize| {
            let by = &self.candidates[*candidate];
            let awake = self.paused[*candidate] <= self.now && !self.is_excused(*candidate);
            awake && by.state() == Some("active") && by.authority(self.now).is_some()
        };
        let Some(holder) = (0..self.candidates.len()).find(rests) else {
            return;
        };
        let nonce = self.candidates[holder].nonce();
        let Some(ends) = self.candidates[holder].authority_ends() else {
            return;
        };
        // Rates differ by less than 1 %.
        let needed = (ends - self.now) / 100 * 101;
        let keeps = |other: &usize| {
            let server = &self.masters[*other];
            let own = server
                .lease(self.now)
                .is_some_and(|lease| Some(lease.nonce) == nonce);
            *other != master && server.sealed && own && server.left(self.now) >= needed
        };
        if (0..self.masters.len()).filter(keeps).count() < self.size.majority() {
            return;
        }
        self.count("lost lease");
        self.masters[master].lose_lease();
        let reported = self.strain.as_mut().is_some_and(|strain| strain.rng.bool());
        if reported && self.may_lose(master) {
            self.count("lost lease that a poll shows");
            self.masters[master].evicted = true;
            self.restart_later(master);
        }
    }

    fn restart_later(&mut self, master: usize) {
        if let Some(strain) = &mut self.strain {
            let at = self.now + strain.later(4_000);
            self.at(at, What::Strain(Strained::Restarted { master }));
        }
    }

    pub(super) fn restart_after_eviction(&mut self, master: usize) {
        if !self.masters[master].evicted {
            return;
        }
        if self.reachable(master) {
            self.lose_memory(master);
        } else {
            self.restart_later(master);
        }
    }
}
