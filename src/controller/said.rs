//! What siblings said of a lock in one round of questions. Pure.
//!
//! A blind replica, one without a majority of the masters, acts on it in place of what it would see itself. An answer
//! counts from when its question was sent, so that the time it took shortens it.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    lease::{FencingToken, LockName, Moment},
    operator::sibling::{Answer, LeaseAnswer},
};

/// What is said of one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A replica of this cluster holds it, until then if it does not renew its lease.
    Held(Moment, FencingToken),
    /// No replica and no other cluster holds it; a sibling with a majority contends for it, and has its targets in hand.
    Free,
    /// Another cluster holds it, by a sibling with a majority.
    Elsewhere(FencingToken),
}

/// One round: every sibling was asked at the same time, and those that answered in time are in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// When the questions were sent; none before the first round.
    pub(super) sent: Option<Moment>,
    answers: Vec<Answer>,
}

impl Round {
    /// Of these answers, those of other replicas of this cluster.
    pub(super) fn new(sent: Moment, answers: Vec<Answer>, (cluster, identity): (&str, &str)) -> Self {
        let mut answers = answers;
        answers.retain(|answer| answer.cluster == cluster && answer.identity != identity);
        Self {
            sent: Some(sent),
            answers,
        }
    }

    /// The word with the greatest token, which is about the latest lease. A holder is believed while its lease lasts,
    /// and whoever only watches if it has a majority.
    pub(super) fn word(&self, quorum: &str, lock: &LockName) -> Option<Word> {
        let sent = self.sent?;
        let all = self.answers.iter().filter_map(|answer| {
            let quorum = answer.quorums.get(quorum)?;
            let lock = quorum.locks.get(lock.as_str())?;
            match &lock.lease {
                Some(lease) if lease.own || quorum.majority => Some(of_lease(lease, sent)),
                None if quorum.majority && lock.contends => Some(Word::Free),
                _ => None,
            }
        });
        all.max_by_key(|word| match word {
            Word::Free => (0, Moment::default()),
            Word::Held(until, token) => (token.0, *until),
            Word::Elsewhere(token) => (token.0, Moment::default()),
        })
    }

    /// A sibling with a majority has the lock in hand, whoever holds it.
    pub(super) fn sibling_is_responsible(&self, quorum: &str, lock: &LockName) -> bool {
        self.any(quorum, lock, false)
    }

    /// A sibling with a majority would take the lock over.
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

fn of_lease(lease: &LeaseAnswer, sent: Moment) -> Word {
    let token = FencingToken(lease.fencing_token);
    if lease.own_cluster {
        Word::Held(sent + Duration::from_millis(lease.valid_for_milliseconds), token)
    } else {
        Word::Elsewhere(token)
    }
}

/// What a question names, by quorum.
pub(super) type Asked = BTreeMap<String, std::collections::BTreeSet<String>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::sibling::{LockAnswer, QuorumAnswer};

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
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
            quorums: BTreeMap::from([("q".to_owned(), quorum)]),
        }
    }

    fn word(answers: Vec<Answer>) -> Option<Word> {
        let round = Round::new(at(100), answers, ("here", "me"));
        round.word("q", &LockName::parse("n/l").unwrap())
    }

    #[test]
    fn a_lease_ends_after_the_question_was_sent_and_not_after_the_answer_came() {
        let held = |seconds, token| Some(Word::Held(at(seconds), FencingToken(token)));
        assert_eq!(
            word(vec![answer("a", true, lease(true, true, 7, 5))]),
            held(105, 7)
        );
        // The holder's own lease holds whatever it sees of the masters now.
        assert_eq!(
            word(vec![answer("a", false, lease(true, true, 7, 5))]),
            held(105, 7)
        );
        assert_eq!(
            word(vec![answer("a", true, lease(false, true, 7, 5))]),
            held(105, 7)
        );
        assert_eq!(word(vec![answer("a", false, lease(false, true, 7, 5))]), None);
        // The latest lease counts, and of one lease the latest end.
        let (old, new) = (lease(false, true, 7, 9), lease(true, true, 8, 5));
        assert_eq!(
            word(vec![answer("a", true, old.clone()), answer("b", true, new)]),
            held(105, 8)
        );
        let later = lease(true, true, 7, 11);
        assert_eq!(
            word(vec![answer("a", true, old.clone()), answer("b", true, later)]),
            held(111, 7)
        );
        let elsewhere = answer("b", true, lease(false, false, 8, 3));
        let there = Some(Word::Elsewhere(FencingToken(8)));
        assert_eq!(word(vec![answer("a", true, old), elsewhere]), there);
    }

    #[test]
    fn a_lock_is_free_by_the_word_of_a_sibling_that_would_take_it() {
        assert_eq!(word(vec![answer("a", true, free(true))]), Some(Word::Free));
        assert_eq!(word(vec![answer("a", true, free(false))]), None);
        assert_eq!(word(vec![answer("a", false, free(true))]), None);
        assert_eq!(word(Vec::new()), None);
        let held = answer("b", true, lease(true, true, 1, 5));
        assert!(matches!(
            word(vec![answer("a", true, free(true)), held]),
            Some(Word::Held(..))
        ));
    }

    #[test]
    fn the_own_answer_and_another_clusters_are_none() {
        let held = || lease(true, true, 7, 5);
        assert_eq!(word(vec![answer("me", true, held())]), None);
        let mut other = answer("a", true, held());
        other.cluster = "there".into();
        assert_eq!(word(vec![other]), None);
    }

    #[test]
    fn a_successor_has_a_majority_and_contends() {
        let lock = LockName::parse("n/l").unwrap();
        let round = |majority, contends| {
            Round::new(
                at(100),
                vec![answer("a", majority, free(contends))],
                ("here", "me"),
            )
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
