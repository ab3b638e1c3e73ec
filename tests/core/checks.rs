//! What must hold at every instant.

use crate::{
    candidate::Candidate,
    master::{Master, mine},
    rate::Instant,
};

/// A broken invariant, by its name in the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) invariant: &'static str,
    pub(crate) at: Instant,
    pub(crate) how: String,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    greatest_token: u64,
    /// Everything before was checked, with the masters as they were then.
    checked: Instant,
    pub(crate) broken: Option<Broken>,
    pub(crate) wins: u64,
}

impl Checks {
    pub(crate) fn fail(&mut self, invariant: &'static str, at: Instant, how: String) {
        self.broken.get_or_insert(Broken { invariant, at, how });
    }

    /// S1 and S3 at every instant from the last event up to `at`: between events belief only ends and keys only
    /// expire, so the worst instant of a belief is its last one.
    pub(crate) fn until(&mut self, at: Instant, candidates: &[Candidate], masters: &[Master]) {
        let believing = |instant| candidates.iter().filter(move |c| c.authority(instant).is_some());
        for candidate in candidates {
            let Some(ends) = candidate.authority_ends() else {
                continue;
            };
            let last = at.min(ends.saturating_sub(1));
            if last < self.checked || candidate.authority(last).is_none() {
                continue;
            }
            if believing(last).count() > 1 {
                self.fail("S1", last, "two candidates believe".to_owned());
            }
            let others = masters.iter().filter(|m| available(m, last, candidate)).count();
            if others > masters.len() / 2 {
                let how = format!("{others} masters could grant the lease of {}", candidate.cluster);
                self.fail("S3", last, how);
            }
        }
        self.checked = at;
    }

    /// S2: each win has a greater token than every one before; a renewal keeps the greatest.
    pub(crate) fn active(&mut self, token: u64, won: bool, at: Instant) {
        if token < self.greatest_token || (won && token == self.greatest_token) {
            let how = format!("token {token} after {}", self.greatest_token);
            self.fail("S2", at, how);
        }
        self.greatest_token = self.greatest_token.max(token);
        self.wins += u64::from(won);
    }
}

/// Whether this master's vote could go to another than the holder.
fn available(master: &Master, at: Instant, holder: &Candidate) -> bool {
    master.sealed
        && master
            .lease(at)
            .is_none_or(|lease| Some(lease.nonce) != holder.nonce())
}

/// S6: what a script deleted, if its holder believes in it.
pub(crate) fn deleted(before: &Master, after: &Master, at: Instant, candidates: &[Candidate]) -> bool {
    before.lease(at).is_some_and(|lease| {
        !after.lease(at).is_some_and(|left| mine(left, lease))
            && candidates
                .iter()
                .any(|c| c.authority(at).is_some() && c.nonce() == Some(lease.nonce))
    })
}
