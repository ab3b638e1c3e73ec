//! Clocks that run at a rate of their own.

use redlock::lease::Moment;

const MILLION: i128 = 1_000_000;
pub const MS: u64 = 1_000_000;

/// Reads `offset + time × rate`, in nanoseconds. True time begins at 0 with the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub offset: u64,
    /// Parts per million faster than true time.
    pub ppm: i64,
}

impl Clock {
    pub fn nanos(self, now: u64) -> u64 {
        let run = i128::from(now) * (MILLION + i128::from(self.ppm)) / MILLION;
        self.offset + u64::try_from(run).unwrap()
    }

    pub fn read(self, now: u64) -> Moment {
        Moment::from_nanos(self.nanos(now))
    }

    /// The first true time at which this clock reads `nanos` or more.
    pub fn when(self, nanos: u64) -> u64 {
        let run = i128::from(nanos.saturating_sub(self.offset)) * MILLION;
        let mut now = u64::try_from(run / (MILLION + i128::from(self.ppm))).unwrap_or(u64::MAX / 4);
        // Both ways round down: a step or two at most.
        while self.nanos(now) < nanos && now < u64::MAX / 4 {
            now += 1;
        }
        now
    }
}
