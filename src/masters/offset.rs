//! A master's clock against the own boot-time clock: `not_after`, and steps.

use std::time::Duration;

use crate::lease::Moment;

/// The least step that is one. The drift of the shortest lease there may be (2 s) is 22 ms; a smaller step fits
/// into the drift of every lease.
const STEP: Duration = Duration::from_millis(22);

/// One reading of a master's TIME: it was read between `sent` and `received`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Microseconds since 1970, by the master.
    pub(crate) master: u64,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
}

impl Sample {
    fn micros(moment: Moment) -> i128 {
        i128::from(moment.as_nanos() / 1_000)
    }

    /// Bounds of the offset (master minus own clock) in microseconds.
    fn bounds(&self) -> (i128, i128) {
        let master = i128::from(self.master);
        (
            master - Self::micros(self.received),
            master - Self::micros(self.sent),
        )
    }
}

/// What is known of one master's clock.
#[derive(Debug)]
pub(crate) struct Offset {
    last: Option<Sample>,
    distrusted_until: Moment,
    /// 1.02 × the longest lease.
    distrust: Duration,
}

impl Offset {
    #[must_use]
    pub(crate) fn new(longest_lease: Duration) -> Self {
        Self {
            last: None,
            distrusted_until: Moment::default(),
            distrust: longest_lease * 102 / 100,
        }
    }

    /// Takes a sample; true if it shows a step since the one before, beyond the round trips of both.
    ///
    /// A sample older than the distrust is no witness: rates that differ within the allowed drift move the offset as
    /// far in that time as a step would, and no lease is left that a step before it could have harmed.
    pub(crate) fn sample(&mut self, sample: Sample) -> bool {
        let before = self.last.replace(sample);
        let Some(before) = before.filter(|b| sample.received.since(b.received) <= self.distrust) else {
            return false;
        };
        let ((low, high), (low_before, high_before)) = (sample.bounds(), before.bounds());
        let moved = (low - high_before).max(low_before - high);
        let stepped = moved > i128::try_from(STEP.as_micros()).unwrap_or(i128::MAX);
        if stepped {
            self.distrusted_until = sample.received + self.distrust;
        }
        stepped
    }

    /// Another server answers from now on: its clock is no witness of a step. A step that was seen still counts.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// How long this master still counts as unknown after a step.
    #[must_use]
    pub(crate) fn distrusted(&self, now: Moment) -> Option<Duration> {
        let left = self.distrusted_until.left(now);
        (!left.is_zero()).then_some(left)
    }

    /// The master's clock at `now`, never later than it really is, plus `deadline`; in microseconds. `None` before
    /// the first sample.
    #[must_use]
    pub(crate) fn not_after(&self, now: Moment, deadline: Duration) -> Option<u64> {
        let last = self.last?;
        let passed = now.since(last.received) + deadline;
        Some(last.master + u64::try_from(passed.as_micros()).unwrap_or(u64::MAX / 2))
    }

    /// Offset against `unix_now` (the own wall clock at `now`) in seconds, for people.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        reason = "microseconds since 1970 fit into 53 bits"
    )]
    pub(crate) fn seconds(&self, now: Moment, unix_now: Duration) -> Option<f64> {
        let last = self.last?;
        let middle = last.sent + last.received.since(last.sent) / 2;
        Some(last.master as f64 / 1e6 + now.since(middle).as_secs_f64() - unix_now.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(master_ms: u64, sent_ms: u64, received_ms: u64) -> Sample {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        Sample {
            master: master_ms * 1_000,
            sent: at(sent_ms),
            received: at(received_ms),
        }
    }

    #[test]
    fn a_step_is_a_change_beyond_both_round_trips() {
        for (first, second, stepped) in [
            (sample(1_000_000, 0, 1), sample(1_001_000, 1_000, 1_001), false),
            (sample(1_000_000, 0, 1), sample(1_001_100, 1_000, 1_001), true),
            (sample(1_000_000, 0, 1), sample(1_000_900, 1_000, 1_001), true),
            (sample(1_000_000, 0, 300), sample(1_000_800, 1_000, 1_001), false),
            (sample(1_000_000, 0, 1), sample(1_001_020, 1_000, 1_001), false),
            // An hour without contact: the rates alone explain it.
            (
                sample(1_000_000, 0, 1),
                sample(4_600_500, 3_600_000, 3_600_001),
                false,
            ),
        ] {
            let mut offset = Offset::new(Duration::from_secs(60));
            assert!(!offset.sample(first));
            assert_eq!(offset.sample(second), stepped, "{first:?} {second:?}");
            assert_eq!(offset.distrusted(second.received).is_some(), stepped);
        }
    }

    #[test]
    fn distrust_lasts_a_little_longer_than_the_longest_lease() {
        let mut offset = Offset::new(Duration::from_secs(60));
        offset.sample(sample(1_000_000, 0, 1));
        offset.sample(sample(2_000_000, 0, 1));
        let end = Moment::from_nanos(1_000_000) + Duration::from_millis(61_200);
        assert!(offset.distrusted(end - Duration::from_nanos(1)).is_some());
        assert!(offset.distrusted(end).is_none());
    }

    #[test]
    fn not_after_never_runs_ahead_of_the_master() {
        let mut offset = Offset::new(Duration::from_secs(60));
        assert_eq!(offset.not_after(Moment::default(), Duration::ZERO), None);
        offset.sample(sample(1_000, 0, 10));
        let now = Moment::from_nanos(20_000_000);
        assert_eq!(
            offset.not_after(now, Duration::from_millis(500)),
            Some((1_000 + 10 + 500) * 1_000)
        );
    }
}
