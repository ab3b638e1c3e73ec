//! Tracks the quorums that were ordered to be opened or closed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::plan::QuorumPlan,
    controller::{
        backoff::{self, Backoff},
        object::ObjectKey,
        problem::Problem,
    },
    lease::{BootInstant, FencingToken, LockName},
};

#[derive(Debug)]
pub(super) struct OpenQuorum {
    pub(super) plan: QuorumPlan,
    /// The object for which each lock was activated.
    pub(super) names: BTreeMap<LockName, ObjectKey>,
    /// The locks of the operator itself by which this replica shows that its cluster takes part in locks.
    pub(super) shown: BTreeSet<LockName>,
    /// Whether a question about other clusters is under way.
    pub(super) asks_willing: bool,
}

#[derive(Debug, Default)]
pub(super) struct OpenQuorums {
    open: BTreeMap<String, OpenQuorum>,
    closing: BTreeSet<String>,
    /// The leases of this replica that it has given up, by quorum and lock, while the views still show them.
    given_up: BTreeMap<(String, LockName), FencingToken>,
    /// The quorums that could not be opened, with the reason.
    failed: BTreeMap<String, Failure>,
}

#[derive(Debug)]
struct Failure {
    backoff: Backoff,
    problem: Problem,
    /// Whether a retry is due when the backoff is over.
    awaits_retry: bool,
}

impl OpenQuorums {
    pub(super) fn get(&self, name: &str) -> Option<&OpenQuorum> {
        self.open.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut OpenQuorum> {
        self.open.get_mut(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.open.keys()
    }

    /// Reports whether the quorum is closing and gives up its locks; this must end before it can be opened again.
    pub(super) fn is_closing(&self, name: &str) -> bool {
        self.closing.contains(name)
    }

    pub(super) fn open(&mut self, plan: QuorumPlan) {
        let quorum = OpenQuorum {
            names: BTreeMap::new(),
            shown: BTreeSet::new(),
            asks_willing: false,
            plan,
        };
        self.open.insert(quorum.plan.name.clone(), quorum);
    }

    /// Records that this replica gives up the lock, which it holds with this token.
    pub(super) fn give_up(&mut self, quorum: &str, lock: &LockName, token: FencingToken) {
        self.given_up.insert((quorum.to_owned(), lock.clone()), token);
    }

    /// Reports whether this replica has given up the lease with this token. The elector ends it later: until then, the view of
    /// the lock still shows the authority.
    pub(super) fn has_given_up(&self, quorum: &str, lock: &LockName, token: FencingToken) -> bool {
        !self.given_up.is_empty() && self.given_up.get(&(quorum.to_owned(), lock.clone())) == Some(&token)
    }

    /// Forgets the leases that were given up and that the views no longer show.
    pub(super) fn forget_given_up(&mut self, shown: impl Fn(&str, &LockName) -> Option<FencingToken>) {
        self.given_up
            .retain(|(quorum, lock), token| shown(quorum, lock) == Some(*token));
    }

    /// Closes the quorum and returns whether it was open.
    pub(super) fn close(&mut self, name: &str) -> bool {
        let closes = self.open.remove(name).is_some();
        if closes {
            self.closing.insert(name.to_owned());
        }
        closes
    }

    pub(super) fn closed(&mut self, name: &str) {
        self.closing.remove(name);
    }

    /// Records that the quorum could not be opened. `jitter` is a random number from 0 to 1.
    pub(super) fn fail(&mut self, name: &str, problem: Problem, now: BootInstant, jitter: f64) {
        self.open.remove(name);
        let before = self.failed.remove(name);
        let mut backoff = before.map(|failure| failure.backoff).unwrap_or_default();
        backoff.fail(backoff::LONGEST, now, jitter);
        let failure = Failure {
            backoff,
            problem,
            awaits_retry: true,
        };
        self.failed.insert(name.to_owned(), failure);
    }

    /// Returns the reason why the quorum could not be opened, while its backoff is not over.
    pub(super) fn refusal(&self, name: &str, now: BootInstant) -> Option<&Problem> {
        let failed = self.failed.get(name);
        failed
            .filter(|failure| !failure.backoff.is_over(now))
            .map(|failure| &failure.problem)
    }

    /// Returns the quorums to be opened again now, once for each failure: if the object has become unusable, the quorum
    /// waits for a change of the object.
    pub(super) fn retried(&mut self, now: BootInstant) -> Vec<String> {
        let due = |failure: &Failure| failure.awaits_retry && failure.backoff.is_over(now);
        let failed = self.failed.iter_mut().filter(|(_, failure)| due(failure));
        failed
            .map(|(name, failure)| {
                failure.awaits_retry = false;
                name.clone()
            })
            .collect()
    }

    /// Forgets the failure: the object of the quorum is gone, or has changed.
    pub(super) fn forget_failure(&mut self, name: &str) {
        self.failed.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::problem::Reason;

    #[test]
    fn lease_that_was_given_up_counts_no_longer_until_the_views_forget_it() {
        let mut quorums = OpenQuorums::default();
        let lock = LockName::parse("n/a").unwrap();
        let (old, new) = (FencingToken(1), FencingToken(2));
        quorums.give_up("q", &lock, old);
        quorums.forget_given_up(|_, _| Some(old));
        assert!(quorums.has_given_up("q", &lock, old));
        assert!(!quorums.has_given_up("q", &lock, new) && !quorums.has_given_up("r", &lock, old));
        quorums.forget_given_up(|_, _| None);
        assert!(!quorums.has_given_up("q", &lock, old));
    }

    #[test]
    fn quorum_is_retried_once_for_each_failure() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let mut quorums = OpenQuorums::default();
        let problem = || Problem::new(Reason::InvalidSpec, "a test");
        quorums.fail("q", problem(), at(100), 0.5);
        assert!(quorums.refusal("q", at(100)).is_some());
        assert_eq!(quorums.retried(at(100)), [""; 0]);
        assert_eq!(quorums.retried(at(1_000)), ["q"]);
        assert!(quorums.refusal("q", at(1_000)).is_none());
        assert_eq!(quorums.retried(at(1_000)), [""; 0]);
        quorums.fail("q", problem(), at(1_000), 0.5);
        assert_eq!(quorums.retried(at(2_000)), ["q"]);
    }
}
