//! Measures how long running targets have been unready.

use std::time::Duration;

use crate::lease::{BootInstant, FencingToken};

/// The shortest and the longest interval between polls of pods.
const OFTEN: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(5);

/// The readiness of a target's running pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodsReady {
    Ready,
    Unready,
    /// The target has no pods that could be ready.
    NotApplicable,
    /// The API server does not answer.
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Readiness {
    since: Option<(FencingToken, BootInstant)>,
    /// Whether the targets have been unready for longer than the lock allows, and still are.
    pub(super) too_long: bool,
}

impl Readiness {
    /// Resets the measurement, because no target is to run.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Records a poll of every target that runs under this lease. Returns when the next poll is due.
    pub(super) fn take(
        &mut self,
        found: &[PodsReady],
        token: FencingToken,
        after: Duration,
        now: BootInstant,
    ) -> BootInstant {
        self.since.take_if(|(of, _)| *of != token);
        if found.contains(&PodsReady::Unready) {
            self.since.get_or_insert((token, now));
        } else if !found.contains(&PodsReady::Unknown) {
            self.since = None;
        }
        let due = self.since.map(|(_, since)| since + after);
        self.too_long = due.is_some_and(|due| due <= now) && found.contains(&PodsReady::Unready);
        let poll = now + (after / 4).clamp(OFTEN, SELDOM);
        due.filter(|due| *due > now).map_or(poll, |due| due.min(poll))
    }
}

#[cfg(test)]
mod tests {
    use super::{PodsReady::*, *};

    #[test]
    fn only_a_target_that_is_unready_all_the_time_is_unready_for_too_long() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let after = Duration::from_secs(10);
        let mut readiness = Readiness::default();
        for (now, token, found, too_long) in [
            (0, 1, Unready, false),
            (9, 1, Unready, false),
            (10, 1, Unready, true),
            (11, 1, Unknown, false),
            (12, 1, Unready, true),
            (13, 1, Ready, false),
            (20, 1, Unready, false),
            (29, 1, Unknown, false),
            // Under a new lease the targets may just have been started.
            (31, 2, Unready, false),
            (40, 2, NotApplicable, false),
            (50, 2, Unready, false),
            (60, 2, Unready, true),
        ] {
            let next = readiness.take(&[NotApplicable, found], FencingToken(token), after, at(now));
            assert_eq!(readiness.too_long, too_long, "at {now}");
            assert!(next > at(now) && next <= at(now) + SELDOM);
        }
        readiness.forget();
        assert!(!readiness.too_long);
    }
}
