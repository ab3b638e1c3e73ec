//! Decides when a failed request about one object is retried.

use std::time::Duration;

use crate::lease::BootInstant;

/// The shortest wait, for an API server that was unavailable only for a moment.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest wait. A request that fails for longer needs a person to act.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// The maximum number of doublings; further doublings would exceed every bound.
const DOUBLINGS: u32 = 16;

/// Exponential backoff with jitter. The wait doubles with each failure and is spread over its second half, so that many
/// objects that failed together are not retried together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<BootInstant>,
}

impl Backoff {
    /// Records a failure. Returns the time of the next attempt, at most `longest` from now. `jitter` is a
    /// random number from 0 to 1.
    pub(super) fn fail(&mut self, longest: Duration, now: BootInstant, jitter: f64) -> BootInstant {
        let wait = (SHORTEST * 2)
            .saturating_mul(1 << self.failures.min(DOUBLINGS))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        let until = now + wait.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        self.until = Some(until);
        until
    }

    /// Returns the number of failures since the last reset.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Reports whether the request may be retried now.
    pub(super) fn is_over(&self, now: BootInstant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_up_to_its_bound_and_starts_again_after_a_success() {
        let now = BootInstant::from_nanos(1_000_000_000);
        let mut backoff = Backoff::default();
        let mut waits = |jitter| -> Vec<u64> {
            backoff.reset();
            assert!(backoff.is_over(now));
            let waits = (0..10).map(|_| backoff.fail(LONGEST, now, jitter).left(now).as_millis());
            waits.map(|wait| u64::try_from(wait).unwrap()).collect()
        };
        let bound = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(waits(0.0), bound);
        assert_eq!(waits(1.0), bound.map(|wait| wait * 2));
        let mut often = Backoff::default();
        let until = (0..1_000).map(|_| often.fail(LONGEST, now, 1.0)).last();
        assert_eq!(until, Some(now + LONGEST));
        assert!(!often.is_over(now) && often.is_over(now + LONGEST));
    }
}
