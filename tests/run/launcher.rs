//! Tests that a launcher that ends before the command begins is replaced: the command has not run, and the lock is held.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redlock_testkit::eventually_blocking;

use crate::common::processes;
use crate::once_per::{old_quorum, wait_claimed};
use crate::wrapper::{BOUND, Quorum, SHORT, Wrapper, kill_hard, send};

/// Starts a run that waits for the lock of `holder`; returns the runs and the launcher.
fn waiting(quorum: &Quorum, flags: &[&str]) -> (Wrapper, Wrapper, i64) {
    let mut holder = quorum.run("l", &[], "echo holds; exec sleep 1000");
    holder.child.wait_for_line(BOUND, "holds");
    let mut waiting = quorum.run("l", flags, "echo began; exit 5");
    waiting.child.wait_for_line(BOUND, "held by");
    let wrapper = i32::try_from(waiting.child.pid()).unwrap();
    let launcher = eventually_blocking(BOUND, "a launcher", || {
        processes::commands(wrapper, "redlock-launcher")
            .next()
            .ok_or("none")
    });
    (holder, waiting, launcher.into())
}

/// Stops the launcher, and waits until it has stopped: until then, a later signal may arrive first.
fn freeze(launcher: i64) {
    send(launcher, Signal::SIGSTOP);
    eventually_blocking(BOUND, "the launcher stands still", || {
        let stat = fs::read_to_string(format!("/proc/{launcher}/stat")).unwrap();
        if stat.contains(") T ") { Ok(()) } else { Err(stat) }
    });
}

/// Sends a signal to the launcher, which the wrapper may have ended.
fn send_if_there(launcher: i64, signal: Signal) {
    let _ = kill(Pid::from_raw(launcher.try_into().unwrap()), signal);
}

#[test]
fn launcher_that_is_killed_before_the_command_is_replaced() {
    let quorum = Quorum::start();
    let (holder, waiting, launcher) = waiting(&quorum, &[]);
    kill_hard(launcher);
    holder.signal(Signal::SIGTERM);
    let (code, out, err) = waiting.end();
    assert_eq!((code, out.as_str()), (5, "began"), "{err}");
}

#[test]
fn run_that_is_asked_to_end_starts_no_other_launcher() {
    let quorum = Quorum::start();
    for then in [Signal::SIGCONT, Signal::SIGKILL] {
        let (holder, mut waiting, launcher) = waiting(&quorum, &[]);
        freeze(launcher);
        holder.signal(Signal::SIGTERM);
        waiting.child.wait_for_line(BOUND, "acquired");
        waiting.signal(Signal::SIGTERM);
        eventually_blocking(BOUND, "SIGTERM is passed on", || {
            // The launcher is killed if the signal came before the guardian answered.
            let Ok(status) = fs::read_to_string(format!("/proc/{launcher}/status")) else {
                return Ok(());
            };
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
            let bit = 1 << (Signal::SIGTERM as i32 - 1);
            if pending & bit != 0 { Ok(()) } else { Err(status) }
        });
        send_if_there(launcher, then);
        let (code, out, err) = waiting.end();
        assert_eq!((code, out.as_str()), (143, ""), "{then}: {err}");
    }
}

/// Acts like a terminal: the group of the launcher gets the signal, and the wrapper does not.
#[test]
fn launcher_that_is_interrupted_ends_the_run() {
    let quorum = Quorum::start();
    let (holder, waiting, launcher) = waiting(&quorum, &[]);
    send(launcher, Signal::SIGINT);
    holder.signal(Signal::SIGTERM);
    let (code, out, err) = waiting.end();
    assert_eq!((code, out.as_str()), (130, ""), "{err}");
}

/// The launcher does not begin after the end of the lease of its request, even if that lease was renewed.
#[test]
fn launcher_that_was_stopped_beyond_the_lease_is_replaced() {
    let quorum = Quorum::start();
    let (holder, mut waiting, launcher) = waiting(&quorum, &["--lease-duration", "6s", "--service"]);
    freeze(launcher);
    holder.signal(Signal::SIGTERM);
    waiting.child.wait_for_line(BOUND, "acquired");
    // The lease lasts 6 s, and is renewed during the wait. A service survives its loss.
    thread::sleep(Duration::from_secs(6));
    send_if_there(launcher, Signal::SIGCONT);
    let (code, out, err) = waiting.end();
    assert_eq!((code, out.as_str()), (5, "began"), "{err}");
}

/// No other run can have the slot of a run that claimed it.
#[test]
fn run_that_claimed_its_slot_begins_under_a_later_lease() {
    let quorum = old_quorum();
    let flags = [SHORT, &["--once-per", "24h"]].concat();
    let (holder, mut waiting, launcher) = waiting(&quorum, &flags);
    freeze(launcher);
    holder.signal(Signal::SIGTERM);
    quorum.servers.iter().for_each(|server| wait_claimed(server, "l"));
    thread::sleep(Duration::from_millis(500));
    quorum.pause();
    waiting
        .child
        .wait_for_line(BOUND, "the lease ended before the command began");
    quorum.resume();
    let (code, out, err) = waiting.end();
    assert_eq!((code, out.as_str()), (5, "began"), "{err}");
}
