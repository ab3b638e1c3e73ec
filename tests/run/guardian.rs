//! Tests that the guardian acts when the wrapper cannot.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redlock_testkit::eventually_blocking;

use crate::wrapper::{BOUND, Quorum, SHORT, Wrapper, kill_hard, runs, send, wait_gone};

const GROUP: &str =
    "trap '' TERM; (trap '' TERM; exec sleep 1000) & echo daemon $!; echo me $$; sleep 1000; sleep 1000";

#[test]
fn a_frozen_wrapper_does_not_keep_the_command_alive() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", SHORT, GROUP);
    let (daemon, me) = (wrapper.number("daemon"), wrapper.number("me"));
    let frozen = Instant::now();
    wrapper.signal(Signal::SIGSTOP);
    wait_gone(me);
    wait_gone(daemon);
    println!("killed {:?} after the wrapper froze, lease 8 s", frozen.elapsed());
    // The next client has the lock, and the wrapper reports the loss when it continues.
    assert_eq!(quorum.ran("l", &["-w", "20"], "echo next").1, "next");
    wrapper.signal(Signal::SIGCONT);
    assert_eq!(wrapper.end().0, 79);
}

#[test]
fn a_killed_wrapper_takes_the_group_with_it() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", &["--lease-duration", "60s"], GROUP);
    let (daemon, me, guardian) = (
        wrapper.number("daemon"),
        wrapper.number("me"),
        wrapper.guardian(0),
    );
    let killed = Instant::now();
    wrapper.child.kill();
    wait_gone(me);
    wait_gone(daemon);
    println!("killed {:?} after the wrapper, lease 60 s", killed.elapsed());
    assert!(killed.elapsed() < BOUND);
    wait_gone(guardian);
}

/// The command ends with the wrapper, even without the guardian.
#[test]
fn wrapper_and_guardian_killed_at_once_leave_no_command() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", &["--lease-duration", "60s"], GROUP);
    let (daemon, me) = (wrapper.number("daemon"), wrapper.number("me"));
    // A wrapper that runs replaces a guardian that is stopped for half a second.
    wrapper.child.freeze();
    let guardian = wrapper.guardian(0);
    send(guardian, Signal::SIGSTOP);
    wrapper.child.kill();
    kill_hard(guardian);
    wait_gone(me);
    assert!(runs(daemon), "documented: nobody is left who knows of it");
    kill_hard(daemon);
}

/// Returns a guardian that has answered: the wrapper replaces one that does not answer within half a second.
fn settled(wrapper: &Wrapper, not: i64) -> i64 {
    eventually_blocking(BOUND, "a guardian that stays", || {
        let found = wrapper.guardian(not);
        thread::sleep(Duration::from_secs(1));
        let now = wrapper.guardian(not);
        if now == found {
            Ok(found)
        } else {
            Err((found, now))
        }
    })
}

#[test]
fn a_killed_guardian_is_replaced_and_the_new_one_guards() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", &["--lease-duration", "20s", "--stop-grace", "1s"], GROUP);
    let (daemon, me) = (wrapper.number("daemon"), wrapper.number("me"));
    let mut guardian = 0;
    for _ in 0..3 {
        guardian = settled(&wrapper, guardian);
        kill_hard(guardian);
    }
    settled(&wrapper, guardian);
    assert!(runs(me) && runs(daemon), "no guardian's end is the command's");
    // A frozen wrapper does not replace the guardian.
    wrapper.child.freeze();
    let last = wrapper.guardian(guardian);
    for asked in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTSTP] {
        send(last, asked);
    }
    // The lease of 20 s has not run out yet.
    assert!(runs(me) && runs(daemon), "a signal to the guardian ends nothing");
    wait_gone(me);
    wait_gone(daemon);
    assert!(runs(last), "it is deaf to signals");
    wrapper.signal(Signal::SIGCONT);
    assert_eq!(wrapper.end().0, 79);
    wait_gone(last);
}

/// Signals interrupt the wrapper continuously, and it still counts the guardians that it failed to start.
#[test]
fn a_guardian_that_cannot_be_replaced_ends_the_command_amid_signals() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", &["--lease-duration", "60s"], GROUP);
    let (daemon, me) = (wrapper.number("daemon"), wrapper.number("me"));
    let guardian = wrapper.guardian(0);
    allow_no_second_pipe(wrapper.child.pid());
    kill_hard(guardian);
    eventually_blocking(BOUND, "the command ends", || {
        wrapper.signal(Signal::SIGWINCH);
        if runs(me) || runs(daemon) {
            Err("it runs")
        } else {
            Ok(())
        }
    });
    let (code, _, err) = wrapper.end();
    assert_eq!(code, 70, "{err}");
    assert!(err.contains("the guardian cannot be kept running"), "{err}");
}

/// Limits the process to one more open file than now. A guardian takes two pipes, and returns one of them when it
/// ends. A search of `/proc` takes two files.
fn allow_no_second_pipe(pid: u32) {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<u32> = open
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let limit = (0..).filter(|number| !open.contains(number)).nth(1).unwrap();
    let limited = Command::new("prlimit")
        .args([&format!("--nofile={limit}:{limit}"), "--pid", &pid.to_string()])
        .status();
    assert!(limited.expect("prlimit, of util-linux, runs").success());
}

/// The wrapper has a file for `/proc` and none for the processes in it: remaining processes of the command may run.
#[test]
fn remaining_process_that_cannot_be_searched_for_does_not_outlive_the_lock() {
    let quorum = Quorum::start();
    let script =
        "(trap '' TERM; exec sleep 1000 > /dev/null 2>&1) & echo daemon $!; echo me $$; exec sleep 1000";
    let mut wrapper = quorum.run("l", &["--lease-duration", "15s", "--stop-grace", "2s"], script);
    let (daemon, me) = (wrapper.number("daemon"), wrapper.number("me"));
    wrapper.guardian(0);
    allow_no_second_pipe(wrapper.child.pid());
    kill_hard(me);
    let (code, _, err) = wrapper.end();
    // The lock is left to run out. A killed process ends when the kernel has a CPU for the process.
    wait_gone(daemon);
    assert_eq!(code, 70, "{err}");
    assert!(err.contains("searching for the remaining processes"), "{err}");
}

/// The priority is as high as the user may raise it. A guardian that waits for the CPU kills late.
#[test]
fn the_guardian_runs_before_other_processes() {
    let quorum = Quorum::start();
    let wrapper = quorum.run("l", &[], "exec sleep 1000");
    // The same request by another process of this user.
    let renice = Command::new("sh")
        .args(["-c", "renice -n -20 $$ >&2; cat /proc/$$/stat"])
        .output()
        .unwrap();
    let allowed = niceness(&String::from_utf8_lossy(&renice.stdout));
    let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A guardian has its name before its priority, and one that gets no CPU is replaced.
    eventually_blocking(BOUND, "the priority of the guardian", || {
        let stat = stat(&wrapper.guardian(0).to_string()).map_err(|error| error.to_string())?;
        if niceness(&stat) == allowed {
            Ok(())
        } else {
            Err(stat)
        }
    });
    let of = |pid: &str| niceness(&stat(pid).unwrap());
    let [wrapper, own] = [wrapper.child.pid(), std::process::id()].map(|pid| of(&pid.to_string()));
    assert_eq!(wrapper, own, "the priority is the guardian's alone");
}

/// Returns the niceness in the text of `/proc/<pid>/stat`.
fn niceness(stat: &str) -> i32 {
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(16).unwrap().parse().unwrap()
}

/// Between the lock and the command there is a launcher: a wrapper that is killed there has started no command.
#[test]
fn a_wrapper_that_is_killed_while_it_waits_leaves_nothing() {
    let quorum = Quorum::start();
    let mut holder = quorum.run("l", &[], "echo holds; exec sleep 1000");
    holder.child.wait_for_line(BOUND, "holds");
    let mut waiting = quorum.run("l", &[], "echo began");
    waiting.child.wait_for_line(BOUND, "held by");
    let guardian = waiting.guardian(0);
    waiting.child.kill();
    wait_gone(guardian);
    // The launcher held the pipes: their end shows that the launcher has ended.
    let (_, out, _) = waiting.end();
    assert_eq!(out, "");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().0, 143);
}
