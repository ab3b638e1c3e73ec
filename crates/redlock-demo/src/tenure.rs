//! Records the leases of one lock as the masters show them: on which masters each lease stood, and when it ends on
//! each.
//!
//! Pure.

use redlock_core::BootInstant;
use redlock_testkit::observer::{LeaseText, nearest_end};

/// One lease, from its first grant to its end.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub identity: String,
    pub nonce: String,
    /// The grant number that each master showed.
    grants: Vec<Option<u64>>,
    /// The instant at which a majority was first seen to show the lease at once; `None` for a lost attempt.
    pub seen: Option<BootInstant>,
    /// The end on each master. A master that never showed the lease counts as free of it throughout.
    ends: Vec<BootInstant>,
    /// Masters without a vote while this lease stood: they do not count as free, even without a lease.
    barred: Vec<bool>,
}

impl Tenure {
    /// Returns the least token that the holder can have: the M-th smallest grant number. The actual token is the
    /// greatest number of the majority that answered first, and the lease does not show which majority that was. The
    /// least token must grow as well: every majority of a later lease contains a master that counted up from the actual
    /// token.
    pub fn token(&self) -> u64 {
        let mut grants: Vec<u64> = self.grants.iter().flatten().copied().collect();
        grants.sort_unstable();
        let majority = self.grants.len() / 2;
        grants
            .get(majority)
            .or(grants.last())
            .copied()
            .unwrap_or_default()
    }

    /// Returns the instant from which a majority is free: the M-th smallest end.
    pub fn free_at(&self) -> BootInstant {
        let end = |(end, barred): (&BootInstant, &bool)| if *barred { BootInstant::NEVER } else { *end };
        let mut ends: Vec<BootInstant> = self.ends.iter().zip(&self.barred).map(end).collect();
        ends.sort_unstable();
        ends.get(ends.len() / 2).copied().unwrap_or_default()
    }
}

/// All leases of one lock, in the order in which they were first seen.
#[derive(Clone, Debug)]
pub struct Account {
    masters: usize,
    tenures: Vec<Tenure>,
}

impl Account {
    pub fn new(masters: usize) -> Self {
        Self {
            masters,
            tenures: Vec::new(),
        }
    }

    pub fn tenures(&self) -> &[Tenure] {
        &self.tenures
    }

    /// Records the observation of a master at `at`: a lease that ends at `ends`, or no lease.
    pub fn saw(&mut self, master: usize, lease: Option<LeaseText>, ends: BootInstant, at: BootInstant) {
        let shown = lease.as_ref().map(|lease| lease.nonce.as_str());
        // The lease was deleted before its end, or lost with the memory: the master has been free of it since
        // `at` at the latest.
        for tenure in self
            .tenures
            .iter_mut()
            .filter(|t| Some(t.nonce.as_str()) != shown)
        {
            if let Some(end) = tenure.ends.get_mut(master) {
                *end = (*end).min(at);
            }
        }
        let Some(lease) = lease else { return };
        let majority = self.masters / 2 + 1;
        let tenure = self.entry(&lease);
        let new = tenure
            .grants
            .get_mut(master)
            .is_some_and(|grant| grant.replace(lease.grant).is_none());
        if let Some(barred) = tenure.barred.get_mut(master) {
            *barred = false;
        }
        if let Some(end) = tenure.ends.get_mut(master) {
            *end = if new { ends } else { nearest_end(*end, ends) };
        }
        if tenure.seen.is_none() && tenure.ends.iter().filter(|end| **end > at).count() >= majority {
            tenure.seen = Some(at);
        }
    }

    /// Records that a master has no vote now. This affects the present lease, not the leases before it.
    pub fn has_no_vote(&mut self, master: usize) {
        let last = self.tenures.iter_mut().rev().find(|t| t.seen.is_some());
        if let Some(barred) = last.and_then(|tenure| tenure.barred.get_mut(master)) {
            *barred = true;
        }
    }

    /// Returns the lease that a majority showed last.
    pub fn current(&self) -> Option<&Tenure> {
        self.tenures.iter().rev().find(|t| t.seen.is_some())
    }

    /// Returns the lease that a replica acquired at `began`: the lease of its identity that a majority showed nearest
    /// to that instant. The token does not identify it, see [`Tenure::token`].
    pub fn of_claim(&self, identity: &str, began: BootInstant) -> Option<&Tenure> {
        let own = self.tenures.iter().filter(|t| t.identity == identity);
        let distance = |tenure: &Tenure| Some(tenure.seen?.since(began) + began.since(tenure.seen?));
        own.filter_map(|tenure| Some((distance(tenure)?, tenure)))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, tenure)| tenure)
    }

    /// Reports whether this master shows the lease that a majority showed last.
    pub fn shown_by(&self, master: usize, now: BootInstant) -> bool {
        self.current()
            .and_then(|tenure| tenure.ends.get(master))
            .is_some_and(|end| *end > now)
    }

    fn entry(&mut self, lease: &LeaseText) -> &mut Tenure {
        let index = self
            .tenures
            .iter()
            .position(|t| t.nonce == lease.nonce)
            .unwrap_or_else(|| {
                self.tenures.push(Tenure {
                    identity: lease.identity.clone(),
                    nonce: lease.nonce.clone(),
                    grants: vec![None; self.masters],
                    seen: None,
                    ends: vec![BootInstant::default(); self.masters],
                    barred: vec![false; self.masters],
                });
                self.tenures.len() - 1
            });
        &mut self.tenures[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(nonce: &str, grant: u64) -> Option<LeaseText> {
        Some(LeaseText {
            identity: "a".into(),
            nonce: nonce.into(),
            grant,
        })
    }

    fn ms(n: u64) -> BootInstant {
        BootInstant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_lease_is_held_once_a_majority_shows_it() {
        let mut account = Account::new(3);
        account.saw(0, lease("n", 4), ms(100), ms(1));
        assert!(account.current().is_none());
        account.saw(2, lease("n", 5), ms(100), ms(2));
        let held = account.current().unwrap();
        assert_eq!((held.seen, held.token()), (Some(ms(2)), 5));
    }

    #[test]
    fn the_end_is_the_mth_smallest_and_follows_renewals() {
        let mut account = Account::new(3);
        for (master, end) in [(0, 900), (1, 700), (2, 800)] {
            account.saw(master, lease("n", 1), ms(end), ms(1));
        }
        assert_eq!(account.current().unwrap().free_at(), ms(800));
        account.saw(2, lease("n", 1), ms(799), ms(5));
        assert_eq!(account.current().unwrap().free_at(), ms(799), "a second read");
        for master in 0..3 {
            account.saw(master, lease("n", 1), ms(1500), ms(500));
        }
        assert_eq!(account.current().unwrap().free_at(), ms(1500), "renewed");
    }

    #[test]
    fn a_lease_that_is_gone_early_ended_when_it_was_missed() {
        let mut account = Account::new(3);
        for master in 0..3 {
            account.saw(master, lease("n", 1), ms(900), ms(1));
        }
        account.saw(0, None, ms(0), ms(300));
        account.saw(1, lease("o", 2), ms(1200), ms(310));
        assert_eq!(account.tenures()[0].free_at(), ms(310));
        assert!(!account.shown_by(0, ms(320)));
    }

    #[test]
    fn a_master_without_a_vote_is_not_free() {
        let mut account = Account::new(3);
        for (master, end) in [(0, 700), (1, 800), (2, 900)] {
            account.saw(master, lease("n", 1), ms(end), ms(1));
        }
        account.saw(0, None, ms(0), ms(10));
        assert_eq!(account.current().unwrap().free_at(), ms(800));
        account.has_no_vote(0);
        assert_eq!(account.current().unwrap().free_at(), ms(900));
        account.saw(0, lease("n", 1), ms(850), ms(20));
        assert_eq!(account.current().unwrap().free_at(), ms(850), "sealed and healed");
    }

    #[test]
    fn a_master_whose_counter_is_ahead_does_not_make_the_token() {
        let mut account = Account::new(3);
        for (master, grant) in [(0, 720), (1, 720), (2, 726)] {
            account.saw(master, lease("n", grant), ms(900), ms(1));
        }
        assert_eq!(account.current().unwrap().token(), 720);
    }

    #[test]
    fn a_lease_is_found_by_holder_and_time() {
        let mut account = Account::new(1);
        for (nonce, at) in [("n", 100), ("o", 200)] {
            account.saw(0, lease(nonce, at), ms(900), ms(at));
        }
        assert_eq!(account.of_claim("a", ms(197)).unwrap().nonce, "o");
        assert_eq!(account.of_claim("a", ms(103)).unwrap().nonce, "n");
        assert!(account.of_claim("b", ms(103)).is_none());
    }
}
