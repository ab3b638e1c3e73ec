//! Defines the fencing token, and authority as a value with an end.

use std::fmt;

use super::BootInstant;

/// The strictly increasing number that comes with every grant.
///
/// Pass it to every resource that can check it: only the token makes a holder that was paused past its lease
/// harmless. Redlock alone cannot (Kleppmann, "How to do distributed locking", 2016).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct FencingToken(pub u64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The right to act for a lock, until `valid_until`: a value with an end, not a flag (P-41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    pub token: FencingToken,
    pub valid_until: BootInstant,
}

impl Authority {
    /// Returns this authority if it is still valid at `now`.
    ///
    /// Call it after the last `await` before a write: an earlier result may have ended since (P-41, S4).
    #[must_use]
    pub fn at(self, now: BootInstant) -> Option<Self> {
        (now < self.valid_until).then_some(self)
    }
}
