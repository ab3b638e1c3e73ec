//! Tracks since when a lock's targets have been stopping, and the deadline of the stop. Pure.

use std::time::Duration;

use super::{RETRY, goal::Goal};
use crate::lease::BootInstant;

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

#[cfg(test)]
mod tests {
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
}
