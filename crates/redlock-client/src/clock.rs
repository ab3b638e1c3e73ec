//! Reads the clocks; no other file does.
//!
//! With the feature `virtual`, a simulated world can install virtual clocks for its thread. They exist only in builds
//! with debug assertions: no release build contains them, even with the feature.

mod alarm;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::lease::BootInstant;

pub(crate) use alarm::Alarm;

/// Returns the time of the boot-time clock (P-40), which is monotonic and counts suspend.
#[must_use]
pub fn now() -> BootInstant {
    #[cfg(all(feature = "virtual", debug_assertions))]
    if let Some(now) = virtual_time::now() {
        return now;
    }
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
    #[cfg(all(feature = "virtual", debug_assertions))]
    if let Some(unix_time) = virtual_time::unix_time() {
        return unix_time;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Sleeps until `moment`; returns at once if it has passed. It returns late by the time for which the machine was suspended.
pub async fn sleep_until(moment: BootInstant) {
    tokio::time::sleep(moment.left(now())).await;
}

/// The clocks of a simulated world, which follow the paused clock of the runtime.
#[cfg(all(feature = "virtual", debug_assertions))]
pub mod virtual_time {
    use std::{cell::Cell, marker::PhantomData, time::Duration};

    use tokio::time::Instant;

    use crate::lease::BootInstant;

    /// The boot-time clock of a new world: a value that no duration of a lease can reach.
    const BOOT: Duration = Duration::from_secs(1_000_000);
    /// The wall clock of a new world: 2026-01-01T00:00:00Z.
    const UNIX: Duration = Duration::from_secs(1_767_225_600);

    thread_local! {
        static INSTALLED: Cell<Option<Clocks>> = const { Cell::new(None) };
    }

    #[derive(Clone, Copy)]
    struct Clocks {
        start: Instant,
        /// The wall clock at the start.
        unix: Duration,
    }

    impl Clocks {
        fn passed(self) -> Duration {
            Instant::now().duration_since(self.start)
        }
    }

    /// Virtual clocks of this thread, and random numbers of [`fastrand`] instead of the operating system. Drop
    /// uninstalls them.
    #[derive(Debug)]
    pub struct VirtualTime(PhantomData<*const ()>);

    /// Installs virtual clocks that start now at 2026-01-01T00:00:00Z. Call it on the thread of a runtime with one
    /// thread and a paused clock; all its tasks then read them.
    ///
    /// # Panics
    ///
    /// Panics if virtual clocks are installed on this thread.
    #[must_use]
    pub fn install() -> VirtualTime {
        assert!(
            !is_installed(),
            "virtual clocks are already installed on this thread"
        );
        let clocks = Clocks {
            start: Instant::now(),
            unix: UNIX,
        };
        INSTALLED.set(Some(clocks));
        VirtualTime(PhantomData)
    }

    /// Sets the wall clock to `unix_time`. The boot-time clock does not change.
    pub fn set_unix_time(unix_time: Duration) {
        if let Some(clocks) = INSTALLED.get() {
            let unix = unix_time.saturating_sub(clocks.passed());
            INSTALLED.set(Some(Clocks { unix, ..clocks }));
        }
    }

    /// Returns the time since the clocks were installed; zero without virtual clocks.
    #[must_use]
    pub fn passed() -> Duration {
        INSTALLED.get().map_or(Duration::ZERO, Clocks::passed)
    }

    impl Drop for VirtualTime {
        fn drop(&mut self) {
            INSTALLED.set(None);
        }
    }

    /// Reports whether this thread has virtual clocks.
    #[must_use]
    pub fn is_installed() -> bool {
        INSTALLED.get().is_some()
    }

    pub(super) fn now() -> Option<BootInstant> {
        let passed = INSTALLED.get()?.passed();
        let nanos = u64::try_from((BOOT + passed).as_nanos()).unwrap_or(u64::MAX);
        Some(BootInstant::from_nanos(nanos))
    }

    pub(super) fn unix_time() -> Option<Duration> {
        let clocks = INSTALLED.get()?;
        Some(clocks.unix + clocks.passed())
    }
}

#[cfg(all(test, feature = "virtual"))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_clocks_follow_the_runtime_until_they_are_dropped() {
        let (boot, real) = (now(), unix_time());
        let clocks = virtual_time::install();
        let (begun, unix) = (now(), unix_time());
        sleep_until(begun + Duration::from_secs(3_600)).await;
        assert_eq!(now().since(begun), Duration::from_secs(3_600));
        assert_eq!(unix_time() - unix, Duration::from_secs(3_600));
        virtual_time::set_unix_time(unix);
        assert_eq!(
            (unix_time(), virtual_time::passed()),
            (unix, Duration::from_secs(3_600))
        );
        drop(clocks);
        assert!(now().since(boot) < Duration::from_secs(60));
        assert!(unix_time().abs_diff(real) < Duration::from_secs(60));
    }
}
