//! Tests that signals reach the command.

use nix::sys::signal::Signal;

use crate::wrapper::{BOUND, Quorum, SHORT};
use redlock_testkit::eventually_blocking;

#[test]
fn every_signal_is_passed_on_once() {
    let quorum = Quorum::start();
    let names = [
        "HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "WINCH", "ALRM", "CONT", "URG", "IO", "PWR",
    ];
    let traps: String = names
        .iter()
        .map(|name| format!("trap 'echo got {name}' {name}; "))
        .collect();
    let mut wrapper = quorum.run(
        "l",
        &[],
        &format!("{traps} echo ready; while :; do sleep 0.02; done"),
    );
    wrapper.child.wait_for_line(BOUND, "ready");
    for name in names {
        wrapper.signal(format!("SIG{name}").parse().unwrap());
        wrapper.child.wait_for_line(BOUND, &format!("got {name}"));
    }
    let lines = wrapper.child.stdout();
    assert_eq!(lines.len(), names.len() + 1, "{lines:?}");
}

/// The lease is renewed however long the command takes to end, and a second signal does not change that.
#[test]
fn a_command_that_is_asked_to_end_takes_its_time_under_the_lease() {
    let quorum = Quorum::start();
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = format!(
        "trap 'echo asked' TERM; trap '' INT; echo ready; until [ -e {} ]; do sleep 0.2; done; exit 5",
        done.display()
    );
    let mut wrapper = quorum.run("l", &["--lease-duration", "15s", "--stop-grace", "2s"], &script);
    wrapper.child.wait_for_line(BOUND, "ready");
    wrapper.signal(Signal::SIGTERM);
    wrapper.child.wait_for_line(BOUND, "asked");
    wrapper.signal(Signal::SIGTERM);
    wrapper.signal(Signal::SIGINT);
    // The wait is longer than a lease.
    let second = quorum.ran("l", &["-w", "17"], "echo no");
    assert_eq!(second.0, 75, "{second:?}");
    std::fs::write(&done, "").unwrap();
    let (code, out, err) = wrapper.end();
    assert_eq!(code, 5, "{out} {err}");
    assert!(!err.contains("lost"), "{err}");
    // The wait is shorter than the rest of a lease that is not released.
    assert_eq!(quorum.ran("l", &["-w", "8"], "echo free").1, "free");
}

#[test]
fn a_service_that_is_asked_to_end_does_not_begin_anew() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run(
        "l",
        &["--service"],
        "trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done",
    );
    wrapper.child.wait_for_line(BOUND, "ready");
    wrapper.signal(Signal::SIGTERM);
    assert_eq!(wrapper.end().0, 6);
}

/// Container runtimes send SIGRTMIN+3 where the image requests it.
#[test]
fn real_time_signal_asks_the_command_to_end() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run(
        "l",
        &[],
        "trap 'echo asked; exit 6' TERM; echo ready; while :; do sleep 0.05; done",
    );
    wrapper.child.wait_for_line(BOUND, "ready");
    let pid = wrapper.child.pid().to_string();
    let number = (nix::libc::SIGRTMIN() + 3).to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", &number, &pid])
        .status();
    assert!(sent.expect("kill of procps or util-linux").success());
    let (code, out, err) = wrapper.end();
    assert_eq!((code, out.as_str()), (6, "ready\nasked"), "{err}");
}

/// A service handles SIGHUP, such as to read its configuration again.
#[test]
fn service_that_handled_a_hangup_begins_anew_after_a_lost_lease() {
    let quorum = Quorum::start();
    let script = "trap 'echo handled' HUP QUIT; echo ready; while :; do sleep 0.05; done";
    let mut wrapper = quorum.run("l", &[SHORT, &["--service"]].concat(), script);
    wrapper.child.wait_for_line(BOUND, "ready");
    for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
        let before = wrapper.child.stdout().len();
        wrapper.signal(signal);
        eventually_blocking(BOUND, "the command handles the signal", || {
            let lines = wrapper.child.stdout();
            if lines.len() > before { Ok(()) } else { Err(lines) }
        });
    }
    quorum.pause();
    wrapper.child.wait_for_line(BOUND, "is started again");
    // SIGTERM ends it, also after a hangup.
    wrapper.signal(Signal::SIGTERM);
    assert_eq!(wrapper.end().0, 143);
    quorum.resume();
}

/// A standby has no command yet that could handle the signal.
#[test]
fn service_that_waits_does_not_end_at_a_hangup() {
    let quorum = Quorum::start();
    let mut holder = quorum.run("l", &[], "echo holds; exec sleep 1000");
    holder.child.wait_for_line(BOUND, "holds");
    let mut waiting = quorum.run("l", &["--service"], "echo begins; exit 5");
    waiting.child.wait_for_line(BOUND, "held by");
    for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
        waiting.signal(signal);
    }
    // The signals arrive before the lock is released.
    std::thread::sleep(std::time::Duration::from_secs(1));
    holder.signal(Signal::SIGTERM);
    let (code, out, err) = waiting.end();
    assert_eq!((code, out.as_str()), (5, "begins"), "{err}");

    let mut holder = quorum.run("l", &[], "echo holds; exec sleep 1000");
    holder.child.wait_for_line(BOUND, "holds");
    let mut waiting = quorum.run("l", &["--service"], "echo no");
    waiting.child.wait_for_line(BOUND, "held by");
    waiting.signal(Signal::SIGHUP);
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.end().0, 143);
}

/// Signals are ignored as with `nohup`, or with a shell that starts the command in the background.
#[test]
fn ignored_signals_stay_ignored() {
    let quorum = Quorum::start();
    let script = "grep SigIgn /proc/$$/status; kill -HUP $PPID; kill -INT $$; echo alive";
    let sh = ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh"];
    let mut command = quorum.command_by(&sh, "l", &[], script);
    let child = redlock_testkit::ChildGuard::spawn("nohup", &mut command);
    let (code, out, _) = crate::wrapper::Wrapper::of(child).end();
    assert_eq!(code, 0);
    assert!(out.contains("alive"), "{out}");
    let mask = out.split_whitespace().nth(1).unwrap();
    assert_eq!(u64::from_str_radix(mask, 16).unwrap() & 0b11, 0b11, "{out}");
}
