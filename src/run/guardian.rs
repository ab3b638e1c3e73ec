//! The guardian: kills a process group at its deadline, and when the wrapper is gone.
//!
//! A process and a session of its own, without a runtime and without threads. It does nothing else, and listens to
//! nothing but the wrapper and the clock: a signal for the work, a terminal that closes and Ctrl-C do not reach it.
//!
//! Its standard input is the wrapper's life, a pipe that the wrapper alone can write to. Each byte asks it to read the
//! record again; the end of it is the end of the wrapper. To the standard output goes a byte for each time that the
//! record was read because of one, and in the place of the standard error is the record.

use std::{fs, io, os::fd::AsFd, process::ExitCode, time::Duration};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, killpg},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    unistd,
};

use super::record::{Order, Record};
use crate::{clock, lease::BootInstant};

/// Between two kills of a group whose deadline has passed: one that joined it meanwhile dies, too.
const AGAIN: Duration = Duration::from_millis(20);
/// The last of the three that it was given.
const LAST_OWN: i32 = 2;

pub(super) fn main() -> ExitCode {
    match guard() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell. The wrapper sees the end and starts another one.
        Err(_) => ExitCode::FAILURE,
    }
}

fn guard() -> io::Result<()> {
    SigSet::all().thread_block()?;
    // It leads no group yet, so this cannot fail; and if it did, the group of the work is another one all the same.
    let _ = unistd::setsid();
    let _ = prctl::set_name(c"redlock-guard");
    // What is mounted here may be unmounted, and what the wrapper inherited may be closed.
    let _ = std::env::set_current_dir("/");
    close_inherited();
    Guardian::new()?.run()
}

/// Whoever waits for the end of a pipe must not wait for this process.
fn close_inherited() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > LAST_OWN) {
        // The folder that was read is among them, and closed by now.
        let _ = unistd::close(number);
    }
}

struct Guardian {
    record: Record,
    timer: TimerFd,
    /// As it was last read. A record that cannot be read is one that has not moved.
    order: Option<Order>,
}

impl Guardian {
    fn new() -> io::Result<Self> {
        let record = Record::of(io::stderr().as_fd().try_clone_to_owned()?);
        // Counts the time of a suspended machine, as the lease does.
        let timer = TimerFd::new(
            ClockId::CLOCK_BOOTTIME,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )?;
        let order = record.read()?;
        Ok(Self { record, timer, order })
    }

    fn run(mut self) -> io::Result<()> {
        let (life, answers) = (io::stdin(), io::stdout());
        let mut asked = [0; 64];
        loop {
            self.read();
            self.keep_deadline()?;
            let mut events = [
                PollFd::new(life.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            ];
            poll(&mut events, PollTimeout::NONE)?;
            if events[0].revents().is_none_or(|life| life.is_empty()) {
                continue;
            }
            let bytes = unistd::read(life.as_fd(), &mut asked)?;
            self.read();
            if bytes == 0 {
                if let Some(order) = self.order {
                    kill(order);
                }
                return Ok(());
            }
            // Armed before it is said to be.
            self.keep_deadline()?;
            unistd::write(answers.as_fd(), &asked[..bytes])?;
        }
    }

    fn read(&mut self) {
        if let Ok(order) = self.record.read() {
            self.order = order;
        }
    }

    /// Kills what is overdue, and sets the timer for what is not.
    fn keep_deadline(&self) -> io::Result<()> {
        let Some(order) = self.order else {
            return Ok(self.timer.unset()?);
        };
        let now = clock::now();
        let wake = if now < order.kill_at {
            order.kill_at
        } else {
            kill(order);
            now + AGAIN
        };
        let expiration = Expiration::OneShot(time(wake));
        Ok(self.timer.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

fn time(moment: BootInstant) -> TimeSpec {
    TimeSpec::from_duration(moment.since(BootInstant::default()))
}

/// The wrapper leaves the leader of the group unreaped for as long as the record names it: the number is no other's.
fn kill(order: Order) {
    let _ = killpg(order.group, Signal::SIGKILL);
}
