//! Tests `redlock run --once-per`: each slot of a schedule runs once, on one of the hosts.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::program::redlock;
use crate::wrapper::{BOUND, Quorum, SHORT, Wrapper, kill_hard, wait_gone};
use redlock_testkit::{ChildGuard, RedisServer, eventually_blocking};

const META: &str = "redlock:meta";
const SKIP: &[&str] = &["--once-per", "5m"];
const RETRY: &[&str] = &["--once-per", "5m", "--on-crash", "retry"];

fn meta<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let mut connection = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    redis::cmd(words[0])
        .arg(META)
        .arg(&words[1..])
        .query(&mut connection)
        .unwrap()
}

/// Waits until this master shows that a run has claimed a slot of the lock.
pub fn wait_claimed(server: &RedisServer, lock: &str) {
    let field = format!("slot:{lock}/!run");
    eventually_blocking(BOUND, "a slot is claimed", || {
        meta::<Option<String>>(server, &["HGET", &field]).ok_or("none")
    });
}

/// Starts masters that were initialised before all slots of the test.
pub fn old_quorum() -> Quorum {
    let quorum = Quorum::start();
    for server in quorum.servers.iter() {
        let () = meta(server, &["HSET", "slotFloor", "1"]);
    }
    quorum
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs().try_into().unwrap()
}

/// Returns a time at the beginning of a slot of five minutes that is over, as is the next one.
fn past_slot() -> i64 {
    (now() / 300 - 3) * 300
}

/// Returns a run on a host whose clock shows this time.
fn at(quorum: &Quorum, clock: i64, lock: &str, flags: &[&str], script: &str) -> Command {
    let mut command = quorum.command(lock, flags, script);
    command.env("REDLOCK_TEST_CLOCK_OFFSET", (clock - now()).to_string());
    command
}

fn start(command: &mut Command) -> Wrapper {
    Wrapper::of(ChildGuard::spawn("redlock run", command))
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Three hosts have the same line of cron, and the job is shorter than the difference of their clocks: the first host is a
/// minute ahead of the last one, so that it runs a slot while the last one starts the slot before.
fn run_slots_on_three_hosts(on_crash: &str, slots: i64) {
    let quorum = old_quorum();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slots");
    let script = format!("echo $REDLOCK_SLOT >> {}", file.display());
    let flags = ["--once-per", "* * * * *", "--on-crash", on_crash];
    let first = (now() / 60 - slots - 1) * 60;
    for step in 0..=slots {
        let of_hosts = [step, step, step - 1].into_iter();
        let due = of_hosts.filter(|slot| (0..slots).contains(slot));
        let runs: Vec<Wrapper> = due
            .map(|slot| start(&mut at(&quorum, first + slot * 60, "l", &flags, &script)))
            .collect();
        for run in runs {
            let (code, _, err) = run.end();
            assert_eq!(code, 0, "{err}");
        }
    }
    let time = |slot| {
        jiff::Timestamp::from_second(first + slot * 60)
            .unwrap()
            .to_string()
    };
    let wanted: Vec<String> = (0..slots).map(time).collect();
    assert_eq!(lines(&file), wanted, "--on-crash {on_crash}");
}

#[test]
fn three_hosts_run_each_slot_once() {
    for on_crash in ["skip", "retry"] {
        run_slots_on_three_hosts(on_crash, 8);
    }
}

#[test]
#[ignore = "minutes: make prove-run"]
fn three_hosts_run_many_slots_once() {
    let slots = std::env::var("REDLOCK_SLOTS").map_or(200, |slots| slots.parse().unwrap());
    for on_crash in ["skip", "retry"] {
        run_slots_on_three_hosts(on_crash, slots);
        println!("--on-crash {on_crash}: {slots} slots of three hosts, each once");
    }
}

#[test]
fn late_host_ends_at_once_while_the_slot_runs_elsewhere() {
    let quorum = old_quorum();
    let slot = past_slot();
    let flags = [SKIP, &["--identity", "first"]].concat();
    let mut first = start(&mut at(&quorum, slot, "l", &flags, "echo runs; exec sleep 1000"));
    first.child.wait_for_line(BOUND, "runs");
    for (more, code) in [(&[][..], 0), (&["-n"], 0), (&["-w", "60", "-E", "9"], 9)] {
        let began = Instant::now();
        let late = start(&mut at(
            &quorum,
            slot + 30,
            "l",
            &[SKIP, more].concat(),
            "echo no",
        ));
        let (ended, out, err) = late.end();
        assert_eq!((ended, out.as_str()), (code, ""), "{more:?} {err}");
        assert!(
            err.contains("it belongs to the run of first; the command is not run here"),
            "{err}"
        );
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    let quiet = start(&mut at(&quorum, slot, "l", &[SKIP, &["-q"]].concat(), "echo no"));
    assert_eq!(quiet.end(), (0, String::new(), String::new()));
    // A run of another slot waits for the lock like any other run.
    let next = start(&mut at(
        &quorum,
        slot + 300,
        "l",
        &[SKIP, &["-w", "3"]].concat(),
        "echo no",
    ));
    assert_eq!(next.end().0, 75);
    first.signal(Signal::SIGTERM);
    first.end();
    // The register only grows.
    let next = start(&mut at(&quorum, slot + 300, "l", SKIP, "echo next"));
    assert_eq!(next.end().1, "next");
    let late = start(&mut at(&quorum, slot, "l", SKIP, "echo no"));
    let (code, out, err) = late.end();
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("has the later slot"), "{err}");
    let other = start(&mut at(&quorum, slot, "other", SKIP, "echo other"));
    assert_eq!(other.end().1, "other", "another lock has other slots");
}

#[test]
fn slot_of_a_run_that_was_killed_is_skipped_or_repeated() {
    let quorum = old_quorum();
    let slot = past_slot();
    for (flags, code, output) in [(SKIP, 0, ""), (RETRY, 5, "again")] {
        let flags = [SHORT, flags].concat();
        let lock = flags.last().unwrap();
        let mut first = start(&mut at(
            &quorum,
            slot,
            lock,
            &flags,
            "echo me $$; exec sleep 1000",
        ));
        let me = first.number("me");
        kill_hard(first.child.pid().into());
        wait_gone(me);
        let second = start(&mut at(&quorum, slot, lock, &flags, "echo again; exit 5"));
        let (ended, out, err) = second.end();
        assert_eq!((ended, out.as_str()), (code, output), "{err}");
        // The run of the second host has ended, whatever its exit code is.
        let third = start(&mut at(&quorum, slot, lock, &flags, "echo no"));
        let (ended, out, err) = third.end();
        assert_eq!((ended, out.as_str()), (0, ""), "{err}");
        let why = if code == 0 {
            "it belongs to the run of"
        } else {
            "it has run to its end"
        };
        assert!(err.contains(why), "{err}");
    }
}

/// A host that shuts down stops its run, and another one repeats it.
#[test]
fn run_that_a_signal_ended_is_repeated() {
    let quorum = old_quorum();
    let slot = past_slot();
    let mut first = start(&mut at(&quorum, slot, "l", RETRY, "echo runs; exec sleep 1000"));
    first.child.wait_for_line(BOUND, "runs");
    let mut second = start(&mut at(
        &quorum,
        slot,
        "l",
        RETRY,
        "trap 'exit 0' TERM; echo again; while :; do sleep 0.05; done",
    ));
    second.child.wait_for_line(BOUND, "held by");
    first.signal(Signal::SIGTERM);
    assert_eq!(first.end().0, 143);
    second.child.wait_for_line(BOUND, "again");
    // A signal asked it to end, so its success is not that of the whole run.
    second.signal(Signal::SIGTERM);
    assert_eq!(second.end().0, 0);
    let missing = start(&mut at(&quorum, slot, "l", RETRY, "exec /nonexistent/program"));
    assert_eq!(missing.end().0, 127);
    let third = start(&mut at(&quorum, slot, "l", RETRY, "echo once more"));
    assert_eq!(third.end().1, "once more");
    let fourth = start(&mut at(&quorum, slot, "l", RETRY, "echo no"));
    assert_eq!(fourth.end().1, "");
}

/// The kernel kills a command that needs too much memory, and another run repeats it.
#[test]
fn run_whose_command_was_killed_is_repeated() {
    let quorum = old_quorum();
    let slot = past_slot();
    for signal in ["TERM", "KILL"] {
        let killed = format!("echo runs; kill -{signal} 0; sleep 1000");
        let first = start(&mut at(&quorum, slot, signal, RETRY, &killed));
        let (code, out, err) = first.end();
        assert_eq!(out, "runs", "{err}");
        assert!(code > 128, "{code} {err}");
        let second = start(&mut at(&quorum, slot, signal, RETRY, "echo again"));
        assert_eq!(second.end().1, "again");
        let third = start(&mut at(&quorum, slot, signal, RETRY, "echo no"));
        assert_eq!(third.end().1, "");
    }
}

/// One master has another run on record, one does not answer: the slot is neither won nor lost.
#[test]
fn slot_that_the_masters_do_not_decide_runs_nothing() {
    let quorum = old_quorum();
    let slot = past_slot();
    let other = format!("{slot}|7@other");
    let () = meta(&quorum.servers[0], &["HSET", "slot:l/!run", &other]);
    quorum.servers[2].pause().unwrap();
    let run = |flags: &[&str]| start(&mut at(&quorum, slot, "l", &[SKIP, flags].concat(), "echo no")).end();
    let (code, out, err) = run(&["-w", "20"]);
    assert_eq!((code, out.as_str()), (69, ""), "{err}");
    assert!(
        err.contains("a majority has neither granted nor refused it"),
        "{err}"
    );
    quorum.servers[2].resume().unwrap();
}

#[test]
fn lock_is_held_for_a_while_after_a_short_command() {
    let quorum = Quorum::start();
    let began = Instant::now();
    let mut holder = quorum.run("l", &["--hold-at-least", "6s"], "echo ran; exit 3");
    holder.child.wait_for_line(BOUND, "the lock is held for");
    let (code, out, _) = quorum.ran("l", &["-w", "0.5"], "echo no");
    assert_eq!((code, out.as_str()), (75, ""));
    assert_eq!(holder.end().0, 3);
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    quorum.is_free("l");

    let mut holder = quorum.run("l", &["--hold-at-least", "1000s"], "echo ran; exit 4");
    holder.child.wait_for_line(BOUND, "the lock is held for");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().0, 4);
    quorum.is_free("l");
}

#[test]
fn schedule_that_cannot_be_used_is_refused() {
    let quorum = Quorum::start();
    let with = |flags: &[&str]| {
        redlock(&[&["run", "l", "--masters", &quorum.urls], flags, &["--", "true"]].concat())
    };
    with(&["--once-per", "0 2 * *"]).expect(64, &["--once-per", "4 fields"]);
    with(&["--once-per", "daily"]).expect(64, &["daily", "24h"]);
    with(&["--once-per", "5m", "--service"]).expect(64, &["--once-per", "--service"]);
    with(&["--on-crash", "retry"]).expect(64, &["--once-per"]);
    with(&["--once-per", "5m", "--on-crash", "maybe"]).expect(64, &["maybe", "retry, skip"]);
    with(&["--hold-at-least", "1441m"]).expect(64, &["1441m", "1440m"]);
    let mut command = quorum.command("l", &["--once-per", "@daily"], "echo no");
    let (code, _, err) = start(command.env("TZ", "Europe/Atlantis")).end();
    assert_eq!(code, 78, "{err}");
    assert!(
        err.contains("--once-per: TZ \"Europe/Atlantis\" is not a time zone"),
        "{err}"
    );
}

/// Such a slot has not run: the exit code must not be that of a slot that runs elsewhere.
#[test]
fn slot_that_no_run_has_is_a_failure_also_of_a_quiet_run() {
    let quorum = Quorum::start();
    let run = |lock: &str| quorum.ran(lock, &["--once-per", "24h", "-q", "-E", "9"], "echo no");
    // New masters have no record of earlier slots.
    let (code, out, err) = run("l");
    assert_eq!((code, out.as_str()), (81, ""), "{err}");
    assert!(err.contains("no record of slots up to"), "{err}");

    for server in quorum.servers.iter() {
        let () = meta(server, &["HSET", "slotFloor", "1"]);
    }
    for (index, server) in quorum.servers.iter().enumerate() {
        let other = format!("{}|{index}@other", now() / 86_400 * 86_400);
        let () = meta(server, &["HSET", "slot:split/!run", &other]);
        let () = meta(server, &["HSET", "slot:far/!run", "4102444800|7@other"]);
    }
    let (code, out, err) = run("split");
    assert_eq!((code, out.as_str()), (81, ""), "{err}");
    assert!(err.contains("different runs on record"), "{err}");
    let (code, out, err) = run("far");
    assert_eq!((code, out.as_str()), (81, ""), "{err}");
    assert!(
        err.contains("the slot 2100-01-01T00:00:00Z on record, which is ahead of their clocks"),
        "{err}"
    );
    // The documented repair.
    for server in quorum.servers.iter() {
        let () = meta(server, &["HDEL", "slot:far/!run", "slot:far/!ended"]);
    }
    assert_eq!(quorum.ran("far", &["--once-per", "24h"], "echo ran").1, "ran");
}

/// One host whose clock is ahead would otherwise have all slots until the others reach its time.
#[test]
fn slot_ahead_of_the_clocks_of_the_masters_is_not_claimed() {
    let quorum = old_quorum();
    for flags in [SKIP, RETRY] {
        let year = now() + 365 * 86_400;
        let (code, out, err) = start(&mut at(&quorum, year, "l", flags, "echo no")).end();
        assert_eq!((code, out.as_str()), (78, ""), "{err}");
        assert!(
            err.contains("s ahead of the clocks of the masters")
                && err.contains("set the clock of this host"),
            "{err}"
        );
    }
    let right = start(&mut at(&quorum, past_slot(), "l", SKIP, "echo ran"));
    assert_eq!(right.end().1, "ran");
}

/// The claim is decided after the lease of its start would have ended, and that lease was renewed meanwhile.
#[test]
fn run_whose_claim_took_long_begins_under_the_renewed_lease() {
    let quorum = old_quorum();
    let slot = past_slot();
    let other = format!("{slot}|7@other");
    let () = meta(&quorum.servers[0], &["HSET", "slot:l/!run", &other]);
    quorum.servers[2].pause().unwrap();
    let lease = ["--lease-duration", "5s", "--stop-grace", "500ms"];
    let run = start(&mut at(
        &quorum,
        slot,
        "l",
        &[SKIP, &lease].concat(),
        "sleep 1; echo ran",
    ));
    wait_claimed(&quorum.servers[1], "l");
    thread::sleep(Duration::from_millis(4_200));
    quorum.servers[2].resume().unwrap();
    let (code, out, err) = run.end();
    assert_eq!((code, out.as_str()), (0, "ran"), "{err}");
}
