//! The wall clock of a master.

use tokio::time::Instant;

/// A clock that may be too fast, and that can be stepped.
#[derive(Debug)]
pub(super) struct Clock {
    /// The microseconds since 1970 at `since`.
    base: i64,
    since: Instant,
    parts_per_million: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let unix = redlock_client::clock::unix_time();
        Self {
            base: i64::try_from(unix.as_micros()).unwrap(),
            since: Instant::now(),
            parts_per_million: 0,
        }
    }

    pub(super) fn microseconds(&self) -> u64 {
        u64::try_from(self.read()).unwrap_or(0)
    }

    fn read(&self) -> i64 {
        let passed = i64::try_from(self.since.elapsed().as_micros()).unwrap();
        let ahead = i128::from(passed) * i128::from(self.parts_per_million) / 1_000_000;
        self.base + passed + i64::try_from(ahead).unwrap()
    }

    pub(super) fn step(&mut self, microseconds: i64) {
        self.base += microseconds;
    }

    pub(super) fn set_drift(&mut self, parts_per_million: i64) {
        self.base = self.read();
        self.since = Instant::now();
        self.parts_per_million = parts_per_million;
    }
}
