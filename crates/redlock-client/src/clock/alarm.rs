//! An alarm of the boot-time clock.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::now;
use crate::lease::BootInstant;

/// A timer of the kernel on `CLOCK_BOOTTIME`.
#[derive(Debug)]
struct BootTimer(TimerFd);

impl BootTimer {
    // The function is deprecated because a type may close the file that it names. This type owns its file, and the
    // replacement needs `unsafe`.
    #[allow(deprecated)]
    fn open() -> io::Result<AsyncFd<Self>> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = Self(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?);
        AsyncFd::with_interest(timer, Interest::READABLE)
    }

    fn arm(&self, moment: BootInstant) -> io::Result<()> {
        let at = moment.since(BootInstant::default());
        let once = Expiration::OneShot(TimeSpec::from_duration(at));
        Ok(self.0.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

impl AsRawFd for BootTimer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Wakes a task at moments of the boot-time clock. The timers of the runtime stand still while the machine is suspended,
/// and fire late by that time. An alarm that was due meanwhile fires as soon as the machine resumes
/// (P-40).
#[derive(Debug)]
pub(crate) struct Alarm {
    /// `None` under virtual clocks, and where the kernel gives no timer.
    timer: Option<AsyncFd<BootTimer>>,
    /// The moment at which the timer fires.
    armed: BootInstant,
}

impl Alarm {
    /// Opens the timer. Call it in a task of a runtime that has its I/O driver enabled, unless virtual clocks are installed.
    pub(crate) fn open() -> Self {
        #[cfg(all(feature = "virtual", debug_assertions))]
        if super::virtual_time::is_installed() {
            return Self {
                timer: None,
                armed: BootInstant::NEVER,
            };
        }
        let timer = BootTimer::open().inspect_err(|error| {
            tracing::warn!(
                %error,
                "cannot open a timer of the boot-time clock: timers fire late after the machine was suspended"
            );
        });
        Self {
            timer: timer.ok(),
            armed: BootInstant::NEVER,
        }
    }

    /// Sleeps until `moment`; returns at once if it has passed.
    pub(crate) async fn sleep_until(&mut self, moment: BootInstant) {
        if self.sleep_by_timer(moment).await.is_err() {
            super::sleep_until(moment).await;
        }
    }

    async fn sleep_by_timer(&mut self, moment: BootInstant) -> io::Result<()> {
        let timer = self.timer.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        while now() < moment {
            // To arm the timer for each turn costs more than to wake once too early.
            if moment < self.armed {
                timer.get_ref().arm(moment)?;
                self.armed = moment;
            }
            timer.readable().await?.clear_ready();
            self.armed = BootInstant::NEVER;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    /// Returns what the kernel shows of the timer.
    fn shown(alarm: &Alarm) -> String {
        let timer = alarm.timer.as_ref().unwrap().as_raw_fd();
        fs::read_to_string(format!("/proc/self/fdinfo/{timer}")).unwrap()
    }

    /// The kernel counts the time of a suspend on this clock, which no test can suspend.
    #[tokio::test]
    async fn an_alarm_is_a_timer_of_the_boot_time_clock() {
        let mut alarm = Alarm::open();
        let soon = now() + Duration::from_millis(20);
        alarm.sleep_until(soon).await;
        assert!(now() >= soon);
        let shown = shown(&alarm);
        assert!(shown.contains("clockid: 7"), "{shown}");
        assert!(shown.contains("settime flags: 01"), "an absolute time: {shown}");
    }

    #[tokio::test]
    async fn an_alarm_wakes_at_each_moment_whatever_it_waited_for_before() {
        let mut alarm = Alarm::open();
        // A wait that is given up for an earlier moment, and one that is given up for a later one.
        for (given_up, slept) in [(60_000, 20), (10_000, 40), (500, 1_000)] {
            let begun = now();
            let at = |ms| begun + Duration::from_millis(ms);
            tokio::select! {
                biased;
                () = alarm.sleep_until(at(given_up)) => panic!("{given_up} ms"),
                () = std::future::ready(()) => {}
            }
            alarm.sleep_until(at(slept)).await;
            assert!(now() >= at(slept), "{slept} ms");
            assert!(now() < at(60_000));
            alarm.sleep_until(begun).await;
        }
    }

    #[cfg(feature = "virtual")]
    #[tokio::test(start_paused = true)]
    async fn an_alarm_follows_virtual_clocks() {
        let _clocks = crate::clock::virtual_time::install();
        let begun = now();
        Alarm::open()
            .sleep_until(begun + Duration::from_secs(3_600))
            .await;
        assert_eq!(now().since(begun), Duration::from_secs(3_600));
    }
}
