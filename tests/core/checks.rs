//! What must hold, asked after every event.

use redlock::lease::FencingToken;

use super::{
    message::{Answer, Ask, Request},
    world::World,
};

#[derive(Debug, Default)]
pub struct Checks {
    /// The first thing that did not hold.
    pub broken: Option<String>,
    pub last_token: FencingToken,
    pub wins: u64,
    pub clashes: u64,
}

impl World {
    pub fn violated(&mut self, what: &str) {
        let at = self.now / 1_000;
        let seed = self.seed;
        self.checks
            .broken
            .get_or_insert_with(|| format!("{what}, at {at} µs; REDLOCK_SEED={seed} replays it"));
    }

    pub fn check(&mut self) {
        let believers: Vec<usize> = (0..self.candidates.len())
            .filter(|c| self.candidates[*c].authority(self.now).is_some())
            .collect();
        if believers.len() > 1 {
            self.violated(&format!("S1: candidates {believers:?} believe that they hold it"));
        }
        for candidate in believers {
            self.check_end(candidate);
        }
    }

    /// S3: at the end of the lease a majority of the masters still keeps everybody else out. One without a seal does.
    fn check_end(&mut self, candidate: usize) {
        let c = &self.candidates[candidate];
        let Some(authority) = c.authority(self.now) else {
            return;
        };
        let end = c.clock.when(authority.valid_until.as_nanos());
        let nonce = c.lease.nonce.0;
        let open = self
            .masters
            .iter()
            .filter(|m| m.sealed && m.holds_until(nonce, self.now) < end)
            .count();
        if open >= self.size.majority() {
            self.violated(&format!(
                "S3: candidate {candidate} believes until {} µs, {open} masters can grant it before",
                end / 1_000
            ));
        }
    }

    /// S2: the tokens of successive grants increase.
    pub fn check_token(&mut self, candidate: usize, token: FencingToken) {
        self.checks.wins += 1;
        if token <= self.checks.last_token {
            let last = self.checks.last_token;
            self.violated(&format!("S2: candidate {candidate} won {token} after {last}"));
        }
        self.checks.last_token = token;
    }

    /// After the local end no renewal and no heal is sent.
    pub fn check_renewal(&mut self, candidate: usize) {
        if self.candidates[candidate].authority(self.now).is_none() {
            self.violated(&format!(
                "S3: candidate {candidate} sends a renewal after its local end"
            ));
        }
    }

    /// S6: nothing is deleted while its holder believes in it.
    pub fn check_deleted(&mut self, request: &Request, answer: &Answer) {
        let deletes = matches!(request.ask, Ask::Release { .. } | Ask::Reserve { .. });
        let c = &self.candidates[request.from];
        if deletes
            && matches!(answer, Answer::Done)
            && c.lease.nonce == request.lease.nonce
            && c.authority(self.now).is_some()
        {
            self.violated(&format!(
                "S6: a lease that candidate {} believes in is deleted",
                request.from
            ));
        }
    }

    /// S5: of leases that were lost nothing is left.
    pub fn check_remains(&mut self) {
        let held: Vec<u128> = self.candidates.iter().map(|c| c.lease.nonce.0).collect();
        for master in 0..self.masters.len() {
            if let Some((lease, _)) = &self.masters[master].lease
                && !held.contains(&lease.nonce.0)
                && self.masters[master].holds_until(lease.nonce.0, self.now) > self.now
            {
                self.violated(&format!("S5: master {master} still has a lost lease"));
            }
        }
    }
}
