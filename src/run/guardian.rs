//! The guardian: kills a process group, and the cgroup of a contained command, at its deadline and when the wrapper is gone.
//!
//! The guardian is a process with its own session, without a runtime and without threads. It follows only the
//! wrapper and the clock: a signal to the command, a closed terminal and Ctrl-C do not reach it.
//!
//! Its standard input is a pipe that the wrapper alone can write to. Each byte asks the guardian to read the
//! record again; the end of the pipe is the end of the wrapper. The guardian writes each byte to the standard
//! output once it has read the record. The record itself takes the place of the standard error. The argument
//! is the cgroup, if there is one.

use std::{ffi::OsString, fs, io, os::fd::AsFd, process::ExitCode, thread, time::Duration};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, killpg},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    unistd,
};
use redlock_node::cgroup::Cgroup;
use rustix::process::setpriority_process;

use super::record::{Order, Record};
use crate::{clock, lease::BootInstant};

/// The time between two kills of a group after its deadline: a process that joined it meanwhile dies, too.
const AGAIN: Duration = Duration::from_millis(20);
/// The time between two kills of a cgroup that is to be removed: the first kill leaves processes that wait for a
/// device, and those that were moved into the cgroup since.
const CLEAR_AGAIN: Duration = Duration::from_secs(1);
/// The nice value with the highest priority.
const FIRST: i32 = -20;
/// The last of the three file descriptors that the guardian is given.
const LAST_OWN: i32 = 2;

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match guard(arguments.next()) {
        Ok(()) => ExitCode::SUCCESS,
        // No process reads the reason. The wrapper sees the end and starts another guardian.
        Err(_) => ExitCode::FAILURE,
    }
}

fn guard(cgroup: Option<OsString>) -> io::Result<()> {
    SigSet::all().thread_block()?;
    // This process leads no group yet, so this cannot fail. If it did, the command would still have another
    // group.
    let _ = unistd::setsid();
    let _ = prctl::set_name(c"redlock-guard");
    // The current folder and the inherited files would keep file systems busy and pipes open.
    let _ = std::env::set_current_dir("/");
    close_inherited();
    take_precedence();
    let record = Record::of(io::stderr().as_fd().try_clone_to_owned()?);
    let cgroup = cgroup.map(|path| Cgroup::open(path.into())).transpose();
    Guardian::new(record, cgroup.map_err(io::Error::other)?)?.run(&io::stdin(), &io::stdout())
}

/// Closes the inherited files: a reader that waits for the end of a pipe must not wait for this process.
fn close_inherited() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > LAST_OWN) {
        // The folder that was read is among them, and is closed already.
        let _ = unistd::close(number);
    }
}

/// Raises the priority of this process, if its user may do so: root, or a user with RLIMIT_NICE. A guardian
/// that waits for the CPU kills late, and the group may write meanwhile.
fn take_precedence() {
    let _ = setpriority_process(None, FIRST);
    // If the kernel gives each session a share of the CPU, the priority counts within the session alone.
    let _ = fs::write("/proc/self/autogroup", FIRST.to_string());
}

struct Guardian {
    record: Record,
    timer: TimerFd,
    /// The order that was read last. A record that cannot be read counts as unchanged.
    order: Option<Order>,
    /// The cgroup of a contained command.
    cgroup: Option<Cgroup>,
}

impl Guardian {
    fn new(record: Record, cgroup: Option<Cgroup>) -> io::Result<Self> {
        // Counts the time for which the machine is suspended, as the lease does.
        let timer = TimerFd::new(
            ClockId::CLOCK_BOOTTIME,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )?;
        let order = record.read()?;
        Ok(Self {
            record,
            timer,
            order,
            cgroup,
        })
    }

    /// Returns when the wrapper is gone and the group was killed. A guardian that fails kills the group, too:
    /// the wrapper may be unable to start another one.
    fn run(mut self, life: &impl AsFd, answers: &impl AsFd) -> io::Result<()> {
        let end = self.follow(life, answers);
        self.read();
        if let Some(order) = self.order {
            self.kill(order);
        }
        // Without an order the command has not begun, or all its processes have ended.
        if let Some(cgroup) = &self.cgroup
            && (end.is_ok() || is_closed(life))
        {
            clear(cgroup);
        }
        end
    }

    /// Enforces the deadline until the wrapper is gone.
    fn follow(&mut self, life: &impl AsFd, answers: &impl AsFd) -> io::Result<()> {
        let mut asked = [0; 64];
        loop {
            self.read();
            self.keep_deadline()?;
            let mut events = [
                PollFd::new(life.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut events, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            if events[0].revents().is_none_or(|life| life.is_empty()) {
                continue;
            }
            let bytes = unistd::read(life.as_fd(), &mut asked)?;
            if bytes == 0 {
                return Ok(());
            }
            // The timer is set before the answer.
            self.read();
            self.keep_deadline()?;
            unistd::write(answers.as_fd(), &asked[..bytes])?;
        }
    }

    fn read(&mut self) {
        if let Ok(order) = self.record.read() {
            self.order = order;
        }
    }

    /// Kills the group if its deadline has passed, and sets the timer for the deadline or the next kill.
    fn keep_deadline(&self) -> io::Result<()> {
        let Some(order) = self.order else {
            return Ok(self.timer.unset()?);
        };
        let now = clock::now();
        let wake = if now < order.kill_at {
            order.kill_at
        } else {
            self.kill(order);
            now + AGAIN
        };
        let expiration = Expiration::OneShot(time(wake));
        Ok(self.timer.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }

    /// Kills the group. The wrapper does not reap its leader while the record names it: its number is not
    /// reused.
    fn kill(&self, order: Order) {
        let _ = killpg(order.group, Signal::SIGKILL);
        // The kernel changes one cgroup at a time, so this call may wait for others.
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.kill();
        }
    }
}

fn time(moment: BootInstant) -> TimeSpec {
    TimeSpec::from_duration(moment.since(BootInstant::default()))
}

/// Reports whether the wrapper is gone, even if the guardian failed before it could read that.
fn is_closed(life: &impl AsFd) -> bool {
    let mut events = [PollFd::new(life.as_fd(), PollFlags::POLLIN)];
    let polled = poll(&mut events, PollTimeout::ZERO);
    polled.is_ok()
        && events[0]
            .revents()
            .is_some_and(|life| life.contains(PollFlags::POLLHUP))
}

/// Kills the cgroup until it is empty and can be removed. The wrapper may have removed it before.
fn clear(cgroup: &Cgroup) {
    loop {
        let _ = cgroup.kill();
        let empty = cgroup.is_empty_within(CLEAR_AGAIN);
        // An empty cgroup that cannot be removed is left.
        if cgroup.remove().is_ok() || matches!(empty, Ok(true)) {
            return;
        }
        if empty.is_err() {
            thread::sleep(CLEAR_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::process::{CommandExt, ExitStatusExt},
        process::Command,
    };

    use nix::unistd::Pid;
    use redlock_testkit::eventually_blocking;

    use super::*;

    const BOUND: Duration = Duration::from_secs(10);

    #[test]
    fn a_guardian_kills_the_group_of_a_wrapper_that_dies_before_the_answer() {
        let member = Command::new("sleep").arg("60").process_group(0).spawn();
        let mut member = member.unwrap();
        let record = Record::new().unwrap();
        let order = Order {
            group: Pid::from_raw(i32::try_from(member.id()).unwrap()),
            kill_at: clock::now() + Duration::from_secs(1000),
        };
        record.write(Some(order)).unwrap();
        let guardian = Guardian::new(record, None).unwrap();
        // The wrapper asked and was then killed: its ends of both pipes are closed.
        let (life, mut asks) = io::pipe().unwrap();
        asks.write_all(&[0]).unwrap();
        drop(asks);
        let (reads, answers) = io::pipe().unwrap();
        drop(reads);

        let _ = guardian.run(&life, &answers);
        let ended = eventually_blocking(BOUND, "the group is killed", || {
            member.try_wait().unwrap().ok_or("the member runs")
        });
        assert_eq!(ended.signal(), Some(Signal::SIGKILL as i32));
    }
}
