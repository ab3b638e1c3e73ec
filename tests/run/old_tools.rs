//! Tests known defects of older tools of this kind, each under its name.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::wrapper::{BOUND, Quorum, SHORT, UNHURRIED, runs, wait_gone};

/// hashicorp/consul#947: `consul lock` had an exit code of its own, not that of the command.
#[test]
fn consul_947_the_exit_code_of_the_command_was_lost() {
    let quorum = Quorum::start();
    for code in [0, 1, 2, 42, 254] {
        assert_eq!(quorum.ran("l", &[], &format!("exit {code}")).0, code);
    }
}

/// hashicorp/consul#2489: a signal other than SIGTERM ended `consul lock`, and left the command running.
#[test]
fn consul_2489_signals_left_the_command_behind() {
    let quorum = Quorum::start();
    for (signal, code) in [
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGUSR1, 138),
    ] {
        let mut wrapper = quorum.run("l", &[], "echo me $$; exec sleep 1000");
        let me = wrapper.number("me");
        wrapper.signal(signal);
        assert_eq!(wrapper.end().0, code, "{signal}");
        assert!(!runs(me), "{signal}");
    }
}

/// hashicorp/consul#2022: processes that the command had started outlived it, and the lock.
#[test]
fn consul_2022_the_commands_children_were_left_behind() {
    let quorum = Quorum::start();
    let script = "sleep 1000 & echo child $!; echo me $$; wait";
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut wrapper = quorum.run("l", &[], script);
        let (child, me) = (wrapper.number("child"), wrapper.number("me"));
        wrapper.signal(signal);
        wrapper.end();
        wait_gone(me);
        wait_gone(child);
        let next = quorum.ran("l", &["-w", "25"], "echo next");
        assert_eq!(next.1, "next", "{signal}: {next:?}");
    }
}

/// hashicorp/consul#9788: the servers were down, others had the lock already, and the command got SIGTERM 90 s later.
#[test]
fn consul_9788_sigterm_arrived_after_others_had_the_lock() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run(
        "l",
        UNHURRIED,
        "trap 'echo told; exit 0' TERM; echo begins; while :; do sleep 0.02; done",
    );
    wrapper.child.wait_for_line(BOUND, "begins");
    let away = Instant::now();
    quorum.pause();
    wrapper.child.wait_for_line(BOUND, "told");
    let took = away.elapsed();
    println!("SIGTERM {took:?} after the masters were away, lease 20 s, of which 10 to stop");
    // The wrapper itself reports the rest of the lease; the clock here only distinguishes 20 s from 90.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let (code, _, err) = wrapper.end();
    assert_eq!(code, 79);
    let left = err
        .split_once("to the command, ")
        .unwrap()
        .1
        .split_once(" s left")
        .unwrap()
        .0;
    assert!(left.parse::<f64>().unwrap() > 0.0, "{err}");
}

/// `etcdctl lock NAME COMMAND` continues the command after its session has ended.
#[test]
fn etcdctl_the_command_continued_without_the_lock() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run(
        "l",
        SHORT,
        "trap '' TERM; echo me $$; while :; do sleep 0.02; done",
    );
    let me = wrapper.number("me");
    quorum.pause();
    wait_gone(me);
    assert_eq!(wrapper.end().0, 79);
}

/// LINBIT/k8s-await-election#2: the process is killed when the lease cannot be renewed, without time to clean up.
#[test]
fn await_election_gave_no_grace() {
    let quorum = Quorum::start();
    let script = "trap 'sleep 0.2; echo cleaned up; exit 0' TERM; echo begins; while :; do sleep 0.02; done";
    let mut wrapper = quorum.run("l", UNHURRIED, script);
    wrapper.child.wait_for_line(BOUND, "begins");
    quorum.pause();
    wrapper.child.wait_for_line(BOUND, "cleaned up");
    assert_eq!(wrapper.end().0, 79);
}
