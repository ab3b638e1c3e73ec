//! Tests that signals reach the command.

use nix::sys::signal::Signal;

use crate::wrapper::{BOUND, Quorum};

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
