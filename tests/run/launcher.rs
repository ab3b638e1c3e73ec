//! Tests that a launcher that ends before the command begins is replaced: the command has not run, and the lock is held.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use redlock_testkit::eventually_blocking;

use crate::common::processes;
use crate::wrapper::{BOUND, Quorum, SHORT, Wrapper, kill_hard, send};

/// A run that waits for the lock of `holder`, and its launcher.
fn waiting(quorum: &Quorum, flags: &[&str]) -> (Wrapper, Wrapper, i64) {
    let mut holder = quorum.run("l", &[], "echo holds; exec sleep 1000");
    holder.child.wait_for_line(BOUND, "holds");
    let mut waiting = quorum.run("l", flags, "echo began; exit 5");
    waiting.child.wait_for_line(BOUND, "held by");
    let wrapper = i32::try_from(waiting.child.pid()).unwrap();
    let launcher = eventually_blocking(BOUND, "a launcher", || {
        processes::commands(wrapper, "redlock-stage").next().ok_or("none")
    });
    (holder, waiting, launcher.into())
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

/// It refuses to begin after the end of the lease under which it was asked, whether or not that lease was renewed.
#[test]
fn launcher_that_was_stopped_beyond_the_lease_is_replaced() {
    let quorum = Quorum::start();
    let (holder, mut waiting, launcher) = waiting(&quorum, SHORT);
    send(launcher, Signal::SIGSTOP);
    holder.signal(Signal::SIGTERM);
    waiting.child.wait_for_line(BOUND, "acquired");
    // The lease lasts 2 s, and is renewed meanwhile.
    thread::sleep(Duration::from_secs(2));
    send(launcher, Signal::SIGCONT);
    let (code, out, err) = waiting.end();
    assert_eq!((code, out.as_str()), (5, "began"), "{err}");
}
