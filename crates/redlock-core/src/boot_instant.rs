//! Defines a point on the boot-time clock.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// Nanoseconds since the machine booted, including suspend (`CLOCK_BOOTTIME`).
///
/// `std::time::Instant` stops during suspend, whereas a lease continues to run out on the masters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct BootInstant(u64);

impl BootInstant {
    /// The latest possible moment: "never".
    pub const NEVER: Self = Self(u64::MAX);

    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if that is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time until this moment; zero once it has passed.
    #[must_use]
    pub const fn left(self, now: Self) -> Duration {
        self.since(now)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}
