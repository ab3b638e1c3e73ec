//! Reads the state of processes, and sends signals to them.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::common::processes::{command_line, guardians};

/// Sends the signal; a process that has ended is ignored.
pub fn send(pid: i32, signal: Signal) {
    let _ = signal::kill(Pid::from_raw(pid), signal);
}

/// Returns the guardian of a wrapper if it is alive.
pub fn guardian(wrapper: i32) -> Option<i32> {
    guardians(wrapper).next()
}

/// Returns the time for which a process was ready to run and did not, since its start: the second number of
/// its `schedstat`.
pub fn waited(pid: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanos = text.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Sends SIGKILL if the process still belongs to the work of this program.
pub fn kill_work(pid: i32) {
    let program = std::env::current_exe().unwrap();
    if command_line(pid).is_some_and(|line| line.contains(&*program.to_string_lossy())) {
        send(pid, Signal::SIGKILL);
    }
}
