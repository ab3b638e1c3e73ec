//! Waits for a moment of the boot-time clock or for one of several files.

use std::{io, os::fd::AsFd, time::Duration};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};
use redlock_core::BootInstant;

/// A timer that counts the time during which the machine is suspended, as a permit does.
#[derive(Debug)]
pub(crate) struct Waker(TimerFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?))
    }

    /// Waits until `moment`, or until a file can be read. Returns which files can be read.
    pub(crate) fn wait<const N: usize>(
        &self,
        moment: BootInstant,
        files: [Option<&dyn AsFd>; N],
    ) -> io::Result<[bool; N]> {
        // Zero would disarm the timer.
        let at = moment.since(BootInstant::default()).max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(at));
        self.0.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        let mut polled = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let given = files.iter().flatten();
        polled.extend(given.map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)));
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = polled
            .iter()
            .skip(1)
            .map(|file| file.revents().is_some_and(|events| !events.is_empty()));
        Ok(files.map(|file| file.is_some() && ready.next().unwrap_or_default()))
    }
}
