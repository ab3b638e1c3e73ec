//! Decides when a target is tried again that could not be switched: a refusal lasts until a person changes something, and
//! each try costs requests. Pure.

use std::time::Duration;

use super::{outcome::RETRY_TROUBLE, turns::Lane};
use crate::{
    api::plan::TargetWork,
    lease::BootInstant,
    targets::{ConditionReason, Step, Trouble},
};

/// The longest interval between tries. A watch shows what ends this trouble.
const LONGEST: Duration = Duration::from_secs(240);
/// The longest interval between tries if no watch shows what ends the trouble, such as a new permission.
const UNWATCHED: Duration = Duration::from_secs(30);
/// The longest interval between tries that changes of the objects cause: a refused write may change its object.
const WOKEN: Duration = Duration::from_secs(60);

/// The tries of one target that ended with the same trouble.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    counts: CountedTrouble,
    failed: Option<Failed>,
}

/// The trouble that makes tries seldom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CountedTrouble {
    #[default]
    All,
    /// The pods of a selector change without a write: their trouble ends by itself, unless a write is refused.
    Refusals,
}

#[derive(Debug)]
struct Failed {
    lane: Lane,
    trouble: Trouble,
    /// The longest interval between tries.
    longest: Duration,
    at: BootInstant,
    /// The number of tries since the trouble began, and the number of those that changes caused.
    tries: u32,
    wakes: u32,
    /// Whether an object of the lock has changed since the last try.
    woken: bool,
    /// Whether a later try made progress, so that the next step follows at once.
    progress: bool,
}

impl BackOff {
    pub(super) fn of(work: &TargetWork) -> Self {
        let counts = match work {
            TargetWork::LabelPods { .. } => CountedTrouble::Refusals,
            TargetWork::Scale { .. }
            | TargetWork::Suspend { .. }
            | TargetWork::OncePerSchedule { .. }
            | TargetWork::Lease { .. }
            | TargetWork::Patch { .. } => CountedTrouble::All,
        };
        Self { counts, failed: None }
    }

    /// Returns the trouble of the last try, unless the next try is due.
    pub(super) fn rests(&self, lane: Lane, now: BootInstant) -> Option<Step> {
        let rests = |failed: &&Failed| failed.lane == lane && !failed.progress;
        let failed = self.failed.as_ref().filter(rests)?;
        (now < failed.due()).then(|| Step::Trouble(failed.trouble.clone()))
    }

    /// Records the result of a try. `refused` is whether the API server refused a request.
    pub(super) fn add(&mut self, lane: Lane, step: &Step, refused: bool, now: BootInstant) {
        match step {
            Step::Done | Step::Waiting(_) | Step::Contested(_) => self.failed = None,
            Step::Working(_) => {
                if let Some(failed) = &mut self.failed {
                    failed.progress = true;
                }
            }
            Step::Trouble(_) if !refused && self.counts == CountedTrouble::Refusals => self.failed = None,
            Step::Trouble(trouble) => match longest(trouble.reason, refused) {
                Some(longest) if trouble.state != lane.goal() => self.fail(lane, trouble, longest, now),
                Some(_) | None => self.failed = None,
            },
        }
    }

    fn fail(&mut self, lane: Lane, trouble: &Trouble, longest: Duration, now: BootInstant) {
        let is_same = |failed: &Failed| failed.lane == lane && failed.trouble.reason == trouble.reason;
        let before = self.failed.take().filter(is_same);
        let (tries, wakes) = before.map_or((0, 0), |before| match before.woken {
            true => (before.tries + 1, before.wakes + 1),
            // The objects were quiet for a whole interval.
            false => (before.tries + 1, 0),
        });
        self.failed = Some(Failed {
            lane,
            longest,
            trouble: trouble.clone(),
            at: now,
            tries,
            wakes,
            woken: false,
            progress: false,
        });
    }

    /// Records that an object of the lock has changed, which may end the trouble.
    pub(super) fn wake(&mut self) {
        if let Some(failed) = &mut self.failed {
            failed.woken = true;
        }
    }

    /// Forgets the trouble: the declaration or the permissions have changed.
    pub(super) fn clear(&mut self) {
        self.failed = None;
    }
}

impl Failed {
    /// Returns when the next try is due.
    fn due(&self) -> BootInstant {
        let quiet = doubled(self.tries).min(self.longest);
        let pause = match (self.woken, self.trouble.reason) {
            (false, _) => quiet,
            // A missing object is read, and not written.
            (true, ConditionReason::TargetNotFound) => Duration::ZERO,
            (true, _) => doubled(self.wakes).min(WOKEN).min(quiet),
        };
        self.at + pause
    }
}

fn doubled(times: u32) -> Duration {
    RETRY_TROUBLE.saturating_mul(1 << times.min(10))
}

/// Returns the longest interval between tries; `None` for trouble that ends by itself.
const fn longest(reason: ConditionReason, refused: bool) -> Option<Duration> {
    match reason {
        ConditionReason::TargetNotFound
        | ConditionReason::TargetNotSafe
        | ConditionReason::EnforcementConflict
        | ConditionReason::SelectorInvalid => Some(LONGEST),
        ConditionReason::Forbidden
        | ConditionReason::RequestDenied
        | ConditionReason::KindUnknown
        | ConditionReason::NoScaleSubresource => Some(UNWATCHED),
        ConditionReason::TargetUnreachable if refused => Some(UNWATCHED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;
    use crate::api::lock_status::TargetState;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos((1_000 + seconds) * 1_000_000_000)
    }

    fn trouble(reason: ConditionReason) -> Step {
        Step::trouble(TargetState::Changing, reason, "no".into())
    }

    /// Tries whenever a try is due, over this time, and returns the times of the tries. `changes` reports whether the
    /// watch shows a change in this second.
    fn tries(
        reason: ConditionReason,
        refused: bool,
        seconds: u64,
        changes: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut back_off = BackOff::default();
        let mut tries = Vec::new();
        for second in 0..seconds {
            if changes(second) {
                back_off.wake();
            }
            if back_off.rests(Lane::Start, at(second)).is_none() {
                back_off.add(Lane::Start, &trouble(reason), refused, at(second));
                tries.push(second);
            }
        }
        tries
    }

    #[test]
    fn refused_write_is_repeated_ever_more_seldom() {
        let refused = tries(ConditionReason::TargetNotSafe, true, 3_600, |_| false);
        assert_eq!(refused[..7], [0, 2, 6, 14, 30, 62, 126]);
        assert!(refused.len() < 22, "{refused:?}");
        let forbidden = tries(ConditionReason::Forbidden, true, 600, |_| false);
        assert!(forbidden.windows(2).all(|pair| pair[1] - pair[0] <= 30));
        assert!(forbidden.len() < 26, "{forbidden:?}");
        let unreachable = |refused| tries(ConditionReason::TargetUnreachable, refused, 10, |_| false);
        assert_eq!(unreachable(false).len(), 10, "it ends by itself");
        assert_eq!(unreachable(true), [0, 2, 6]);
    }

    #[test]
    fn only_a_refused_write_of_labels_is_repeated_ever_more_seldom() {
        let mut back_off = BackOff::of(&TargetWork::LabelPods {
            selector: LabelSelector::default(),
        });
        let rests = |back_off: &BackOff, second| back_off.rests(Lane::Start, at(second)).is_some();
        // The answers 403 and 422.
        let (forbidden, invalid) = (ConditionReason::Forbidden, ConditionReason::TargetUnreachable);
        for (reason, second) in [(forbidden, 0), (forbidden, 2), (invalid, 10), (invalid, 12)] {
            back_off.add(Lane::Start, &trouble(reason), true, at(second));
            assert!(rests(&back_off, second + 1), "{reason:?}");
        }
        assert!(rests(&back_off, 15), "the second refusal");
        for reason in [
            ConditionReason::TargetNotSafe,
            ConditionReason::EnforcementConflict,
        ] {
            back_off.add(Lane::Start, &trouble(reason), false, at(16));
            assert!(!rests(&back_off, 16), "the pods may change: {reason:?}");
        }
    }

    #[test]
    fn change_of_the_object_causes_a_try_at_once() {
        for reason in [ConditionReason::TargetNotSafe, ConditionReason::TargetNotFound] {
            let found = tries(reason, false, 300, |second| second == 200);
            assert!(found.contains(&200), "{reason:?} {found:?}");
        }
    }

    #[test]
    fn writes_that_change_their_own_object_are_repeated_seldom() {
        let found = tries(ConditionReason::TargetNotSafe, true, 3_600, |_| true);
        assert!(found.len() < 80, "{}", found.len());
    }

    #[test]
    fn success_another_lane_and_another_reason_begin_anew() {
        let mut back_off = BackOff::default();
        let refused = trouble(ConditionReason::TargetNotSafe);
        let rests = |back_off: &BackOff, lane, second| back_off.rests(lane, at(second)).is_some();
        for second in [0, 2, 6] {
            back_off.add(Lane::Start, &refused, true, at(second));
        }
        assert_eq!(back_off.rests(Lane::Start, at(13)), Some(refused.clone()));
        assert!(!rests(&back_off, Lane::Stop, 13));
        back_off.add(Lane::Start, &trouble(ConditionReason::Forbidden), true, at(14));
        assert!(rests(&back_off, Lane::Start, 15) && !rests(&back_off, Lane::Start, 16));
        back_off.add(Lane::Start, &Step::Done, false, at(16));
        assert!(!rests(&back_off, Lane::Start, 16));
        // The object is switched, but it cannot be followed.
        let unwatched = Step::trouble(TargetState::Active, ConditionReason::Forbidden, "no".into());
        back_off.add(Lane::Start, &unwatched, true, at(17));
        assert!(!rests(&back_off, Lane::Start, 17));
        back_off.add(Lane::Start, &refused, true, at(18));
        back_off.add(Lane::Start, &Step::Working(TargetState::Changing), false, at(18));
        assert!(!rests(&back_off, Lane::Start, 18), "it works");
        back_off.add(Lane::Start, &refused, true, at(18));
        assert!(rests(&back_off, Lane::Start, 21), "the second try");
        back_off.clear();
        assert!(!rests(&back_off, Lane::Start, 21));
    }
}
