//! Reads the clocks; no other file does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::lease::BootInstant;

/// Returns the time of the boot-time clock, which is monotonic and counts suspend.
#[must_use]
pub fn now() -> BootInstant {
    // CLOCK_BOOTTIME exists since Linux 2.6.39 and takes a valid pointer here, so this cannot fail there. If it did,
    // "never" would end every lease at once, which is the safe side.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(BootInstant::NEVER, |t| {
        let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(t.tv_nsec()).unwrap_or(0);
        BootInstant::from_nanos(seconds * 1_000_000_000 + nanos)
    })
}

/// Returns the time since 1970. Used for display and for the floor of the counter after a total loss; no other decision
/// depends on it.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Sleeps until `moment`; returns at once if it has passed.
pub async fn sleep_until(moment: BootInstant) {
    tokio::time::sleep(moment.left(now())).await;
}
