//! Tests a wait while another client has the lock.

use std::process::Command;

use crate::program::{init, redlock, redlock_until, redlock_until_with, redlock_with, urls};
use crate::wrapper::{BOUND, Quorum, SHORT, Through};
use nix::sys::signal::Signal;
use redlock_testkit::{ChildGuard, Mode, RedisServer, RedisServers, ServerOptions, eventually_blocking};

const HOLDS: &str = "echo holds; exec sleep 1000";
const LONG: &[&str] = &["--lease-duration", "60s"];

#[test]
fn refusal_without_waiting_has_its_exit_code() {
    let quorum = Quorum::start();
    let mut holder = quorum.run("l", &[LONG, &["--identity", "somebody"]].concat(), HOLDS);
    holder.child.wait_for_line(BOUND, "holds");
    assert_eq!(quorum.refused("l", &["-n"]), (75, String::new(), String::new()));
    assert_eq!(quorum.refused("l", &["--nonblock", "-E", "3"]).0, 3);
    assert_eq!(quorum.refused("l", &["-w", "0"]).0, 75);
    let (code, out, err) = quorum.ran("l", &["-w", "10", "-E", "1"], "echo no");
    assert_eq!((code, out.as_str()), (1, ""));
    let (_, most) = err
        .split_once("redlock: lock l: held by somebody for at most ")
        .unwrap_or_else(|| panic!("{err}"));
    let most: f64 = most.split(' ').next().unwrap().parse().unwrap();
    assert!(most > 0.0 && most <= 60.0, "{err}");
    assert_eq!(quorum.ran("l", &["-w", "5", "-q"], "echo no").2, "", "quiet");
    quorum.is_free("other");
}

#[test]
fn waiting_command_begins_when_the_holder_has_ended() {
    let quorum = Quorum::start();
    let script = "trap 'exit 0' TERM; echo token $REDLOCK_TOKEN; while :; do sleep 0.05; done";
    let mut holder = quorum.run("l", &[], script);
    let first = holder.number("token");
    let mut waiting = quorum.run("l", &["-w", "60"], "echo token $REDLOCK_TOKEN");
    waiting.child.wait_for_line(BOUND, "held by ");
    holder.signal(Signal::SIGTERM);
    let second = waiting.number("token");
    assert!(first < second);
    let (code, _, err) = waiting.end();
    assert_eq!(code, 0);
    assert!(err.contains("acquired, token"), "{err}");
    assert_eq!(holder.end().0, 0);
}

/// No command was started, and nothing remains: the next client gets the lock at once.
#[test]
fn a_signal_ends_the_wait() {
    let quorum = Quorum::start();
    let mut holder = quorum.run("l", LONG, HOLDS);
    holder.child.wait_for_line(BOUND, "holds");
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        let mut waiting = quorum.run("l", LONG, "echo no");
        waiting.child.wait_for_line(BOUND, "held by");
        waiting.signal(signal);
        let (ended, out, _) = waiting.end();
        assert_eq!((ended, out.as_str()), (code, ""));
    }
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().0, 143);
    quorum.is_free("l");
}

#[test]
fn without_a_quorum_it_does_not_begin() {
    let quorum = Quorum::start();
    quorum.servers[0].kill();
    quorum.servers[1].kill();
    let no_quorum = ["no majority of the masters answers", "m0 (redis://127.0.0.1:"];
    let with = |flags: &[&str]| {
        let arguments = [
            &["run", "l", "--masters", &quorum.urls],
            flags,
            &["--", "echo", "no"],
        ];
        redlock(&arguments.concat())
    };
    with(&[]).expect(69, &no_quorum);
    with(&["-n", "-E", "3"]).expect(69, &no_quorum);
    with(&["-w", "0.2", "-E", "3"]).expect(69, &["lock l: no quorum"]);
}

/// The first connection to each master leads nowhere, and the answers on it never come.
#[test]
fn run_that_does_not_wait_asks_again_after_a_late_answer() {
    let (through, quorum) = Through::start();
    for flags in [&["-n"][..], &["-w", "0"]] {
        through.set(Mode::BlackHole);
        let before = through.accepted();
        let run = quorum.run("l", flags, "echo ran");
        eventually_blocking(BOUND, "a connection to each master", || {
            let accepted = through.accepted();
            let each = accepted.iter().zip(&before).all(|(now, before)| now > before);
            if each { Ok(()) } else { Err(accepted) }
        });
        through.strand();
        let (code, out, err) = run.end();
        assert_eq!((code, out.as_str()), (0, "ran"), "{flags:?} {err}");
    }
}

#[test]
fn masters_that_are_away_are_waited_for_by_a_service() {
    let quorum = Quorum::start();
    quorum.pause();
    let mut service = quorum.run("l", &["--service"], "echo begins");
    service.child.wait_for_line(BOUND, "no quorum: m0 (redis://");
    quorum.resume();
    service.child.wait_for_line(BOUND, "begins");
    assert_eq!(service.end().0, 0);
}

/// Bare urls do not name the longest lease, so `redlock run` without another source does not seal masters without
/// memory.
#[test]
fn masters_that_carry_no_fingerprint_are_left_alone() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = urls(&servers);
    let run = |flags: &[&str], texts: &[&str]| {
        let arguments = [&["run", "l", "--masters", &urls], flags, &["--", "echo", "no"]];
        redlock_until(&arguments.concat(), 69, texts);
    };
    run(&[], &["no master carries a fingerprint: run `redlock init`"]);
    run(&["-w", "1.5"], &[]);
    let mut service = ChildGuard::spawn(
        "service",
        Command::new(env!("CARGO_BIN_EXE_redlock"))
            .args([
                "run",
                "l",
                "--service",
                "--masters",
                &urls,
                "--",
                "echo",
                "begins",
            ])
            .env_remove("REDLOCK_MASTERS"),
    );
    service.wait_for_line(BOUND, "run `redlock init`");
    init(&servers, &[], &[]);
    service.wait_for_line(BOUND, "begins");
    assert!(service.wait(BOUND).0.success());
}

#[test]
fn a_majority_that_lost_its_memory_is_waited_for_by_a_service() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = urls(&servers);
    let quorum = Quorum { servers, urls };
    init(&quorum.servers, &["--max-lease-duration", "10s"], &[]);
    let mut holder = quorum.run("other", &[SHORT, &["--service"]].concat(), HOLDS);
    holder.child.wait_for_line(BOUND, "holds");
    let flush = |server: &RedisServer| {
        let mut connection = redis::Client::open(server.url())
            .unwrap()
            .get_connection()
            .unwrap();
        redis::cmd("FLUSHALL").query::<()>(&mut connection).unwrap();
    };
    // The holder knows the fingerprint, and would seal the masters again before the others have read them.
    holder.child.freeze();
    quorum.servers[..2].iter().for_each(flush);
    let forgotten = [
        "fewer than a majority of the masters carry a fingerprint",
        "never sealed",
    ];
    let arguments = [
        "run",
        "l",
        "-w",
        "10",
        "--masters",
        &quorum.urls,
        "--",
        "echo",
        "no",
    ];
    redlock_until(&arguments, 69, &forgotten);
    // A process that ran before the loss knows the fingerprint, and seals them again.
    let mut service = quorum.run("l", &[SHORT, &["--service"]].concat(), "echo begins");
    service.child.wait_for_line(BOUND, "fewer than a majority");
    holder.child.signal(Signal::SIGCONT);
    service.child.wait_for_line(BOUND, "begins");
    assert_eq!(service.end().0, 0);
    drop(holder);
}

/// A process that never saw the quorum does not know how long its leases may be.
#[test]
fn masters_that_were_never_used_are_reported_with_the_remedy() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let one =
        |(number, server): (usize, &RedisServer)| format!("{{name: m{number}, url: \"{}\"}}", server.url());
    let masters: Vec<String> = servers.iter().enumerate().map(one).collect();
    let folder = tempfile::tempdir().unwrap();
    let quorum = folder.path().join("quorum.yaml");
    let manifest = format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: q}}\n\
         spec: {{maxLeaseDurationSeconds: 10, masters: [{}]}}\n",
        masters.join(", ")
    );
    std::fs::write(&quorum, manifest).unwrap();
    let config = ["--config", quorum.to_str().unwrap()];
    let run = |flags: &[&str]| redlock(&[&["run", "l"], &config[..], flags, &["--", "echo", "ran"]].concat());
    run(&["-w", "5"]).expect(69, &["redlock init", "0 of 3 masters vote"]);
    redlock(&[&["init"], &config[..]].concat()).expect(0, &[]);
    run(&["-w", "60"]).expect(0, &["ran"]);
}

/// A majority answers and votes, and refuses every write: no other candidate holds the lock.
#[test]
fn masters_that_refuse_writes_are_reported_and_no_contention() {
    let quorum = Quorum::start();
    for (name, refused, accepted, error) in [
        ("maxmemory", "1", "0", "OOM"),
        ("min-replicas-to-write", "1", "0", "NOREPLICAS"),
    ] {
        for server in quorum.servers.iter().take(2) {
            server.set_config(name, refused).unwrap();
        }
        for flags in [&["-n"][..], &["-w", "6"]] {
            // The lease of an earlier run, on the third master, may not have been undone yet.
            let lock = format!("l{}{name}", flags.len());
            let (code, out, err) = quorum.ran(&lock, flags, "echo no");
            assert_eq!((code, out.as_str()), (69, ""), "{flags:?} {err}");
            assert!(err.contains(error) && err.contains("2 of them refuse"), "{err}");
            assert!(!err.contains("other candidates"), "{err}");
        }
        for server in quorum.servers.iter().take(2) {
            server.set_config(name, accepted).unwrap();
        }
        let (code, out, err) = quorum.ran("l", &["-w", "30"], "echo ran");
        assert_eq!((code, out.as_str()), (0, "ran"), "{err}");
    }
}

#[test]
fn wrong_password_is_reported_and_not_shown() {
    let options = ServerOptions {
        password: Some("the-right-one".into()),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = urls(&servers);
    init(&servers, &[], &[("REDLOCK_PASSWORD", "the-right-one")]);
    let arguments = ["run", "l", "--service", "--masters", &urls, "--", "env"];
    redlock(&arguments).expect(77, &["NOAUTH"]);
    let wrong = redlock_with(&arguments, &[("REDLOCK_PASSWORD", "the-wrong-one")]);
    wrong.expect(77, &["WRONGPASS"]).keeps("the-wrong-one");
    let right = redlock_with(&arguments, &[("REDLOCK_PASSWORD", "the-right-one")]);
    right.expect(0, &["REDLOCK_TOKEN="]).keeps("the-right-one");
}

/// A majority may still answer: a service that ended would stay down because of one master.
#[test]
fn command_waits_for_masters_while_one_of_them_denies() {
    let options = ServerOptions {
        password: Some("the-right-one".into()),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = urls(&servers);
    let password = [("REDLOCK_PASSWORD", "the-right-one")];
    init(&servers, &[], &password);
    let as_admin = servers[0].url().replace("//", "//:the-right-one@");
    let mut change = redis::cmd("CONFIG");
    change.arg(&["SET", "requirepass", "another"]);
    let mut connection = redis::Client::open(as_admin).unwrap().get_connection().unwrap();
    let () = change.query(&mut connection).unwrap();
    servers[1].pause().unwrap();
    let arguments = ["run", "l", "-n", "--masters", &urls, "--", "env"];
    redlock_until_with(&arguments, &password, 77, &["WRONGPASS"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(["run", "l", "--service", "--masters", &urls, "--", "echo", "ran"]);
    let mut waiting = ChildGuard::spawn("redlock run l", command.envs(password));
    waiting.wait_for_line(BOUND, "WRONGPASS");
    servers[1].resume().unwrap();
    waiting.wait_for_line(BOUND, "ran");
    assert!(waiting.wait(BOUND).0.success());
}
