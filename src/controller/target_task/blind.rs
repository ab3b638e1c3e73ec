//! Judges the answers of the siblings while this replica has no majority of the masters.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{goal::Siblings, lease_view::LeaseView};
use crate::{
    controller::sibling_answers::{CombinedAnswer, Round},
    lease::{BootInstant, LockName},
    masters::Masters,
};

/// The time to wait for an answer: a round of questions takes at most half a second, and the next round
/// follows.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// The time after which an answer that no newer round confirms expires, except for the end of a lease.
const FRESH: Duration = Duration::from_secs(2);

/// The memory of a replica that cannot see for itself which replica holds the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Blind {
    /// The time since which this replica has had no majority.
    since: Option<BootInstant>,
    /// The time of the first change of a target that no later round covers. The holder of the lock may have
    /// made the change.
    changed: Option<BootInstant>,
    /// The time at which a target that this replica had stopped was found running. The target is to be
    /// stopped again, and the finding is handled as a change.
    found: Arc<Mutex<Option<BootInstant>>>,
    /// Whether another cluster was reported to hold the lock, and no replica of this cluster since.
    pub(super) passed_on: bool,
}

/// The answer of the last round about one lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatestAnswer {
    /// The time at which the questions were sent.
    pub(super) sent: Option<BootInstant>,
    /// The answer about the lock.
    pub(super) answer: Option<CombinedAnswer>,
}

impl LatestAnswer {
    /// Returns the answer about the lock. An answer that this cluster holds the lock is dropped if this
    /// replica has seen a later lease of another cluster.
    pub(super) fn of(round: &Round, quorum: &str, lock: &LockName, seen: &LeaseView) -> Self {
        let answer = round.combined_answer(quorum, lock);
        Self {
            sent: round.sent,
            answer: answer.filter(
                |answer| !matches!(answer, CombinedAnswer::Held(_, token) if seen.elsewhere() > Some(*token)),
            ),
        }
    }
}

/// Reports whether this replica sees for itself which process holds the lock.
pub(super) fn has_majority(masters: Option<&Masters>) -> bool {
    masters.is_some_and(Masters::majority_grants)
}

impl Blind {
    /// Records a change of a target.
    pub(super) fn note_change(&mut self, now: BootInstant) {
        self.changed.get_or_insert(now);
    }

    /// Records that a step found a stopped target running.
    pub(super) fn note_started(&self, now: BootInstant) {
        self.found().get_or_insert(now);
    }

    /// Forgets that a stopped target was found running: the target is stopped, or left to the sibling that
    /// holds the lock.
    pub(super) fn forget_started(&self) {
        *self.found() = None;
    }

    fn found(&self) -> MutexGuard<'_, Option<BootInstant>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the judgement of the siblings' answers, which counts while this replica has no majority.
    pub(super) fn siblings(&mut self, majority: bool, latest: LatestAnswer, now: BootInstant) -> Siblings {
        let found = *self.found();
        if let Some(found) = found {
            self.note_change(found);
        }
        if majority {
            self.forget_started();
            (self.since, self.changed) = (None, None);
            return Siblings::Unasked;
        }
        let since = *self.since.get_or_insert(now);
        let fresh = latest.sent.filter(|sent| now < *sent + FRESH);
        let answered = fresh.filter(|sent| *sent >= since);
        if answered.is_some_and(|sent| self.changed.is_some_and(|changed| changed <= sent)) {
            self.changed = None;
        }
        let leaves = match latest.answer {
            Some(CombinedAnswer::Held(until, _)) => now < until,
            Some(CombinedAnswer::Free) => true,
            Some(CombinedAnswer::Elsewhere(_)) | None => false,
        };
        if leaves && answered.is_some_and(|sent| found.is_some_and(|found| found <= sent)) {
            // A later finding needs a new round. Under any other answer the stop is still to be carried out.
            self.forget_started();
        }
        let awaited = self.changed.unwrap_or(since).max(since) + PATIENCE;
        let current = answered.is_some() && self.changed.is_none();
        let decided = |siblings| {
            if current || now >= awaited {
                siblings
            } else {
                Siblings::Awaited(awaited)
            }
        };
        match latest.answer {
            Some(CombinedAnswer::Held(until, token)) if now < until => {
                self.passed_on = false;
                Siblings::Held(until, token)
            }
            Some(CombinedAnswer::Free) if let Some(sent) = fresh => Siblings::Free(sent),
            Some(CombinedAnswer::Elsewhere(_)) if fresh.is_some() => {
                self.passed_on = true;
                decided(Siblings::Elsewhere)
            }
            _ => decided(Siblings::Silent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::FencingToken;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_nanos(milliseconds * 1_000_000)
    }

    fn latest(sent: BootInstant, answer: CombinedAnswer) -> LatestAnswer {
        LatestAnswer {
            sent: Some(sent),
            answer: Some(answer),
        }
    }

    const ELSEWHERE: CombinedAnswer = CombinedAnswer::Elsewhere(FencingToken(8));

    /// Returns the state of a blind replica that found a stopped target running again at 1000 ms.
    fn found() -> Blind {
        let mut blind = Blind::default();
        let siblings = blind.siblings(false, latest(at(10), ELSEWHERE), at(0));
        assert_eq!(siblings, Siblings::Elsewhere);
        blind.note_started(at(1_000));
        let awaited = blind.siblings(false, latest(at(900), ELSEWHERE), at(1_000));
        assert_eq!(awaited, Siblings::Awaited(at(2_500)));
        blind
    }

    #[test]
    fn a_start_is_asked_after_once_until_it_is_stopped() {
        let mut blind = found();
        let asked = latest(at(1_100), ELSEWHERE);
        assert_eq!(blind.siblings(false, asked, at(1_200)), Siblings::Elsewhere);
        // The step that is to stop the target finds it running, too.
        blind.note_started(at(1_300));
        assert_eq!(blind.siblings(false, asked, at(1_300)), Siblings::Elsewhere);
        blind.forget_started();
        blind.note_started(at(1_400));
        let later = blind.siblings(false, asked, at(1_400));
        assert_eq!(later, Siblings::Awaited(at(2_900)), "started again");
    }

    #[test]
    fn a_start_after_one_that_was_left_to_a_sibling_is_asked_after() {
        for (answer, left) in [
            (
                CombinedAnswer::Held(at(4_000), FencingToken(7)),
                Siblings::Held(at(4_000), FencingToken(7)),
            ),
            (CombinedAnswer::Free, Siblings::Free(at(1_100))),
        ] {
            let mut blind = found();
            assert_eq!(blind.siblings(false, latest(at(1_100), answer), at(1_200)), left);
            let asked = latest(at(5_000), ELSEWHERE);
            assert_eq!(blind.siblings(false, asked, at(5_100)), Siblings::Elsewhere);
            blind.note_started(at(5_200));
            let later = blind.siblings(false, asked, at(5_200));
            assert_eq!(later, Siblings::Awaited(at(6_700)), "{answer:?}");
        }
    }

    #[test]
    fn an_answer_from_before_the_start_leaves_it_to_be_asked_after() {
        let mut blind = found();
        let held = CombinedAnswer::Held(at(1_050), FencingToken(7));
        blind.siblings(false, latest(at(900), held), at(1_010));
        let awaited = blind.siblings(false, latest(at(900), ELSEWHERE), at(1_060));
        assert_eq!(awaited, Siblings::Awaited(at(2_500)));
    }
}
