//! Tracks since when a lock's targets have been stopping, and the deadline of the stop. Pure.

use std::time::Duration;

use super::{RETRY, goal::Goal};
use crate::{api::lock_status::TargetState, lease::BootInstant};

/// Timeout of a step, so that a slow API server does not delay the reaction to the end of a lease: the next step reads
/// again.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of the last steps before a deadline.
const SHORTEST: Duration = Duration::from_millis(500);
/// The longest interval between polls of pods that end slowly: a thousand of them must not cause a thousand
/// polls every [`RETRY`].
const SELDOM: Duration = Duration::from_secs(1);

/// The deadline of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    None,
    /// The end of the targets' stop time.
    StopTime(BootInstant),
    /// The time after which another cluster may begin.
    Promised(BootInstant),
}

impl Deadline {
    pub(super) const fn at(self) -> Option<BootInstant> {
        match self {
            Self::None => None,
            Self::StopTime(by) | Self::Promised(by) => Some(by),
        }
    }

    pub(super) const fn is_promised(self) -> bool {
        matches!(self, Self::Promised(_))
    }
}

#[derive(Debug, Default)]
pub(super) struct Stopping {
    /// The time since which the targets have been stopping.
    since: Option<BootInstant>,
    /// The time since which they have been stopping without a deadline.
    unbounded_since: Option<BootInstant>,
}

impl Stopping {
    /// Follows the present goal.
    pub(super) fn follow(&mut self, goal: Goal) {
        if goal != Goal::Stop(None) {
            self.unbounded_since = None;
        }
        if !matches!(goal, Goal::Stop(_)) {
            self.since = None;
        }
    }

    /// Returns the deadline of a stop. If the start of another cluster is not known, a target gets its declared stop
    /// time, counted from the first attempt: the grace period of its pods may have any length.
    pub(super) fn deadline(&mut self, by: Option<BootInstant>, stop: Duration, now: BootInstant) -> Deadline {
        self.since.get_or_insert(now);
        by.map_or_else(
            || Deadline::StopTime(*self.unbounded_since.get_or_insert(now) + stop),
            Deadline::Promised,
        )
    }

    /// Returns how long stopping targets are left alone: an eighth of the elapsed time, and less towards the deadline.
    pub(super) fn pause(&self, by: BootInstant, now: BootInstant) -> Duration {
        let since = self.since.unwrap_or(now);
        (now.since(since).min(by.left(now)) / 8).clamp(RETRY, SELDOM)
    }

    /// Records that all targets have stopped.
    pub(super) fn finish(&mut self) {
        *self = Self::default();
    }
}

/// Reports whether a stop bypasses the rate limit: a target known to run must not wait, unless another writer
/// repeatedly starts it.
pub(super) fn is_urgent(deadline: Deadline, observed: TargetState, contested: bool) -> bool {
    let runs = matches!(observed, TargetState::Active | TargetState::Changing);
    deadline.is_promised() || (runs && !contested)
}

/// Returns the timeout of a step of a stop. The last steps are short, so that a hanging step is retried in time.
pub(super) fn step_limit(until: Option<BootInstant>, now: BootInstant) -> Duration {
    until.map_or(PATIENCE, |by| (by.left(now) / 2).clamp(SHORTEST, PATIENCE))
}

#[cfg(test)]
mod tests {
    use TargetState::{Active, Changing, Standby, Unknown};

    use super::*;

    const STOP: Duration = Duration::from_secs(35);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_stop_without_a_bound_ends_its_stop_time_after_the_first_try() {
        let mut stopping = Stopping::default();
        let first = Deadline::StopTime(at(135));
        stopping.follow(Goal::Stop(None));
        assert_eq!(stopping.deadline(None, STOP, at(100)), first);
        stopping.follow(Goal::Stop(None));
        assert_eq!(stopping.deadline(None, STOP, at(120)), first, "not anew");
        for goal in [Goal::Run, Goal::Keep(None), Goal::Stop(Some(at(130)))] {
            stopping.follow(goal);
            let again = stopping.deadline(None, STOP, at(120));
            assert_eq!(again, Deadline::StopTime(at(155)), "{goal:?} came between");
            stopping.finish();
            stopping.deadline(None, STOP, at(100));
        }
    }

    #[test]
    fn a_bound_that_another_cluster_relies_upon_stays_as_it_is() {
        let deadline = Stopping::default().deadline(Some(at(110)), STOP, at(100));
        assert_eq!(deadline, Deadline::Promised(at(110)));
        assert!(deadline.is_promised() && deadline.at() == Some(at(110)));
    }

    #[test]
    fn pods_that_stop_are_polled_less_often_in_the_middle_of_their_time() {
        let mut stopping = Stopping::default();
        stopping.deadline(Some(at(140)), STOP, at(100));
        for (now, pause) in [
            (100, RETRY),
            (104, RETRY * 2),
            (120, SELDOM),
            (136, RETRY * 2),
            (140, RETRY),
        ] {
            assert_eq!(stopping.pause(at(140), at(now)), pause, "at {now}");
        }
    }

    #[test]
    fn a_stop_waits_for_its_turn_unless_the_target_runs_or_another_cluster_may_begin() {
        for deadline in [Deadline::None, Deadline::StopTime(at(9))] {
            for (observed, contested, urgent) in [
                (Active, false, true),
                (Changing, false, true),
                (Active, true, false),
                (Standby, false, false),
                (Unknown, false, false),
            ] {
                assert_eq!(is_urgent(deadline, observed, contested), urgent, "{observed:?}");
            }
        }
        assert!(is_urgent(Deadline::Promised(at(9)), Unknown, true));
    }

    #[test]
    fn a_step_towards_a_deadline_leaves_time_for_another_try() {
        assert_eq!(step_limit(None, at(0)), PATIENCE);
        for (left, limit) in [(60, PATIENCE), (4, Duration::from_secs(2)), (0, SHORTEST)] {
            assert_eq!(step_limit(Some(at(100 + left)), at(100)), limit, "{left} s left");
        }
        assert_eq!(step_limit(Some(at(90)), at(100)), SHORTEST, "late");
    }
}
