//! Holds the answers of siblings about locks from one round of questions. Pure.
//!
//! A blind replica, one without a majority of the masters, uses these answers instead of its own view. The
//! age of an answer counts from the time its question was sent, so the round trip shortens its validity.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    lease::{BootInstant, FencingToken, LockName},
    operator::sibling::{Answer, LeaseAnswer},
    telemetry::SiblingContact,
};

/// The combined answers about one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CombinedAnswer {
    /// A replica of this cluster holds the lock, until the given time unless it renews its lease.
    Held(BootInstant, FencingToken),
    /// Neither a replica of this cluster nor another cluster holds the lock; a sibling with a majority contends for it
    /// and is responsible for its targets.
    Free,
    /// According to a sibling with a majority, another cluster holds the lock.
    Elsewhere(FencingToken),
}

/// Whether a sibling can write the statuses that depend on data this replica cannot see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Witness {
    /// No sibling was asked yet, or a lease known to a sibling has not ended.
    Awaited,
    /// A sibling has a majority of the masters, and writes the status.
    Responsible,
    /// No sibling that answered has a majority, and a sibling that should have answered did not.
    Silent,
    /// All siblings answered, and none of them has a majority.
    Absent,
}

/// One round of questions: every sibling is asked at the same time, and the round holds the answers that arrived in
/// time.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// The time at which the questions were sent; `None` before the first round.
    pub(super) sent: Option<BootInstant>,
    asked: Asked,
    /// Whether a sibling whose pod is ready did not answer, or the siblings are not known.
    silent: bool,
    /// The pods that are ready and did not answer.
    unanswered: BTreeSet<String>,
    answers: Vec<Answer>,
}

impl Round {
    /// Creates a round of the answers that other replicas of this cluster gave.
    pub(super) fn new(sent: BootInstant, answers: Vec<Answer>, cluster: &str, identity: &str) -> Self {
        let mut answers = answers;
        answers.retain(|answer| answer.cluster == cluster && answer.identity != identity);
        Self {
            sent: Some(sent),
            asked: Asked::default(),
            silent: false,
            unanswered: BTreeSet::new(),
            answers,
        }
    }

    /// Adds the names that the round asked about, and whether an answer is missing.
    pub(super) fn about(self, asked: Asked, silent: bool) -> Self {
        Self {
            asked,
            silent,
            ..self
        }
    }

    /// Reports whether a sibling whose pod is ready did not answer, or the siblings are not known.
    pub(super) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Adds the pods that are ready and did not answer.
    pub(super) fn without(self, unanswered: BTreeSet<String>) -> Self {
        Self { unanswered, ..self }
    }

    /// Reports whether the round only checks the connections, and asks about no quorum.
    pub(super) fn is_heartbeat(&self) -> bool {
        self.asked.is_empty()
    }

    /// Returns the connections to the siblings that the round has shown.
    pub(super) fn contact(&self) -> SiblingContact {
        SiblingContact {
            answering: self.answers.len(),
            unanswered: self.unanswered.clone(),
        }
    }

    /// Reports whether a sibling may keep this quorum with this finalizer. A sibling that should have
    /// answered may, and so may a sibling whose build does not name its finalizer.
    pub(super) fn needs(&self, quorum: &str, finalizer: &str) -> bool {
        let needs = |answer: &Answer| {
            let uses = answer.finalizer == finalizer && answer.uses.contains(quorum);
            answer.finalizer.is_empty() || uses
        };
        self.silent || self.answers.iter().any(needs)
    }

    /// Reports whether the round asked about this lock.
    pub(super) fn asked_about(&self, quorum: &str, lock: &LockName) -> bool {
        let locks = self.asked.get(quorum);
        locks.is_some_and(|locks| locks.contains(lock.as_str()))
    }

    /// Returns which sibling can write the status of this quorum, or of this lock on it. `former` is the
    /// token of the lease that this replica had: that lease has ended, even if a sibling still sees it.
    pub(super) fn witness(
        &self,
        quorum: &str,
        lock: Option<&LockName>,
        former: Option<FencingToken>,
    ) -> Witness {
        let asked = match lock {
            Some(lock) => self.asked_about(quorum, lock),
            None => self.asked.contains_key(quorum),
        };
        if self.sent.is_none() || !asked {
            return Witness::Awaited;
        }
        let answers = || {
            self.answers
                .iter()
                .filter_map(|answer| answer.quorums.get(quorum))
        };
        if answers().any(|quorum| quorum.majority) {
            return Witness::Responsible;
        }
        let mut leases = answers().filter_map(|quorum| quorum.locks.get(lock?.as_str())?.lease.as_ref());
        let ended =
            |lease: &LeaseAnswer| !lease.own && former.is_some_and(|own| lease.fencing_token <= own.0);
        if leases.any(|lease| !ended(lease)) {
            return Witness::Awaited;
        }
        if self.silent {
            Witness::Silent
        } else {
            Witness::Absent
        }
    }

    /// Returns the quorums for which a sibling has a majority of the masters.
    pub(super) fn seen_by_siblings(&self) -> BTreeSet<String> {
        let quorums = self.answers.iter().flat_map(|answer| &answer.quorums);
        let seen = quorums.filter(|(_, quorum)| quorum.majority);
        seen.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the answer with the greatest token, which describes the latest lease. An answer of the holder counts
    /// until its lease ends; an answer of an observer counts only with a majority.
    pub(super) fn combined_answer(&self, quorum: &str, lock: &LockName) -> Option<CombinedAnswer> {
        let sent = self.sent?;
        let all = self.answers.iter().filter_map(|answer| {
            let quorum = answer.quorums.get(quorum)?;
            let lock = quorum.locks.get(lock.as_str())?;
            match &lock.lease {
                Some(lease) if lease.own || quorum.majority => Some(of_lease(lease, sent)),
                None if quorum.majority && lock.contends => Some(CombinedAnswer::Free),
                _ => None,
            }
        });
        all.max_by_key(|answer| match answer {
            CombinedAnswer::Free => (0, BootInstant::default()),
            CombinedAnswer::Held(until, token) => (token.0, *until),
            CombinedAnswer::Elsewhere(token) => (token.0, BootInstant::default()),
        })
    }

    /// Reports whether a sibling with a majority is responsible for the lock, regardless of its holder.
    pub(super) fn sibling_is_responsible(&self, quorum: &str, lock: &LockName) -> bool {
        self.any(quorum, lock, false)
    }

    /// Reports whether a sibling with a majority would take the lock over.
    pub(super) fn has_successor(&self, quorum: &str, lock: &LockName, observed: bool) -> bool {
        self.any(quorum, lock, !observed)
    }

    fn any(&self, quorum: &str, lock: &LockName, contends: bool) -> bool {
        self.answers.iter().any(|answer| {
            let quorum = answer.quorums.get(quorum).filter(|quorum| quorum.majority);
            let lock = quorum.and_then(|quorum| quorum.locks.get(lock.as_str()));
            lock.is_some_and(|lock| lock.contends || !contends)
        })
    }
}

fn of_lease(lease: &LeaseAnswer, sent: BootInstant) -> CombinedAnswer {
    let token = FencingToken(lease.fencing_token);
    if lease.own_cluster {
        CombinedAnswer::Held(sent + Duration::from_millis(lease.valid_for_milliseconds), token)
    } else {
        CombinedAnswer::Elsewhere(token)
    }
}

/// The locks that a question names, by quorum.
pub(super) type Asked = BTreeMap<String, BTreeSet<String>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::sibling::{LockAnswer, QuorumAnswer};

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn lease(own: bool, own_cluster: bool, token: u64, seconds: u64) -> LockAnswer {
        LockAnswer {
            contends: true,
            lease: Some(LeaseAnswer {
                own,
                own_cluster,
                fencing_token: token,
                valid_for_milliseconds: seconds * 1_000,
            }),
        }
    }

    fn free(contends: bool) -> LockAnswer {
        LockAnswer {
            contends,
            lease: None,
        }
    }

    fn answer(identity: &str, majority: bool, lock: LockAnswer) -> Answer {
        let locks = BTreeMap::from([("n/l".to_owned(), lock)]);
        let quorum = QuorumAnswer { majority, locks };
        Answer {
            cluster: "here".into(),
            identity: identity.into(),
            finalizer: "redlock.dev/in-use-all".into(),
            uses: BTreeSet::from(["q".to_owned()]),
            quorums: BTreeMap::from([("q".to_owned(), quorum)]),
        }
    }

    fn combined_answer(answers: Vec<Answer>) -> Option<CombinedAnswer> {
        let round = Round::new(at(100), answers, "here", "me");
        round.combined_answer("q", &LockName::parse("n/l").unwrap())
    }

    #[test]
    fn a_finalizer_is_needed_by_a_sibling_that_uses_the_quorum_or_does_not_answer() {
        let asked = || Asked::from([("q".to_owned(), BTreeSet::new())]);
        let round = |answers, silent| Round::new(at(100), answers, "here", "me").about(asked(), silent);
        let sibling = answer("a", true, free(true));
        let used = round(vec![sibling.clone()], false);
        assert!(used.needs("q", "redlock.dev/in-use-all"));
        assert!(!used.needs("q", "redlock.dev/in-use-other") && !used.needs("p", "redlock.dev/in-use-all"));
        let mut left = sibling;
        left.uses.clear();
        assert!(!round(vec![left.clone()], false).needs("q", "redlock.dev/in-use-all"));
        assert!(
            round(vec![left], true).needs("q", "redlock.dev/in-use-all"),
            "one is silent"
        );
        assert!(!round(Vec::new(), false).needs("q", "redlock.dev/in-use-all"));
        let mut earlier = answer("a", true, free(true));
        earlier.finalizer.clear();
        earlier.uses.clear();
        assert!(
            round(vec![earlier], false).needs("q", "redlock.dev/in-use-all"),
            "of a build that reports neither"
        );
    }

    #[test]
    fn replica_without_a_majority_writes_where_no_sibling_can() {
        let lock = LockName::parse("n/l").unwrap();
        let asked = || Asked::from([("q".to_owned(), BTreeSet::from(["n/l".to_owned()]))]);
        let witness = |answers: Vec<Answer>, silent, former: Option<u64>| {
            let round = Round::new(at(100), answers, "here", "me").about(asked(), silent);
            round.witness("q", Some(&lock), former.map(FencingToken))
        };
        assert_eq!(Round::default().witness("q", None, None), Witness::Awaited);
        assert_eq!(witness(vec![], false, None), Witness::Absent);
        assert_eq!(witness(vec![], true, None), Witness::Silent);
        let blind = |lock| answer("a", false, lock);
        assert_eq!(witness(vec![blind(free(true))], false, None), Witness::Absent);
        let sees = answer("a", true, free(true));
        assert_eq!(witness(vec![sees], true, None), Witness::Responsible);
        // A lease is in force until its end even if its holder has no majority now.
        let held = |own, token| blind(lease(own, true, token, 5));
        assert_eq!(witness(vec![held(true, 7)], false, None), Witness::Awaited);
        assert_eq!(witness(vec![held(false, 7)], false, None), Witness::Awaited);
        assert_eq!(witness(vec![held(false, 7)], false, Some(7)), Witness::Absent);
        assert_eq!(witness(vec![held(false, 8)], false, Some(7)), Witness::Awaited);
        let other = Round::new(at(100), vec![], "here", "me").about(asked(), false);
        let unasked = LockName::parse("n/other").unwrap();
        assert_eq!(other.witness("q", Some(&unasked), None), Witness::Awaited);
        assert_eq!(other.witness("q", None, None), Witness::Absent);
    }

    #[test]
    fn a_lease_ends_after_the_question_was_sent_and_not_after_the_answer_came() {
        let held = |seconds, token| Some(CombinedAnswer::Held(at(seconds), FencingToken(token)));
        assert_eq!(
            combined_answer(vec![answer("a", true, lease(true, true, 7, 5))]),
            held(105, 7)
        );
        // The holder's own lease counts, regardless of the masters that the holder reaches now.
        assert_eq!(
            combined_answer(vec![answer("a", false, lease(true, true, 7, 5))]),
            held(105, 7)
        );
        assert_eq!(
            combined_answer(vec![answer("a", true, lease(false, true, 7, 5))]),
            held(105, 7)
        );
        assert_eq!(
            combined_answer(vec![answer("a", false, lease(false, true, 7, 5))]),
            None
        );
        // The latest lease counts, and of several answers about one lease the latest end.
        let (old, new) = (lease(false, true, 7, 9), lease(true, true, 8, 5));
        assert_eq!(
            combined_answer(vec![answer("a", true, old.clone()), answer("b", true, new)]),
            held(105, 8)
        );
        let later = lease(true, true, 7, 11);
        assert_eq!(
            combined_answer(vec![answer("a", true, old.clone()), answer("b", true, later)]),
            held(111, 7)
        );
        let elsewhere = answer("b", true, lease(false, false, 8, 3));
        let there = Some(CombinedAnswer::Elsewhere(FencingToken(8)));
        assert_eq!(combined_answer(vec![answer("a", true, old), elsewhere]), there);
    }

    #[test]
    fn a_lock_is_free_by_the_answer_of_a_sibling_that_would_take_it() {
        assert_eq!(
            combined_answer(vec![answer("a", true, free(true))]),
            Some(CombinedAnswer::Free)
        );
        assert_eq!(combined_answer(vec![answer("a", true, free(false))]), None);
        assert_eq!(combined_answer(vec![answer("a", false, free(true))]), None);
        assert_eq!(combined_answer(Vec::new()), None);
        let held = answer("b", true, lease(true, true, 1, 5));
        assert!(matches!(
            combined_answer(vec![answer("a", true, free(true)), held]),
            Some(CombinedAnswer::Held(..))
        ));
    }

    #[test]
    fn the_own_answer_and_another_clusters_are_none() {
        let held = || lease(true, true, 7, 5);
        assert_eq!(combined_answer(vec![answer("me", true, held())]), None);
        let mut other = answer("a", true, held());
        other.cluster = "there".into();
        assert_eq!(combined_answer(vec![other]), None);
    }

    #[test]
    fn a_successor_has_a_majority_and_contends() {
        let lock = LockName::parse("n/l").unwrap();
        let round = |majority, contends| {
            Round::new(at(100), vec![answer("a", majority, free(contends))], "here", "me")
        };
        assert!(round(true, true).has_successor("q", &lock, false));
        assert!(!round(false, true).has_successor("q", &lock, false));
        assert!(!round(true, false).has_successor("q", &lock, false));
        assert!(
            round(true, false).has_successor("q", &lock, true),
            "agents contend"
        );
        assert!(round(true, false).sibling_is_responsible("q", &lock));
        assert!(!round(true, true).sibling_is_responsible("other", &lock));
        assert!(!Round::default().sibling_is_responsible("q", &lock));
    }
}
