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

/// The greatest age of an answer of the API server that shows that a sibling reaches it now: a probe is sent every 3 s. It
/// is shorter than the silence after which a replica is cut off, so that a failure of the API server itself is seen by all.
const API_CONTACT: Duration = Duration::from_secs(5);

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
    /// Whether no other process of this operator may run on: each replica answered that it ends, or does not run.
    is_last: bool,
    answers: Vec<Answer>,
}

impl Round {
    /// Creates a round of the answers that other replicas of this cluster gave.
    pub(super) fn new(sent: BootInstant, answers: Vec<Answer>, cluster: &str, identity: &str) -> Self {
        let mut answers = answers;
        answers.retain(|answer| is_sibling(answer, cluster, identity));
        Self {
            sent: Some(sent),
            asked: Asked::default(),
            silent: false,
            unanswered: BTreeSet::new(),
            is_last: false,
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

    /// Adds whether the replicas that did not answer are known, and none of them may run.
    pub(super) fn beside_ended(self, ended: bool) -> Self {
        let is_last = ended && self.answers.iter().all(|answer| answer.stopping);
        Self { is_last, ..self }
    }

    /// Reports whether no other process of this operator may run on.
    pub(super) const fn is_last(&self) -> bool {
        self.is_last
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
        // The number that a sibling sees may be greater than the token: that of a master that granted too late.
        let is_former =
            |lease: &LeaseAnswer, own: FencingToken| lease.of_asker || lease.fencing_token <= own.0;
        let ended = |lease: &LeaseAnswer| !lease.own && former.is_some_and(|own| is_former(lease, own));
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

    /// Returns the answers of siblings to which the API server has just answered.
    pub(super) fn in_contact(&self) -> Self {
        let answers = self.answers.iter().filter(|answer| is_in_contact(answer));
        Self {
            answers: answers.cloned().collect(),
            ..self.clone()
        }
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

/// Reports whether another replica of this cluster gave the answer.
pub(super) fn is_sibling(answer: &Answer, cluster: &str, identity: &str) -> bool {
    answer.cluster == cluster && answer.identity != identity
}

fn is_in_contact(answer: &Answer) -> bool {
    let age = answer.api_contact_age_milliseconds;
    age.is_some_and(|age| Duration::from_millis(age) < API_CONTACT)
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
mod tests;
