//! Tests a lost lease: the command ends before the lease does.

use std::time::Instant;

use nix::sys::signal::Signal;

use crate::program::redlock_until;
use crate::wrapper::{BOUND, Quorum, SHORT, Through, UNHURRIED, Wrapper, runs, send, wait_gone};
use redlock_testkit::{Mode, eventually_blocking};

#[test]
fn the_command_is_signalled_in_time_and_the_code_is_79() {
    let quorum = Quorum::start();
    let script = "trap 'echo told; sleep 0.1; echo cleaned up; exit 0' TERM; echo begins; while :; do sleep 0.05; done";
    let mut wrapper = quorum.run("l", UNHURRIED, script);
    wrapper.child.wait_for_line(BOUND, "begins");
    quorum.pause();
    let (code, out, err) = wrapper.end();
    assert_eq!((code, out.as_str()), (79, "begins\ntold\ncleaned up"), "{err}");
    assert!(err.contains("lease lost: SIGTERM to the command, "), "{err}");
    assert!(
        err.contains("redlock: lock l: the lease was lost and the command stopped"),
        "{err}"
    );
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_with_all_of_its_group() {
    let quorum = Quorum::start();
    let script = "trap '' INT TERM; sleep 1000 & echo other $!; echo me $$; sleep 1000; sleep 1000";
    let flags = [SHORT, &["--stop-signal", "int"]].concat();
    let mut wrapper = quorum.run("l", &flags, script);
    let (other, me) = (wrapper.number("other"), wrapper.number("me"));
    let paused = Instant::now();
    quorum.pause();
    wait_gone(me);
    println!("killed {:?} after the masters froze, lease 8 s", paused.elapsed());
    wait_gone(other);
    assert_eq!(wrapper.end().0, 79);
}

/// A stopped command can still obey the stop signal.
#[test]
fn stopped_command_is_signalled_and_ends() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", SHORT, "echo me $$; while :; do sleep 0.05; done");
    let me = wrapper.number("me");
    send(me, Signal::SIGSTOP);
    quorum.pause();
    let (code, _, err) = wrapper.end();
    assert_eq!(code, 79, "{err}");
    assert!(!runs(me));
}

#[test]
fn a_broken_lock_stops_its_holder() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", SHORT, "echo begins; exec sleep 1000");
    wrapper.child.wait_for_line(BOUND, "begins");
    let arguments = [
        "break",
        "l",
        "--yes",
        "--reason",
        "test",
        "--masters",
        &quorum.urls,
    ];
    redlock_until(&arguments, 0, &[]);
    assert_eq!(wrapper.end().0, 79);
    assert_eq!(quorum.ran("l", &["-w", "10"], "echo no").0, 75, "nobody enters");
}

/// The command has ended by itself; a process that it left ends its grace after the lease is lost.
#[test]
fn command_that_ended_before_the_loss_keeps_its_exit_code() {
    let quorum = Quorum::start();
    for (script, code) in [("exit 0", 0), ("exit 6", 6)] {
        let left = "(trap 'echo asked' TERM; echo left; while :; do sleep 0.05; done) &";
        let script = format!("{left} read line; {script}");
        let mut command = quorum.command("l", UNHURRIED, &script);
        let child = redlock_testkit::ChildGuard::spawn_with_input("redlock run", &mut command);
        let mut wrapper = Wrapper::of(child);
        wrapper.child.wait_for_line(BOUND, "left");
        wrapper.child.send_line("");
        wrapper.child.wait_for_line(BOUND, "asked");
        quorum.pause();
        let (ended, _, err) = wrapper.end();
        assert_eq!(ended, code, "{err}");
        quorum.resume();
        quorum.is_free("l");
    }
}

#[test]
fn a_service_begins_anew_with_a_greater_token() {
    let quorum = Quorum::start();
    let script = "trap 'exit 4' USR1; echo token $REDLOCK_TOKEN; echo pid $$; while :; do sleep 0.05; done";
    let flags = [SHORT, &["--service"]].concat();
    let mut wrapper = quorum.run("l", &flags, script);
    let (token, first) = (wrapper.number("token"), wrapper.number("pid"));
    quorum.pause();
    wrapper.child.wait_for_line(BOUND, "is started again");
    assert!(!runs(first));
    quorum.resume();
    let again = eventually_blocking(BOUND, "the command is started again", || {
        let lines = wrapper.child.stdout();
        let tokens = lines.iter().filter_map(|line| line.strip_prefix("token "));
        let tokens: Vec<i64> = tokens.map(|token| token.parse().unwrap()).collect();
        tokens.get(1).copied().ok_or(lines)
    });
    assert!(again > token, "{token} {again}");
    // The exit code is that of the command.
    wrapper.signal(Signal::SIGUSR1);
    assert_eq!(wrapper.end().0, 4);
}

/// A grace period that no test waits out.
const LONG_GRACE: &[&str] = &["--lease-duration", "60s", "--stop-grace", "40s"];
const IGNORES: &str = "trap 'echo told' TERM; echo me $$; while :; do sleep 0.05; done";
/// The seconds by which the masters' clocks are ahead after the clock of this machine was paused.
const PAUSED: u64 = 90;

/// Asserts that the command is killed long before the end of its grace.
fn killed_at_once(through: &Through, wrapper: Wrapper, me: i64) {
    let stepped = Instant::now();
    through.set(Mode::Ahead(PAUSED));
    wait_gone(me);
    println!(
        "killed {:?} after the clock stepped, grace 40 s",
        stepped.elapsed()
    );
    assert!(stepped.elapsed() < BOUND);
    assert_eq!(wrapper.end().0, 79);
}

#[test]
fn a_clock_that_stood_still_under_the_lease_leaves_no_grace() {
    let (through, quorum) = Through::start();
    let mut wrapper = quorum.run("l", LONG_GRACE, IGNORES);
    let me = wrapper.number("me");
    killed_at_once(&through, wrapper, me);
}

/// The lease was lost for another reason, and the machine was paused in the grace.
#[test]
fn a_clock_that_stood_still_in_the_grace_ends_it() {
    let (through, quorum) = Through::start();
    let mut wrapper = quorum.run("l", LONG_GRACE, IGNORES);
    let me = wrapper.number("me");
    through.set(Mode::LoseReplies);
    wrapper.child.wait_for_line(BOUND, "told");
    assert!(runs(me));
    killed_at_once(&through, wrapper, me);
}
