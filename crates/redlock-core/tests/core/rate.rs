//! Models clocks that run at different rates.

use redlock_core::BootInstant;

/// Nanoseconds of true time.
pub(crate) type Instant = u64;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// A clock that shows `offset` at the beginning and gains `parts_per_million`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) offset: u64,
    pub(crate) parts_per_million: i64,
}

impl Rate {
    pub(crate) fn nanos(&self, at: Instant) -> u64 {
        let shown = i128::from(at) * i128::from(1_000_000 + self.parts_per_million) / 1_000_000;
        self.offset + u64::try_from(shown).unwrap()
    }

    /// Returns the time by which the clock advances in this time.
    pub(crate) fn gained(&self, nanos: u64) -> u64 {
        let shown = i128::from(nanos) * i128::from(1_000_000 + self.parts_per_million) / 1_000_000;
        u64::try_from(shown).unwrap()
    }

    pub(crate) fn moment(&self, at: Instant) -> BootInstant {
        BootInstant::from_nanos(self.nanos(at))
    }

    /// Returns the first instant at which the clock shows `moment` or later.
    pub(crate) fn instant(&self, moment: BootInstant) -> Instant {
        let shown = i128::from(moment.as_nanos().saturating_sub(self.offset));
        let rate = i128::from(1_000_000 + self.parts_per_million);
        u64::try_from((shown * 1_000_000 + rate - 1) / rate).unwrap_or(u64::MAX / 2)
    }
}
