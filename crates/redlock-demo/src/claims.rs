//! Records which replica believed that it held which lock under which token, and for which interval.
//!
//! Pure. Every interval is a lower bound: the replica is known to have believed throughout it. Two intervals that
//! overlap therefore prove two holders at one instant; rounding cannot cause an overlap.

use redlock_core::BootInstant;

/// One life of a replica. A restarted replica is another incarnation, and must not rely on a lease of the one before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation {
    pub name: String,
    pub pid: u32,
}

/// A claim of one replica on one lock under one token.
#[derive(Clone, Debug)]
pub struct Claim {
    pub lock: String,
    pub who: Incarnation,
    pub token: u64,
    pub began: BootInstant,
    /// The latest `valid_until` that the replica is known to have had. Nothing else ends the claim of a replica that
    /// was killed or paused.
    pub valid_until: BootInstant,
    /// The instant at which the replica logged that it released or lost the lease.
    pub ended: Option<BootInstant>,
    /// The time of the latest question that the replica answered with "active". Later than `ended` if its
    /// answers contradict its log.
    answered: BootInstant,
}

impl Claim {
    /// Returns the earlier of `valid_until` and the end that the replica reported.
    pub fn end(&self) -> BootInstant {
        let reported_end = self.ended.map(|ended| ended.max(self.answered));
        reported_end.map_or(self.valid_until, |end| end.min(self.valid_until))
    }

    pub fn holds_at(&self, now: BootInstant) -> bool {
        self.began <= now && now < self.end()
    }
}

/// All claims of a run, in the order in which the observer learned of them.
#[derive(Debug, Default)]
pub struct Claims(Vec<Claim>);

impl Claims {
    /// Records a log line that reports an acquisition at `at`.
    pub fn acquired(
        &mut self,
        who: &Incarnation,
        lock: &str,
        token: u64,
        at: BootInstant,
        valid_until: BootInstant,
    ) {
        let claim = self.entry(who, lock, token, at);
        claim.began = claim.began.min(at);
        claim.valid_until = claim.valid_until.max(valid_until);
    }

    /// Records an answer of `/locks` that reports the lock as held: requested at `asked`, received by `received`.
    pub fn answered(
        &mut self,
        who: &Incarnation,
        lock: &str,
        token: u64,
        (asked, received): (BootInstant, BootInstant),
        valid_until: BootInstant,
    ) {
        let claim = self.entry(who, lock, token, received);
        claim.began = claim.began.min(received);
        claim.answered = claim.answered.max(asked);
        claim.valid_until = claim.valid_until.max(valid_until);
    }

    /// Records a log line that reports the end of the lease at `at`, lost or released.
    pub fn ended(&mut self, who: &Incarnation, lock: &str, token: u64, at: BootInstant) {
        self.entry(who, lock, token, at).ended.get_or_insert(at);
    }

    pub fn all(&self) -> &[Claim] {
        &self.0
    }

    /// Returns the claim on a lock that holds at `now`; if several hold, the one with the greatest token.
    pub fn holder(&self, lock: &str, now: BootInstant) -> Option<&Claim> {
        let of_lock = self
            .0
            .iter()
            .filter(|claim| claim.lock == lock && claim.holds_at(now));
        of_lock.max_by_key(|claim| claim.token)
    }

    /// Returns the claim on a lock with the next greater token.
    pub fn successor(&self, lock: &str, token: u64) -> Option<&Claim> {
        let later = self
            .0
            .iter()
            .filter(|claim| claim.lock == lock && claim.token > token);
        later.min_by_key(|claim| claim.token)
    }

    fn entry(&mut self, who: &Incarnation, lock: &str, token: u64, at: BootInstant) -> &mut Claim {
        let same = |claim: &Claim| claim.who == *who && claim.lock == lock && claim.token == token;
        let index = self.0.iter().position(same).unwrap_or_else(|| {
            self.0.push(Claim {
                lock: lock.to_owned(),
                who: who.clone(),
                token,
                began: at,
                valid_until: at,
                ended: None,
                answered: BootInstant::default(),
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Incarnation {
        Incarnation {
            name: name.to_owned(),
            pid: 1,
        }
    }

    fn at(n: u64) -> BootInstant {
        BootInstant::from_nanos(n)
    }

    #[test]
    fn a_claim_ends_at_the_earlier_of_lost_and_valid_until() {
        let mut claims = Claims::default();
        claims.acquired(&who("a"), "l", 7, at(10), at(100));
        assert_eq!(claims.all()[0].end(), at(100), "a paused replica reports nothing");
        claims.answered(&who("a"), "l", 7, (at(40), at(42)), at(140));
        assert_eq!(claims.all()[0].end(), at(140), "renewed");
        claims.ended(&who("a"), "l", 7, at(60));
        assert_eq!(claims.all()[0].end(), at(60));
        assert_eq!(claims.all().len(), 1);
    }

    #[test]
    fn a_replica_that_reports_a_loss_and_still_answers_active_counts_as_holder() {
        let mut claims = Claims::default();
        claims.acquired(&who("a"), "l", 7, at(10), at(100));
        claims.ended(&who("a"), "l", 7, at(60));
        claims.answered(&who("a"), "l", 7, (at(80), at(82)), at(100));
        assert_eq!(claims.all()[0].end(), at(80));
    }

    #[test]
    fn a_claim_that_was_only_seen_by_asking_begins_with_the_first_answer() {
        let mut claims = Claims::default();
        claims.answered(&who("a"), "l", 7, (at(40), at(42)), at(140));
        assert_eq!(claims.all()[0].began, at(42));
        claims.acquired(&who("a"), "l", 7, at(30), at(130));
        assert_eq!(claims.all()[0].began, at(30), "its log is more exact");
    }

    #[test]
    fn the_successor_is_the_next_token_of_the_lock() {
        let mut claims = Claims::default();
        for (lock, token) in [("l", 7), ("l", 9), ("l", 8), ("other", 8)] {
            claims.acquired(&who("a"), lock, token, at(token), at(token + 1));
        }
        assert_eq!(claims.successor("l", 7).unwrap().token, 8);
        assert!(claims.successor("l", 9).is_none());
    }
}
