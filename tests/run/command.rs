//! Tests the end, the environment and the remaining processes of the command.

use std::io::Write;
use std::process::Stdio;

use crate::program::{init, redlock, redlock_with, urls};
use crate::wrapper::{BOUND, Quorum, Wrapper, kill_hard, runs, wait_gone};
use redlock_testkit::{ChildGuard, RedisServers, ServerOptions, admin, eventually, eventually_blocking};

#[test]
fn the_exit_code_is_the_commands_own() {
    let quorum = Quorum::start();
    for (script, code) in [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -USR1 $$", 138),
    ] {
        assert_eq!(quorum.ran("l", &[], script).0, code, "{script}");
    }
    let with = |command: &[&str]| {
        redlock(
            &[
                &["run", "l", "-w", "60", "--masters", &quorum.urls, "--"],
                command,
            ]
            .concat(),
        )
    };
    with(&["/nonexistent/program"]).expect(127, &["redlock: /nonexistent/program: No such file"]);
    with(&["no-such-program-anywhere"]).expect(127, &["no-such-program-anywhere"]);
    with(&["/etc"]).expect(126, &["redlock: /etc: Permission denied"]);
}

#[test]
fn the_command_knows_the_lock_and_the_token_and_no_password() {
    let quorum = Quorum::start();
    let script = "echo $REDLOCK_LOCK $REDLOCK_HOLDER $REDLOCK_TOKEN; env";
    let arguments = [
        "run",
        "a/b",
        "-w",
        "60",
        "--masters",
        &quorum.urls,
        "--identity",
        "me",
        "--",
        "sh",
        "-c",
        script,
    ];
    let run = || {
        let secret = ("REDLOCK_PASSWORD", "");
        let ran = redlock_with(&arguments, &[secret, ("OTHER", "kept")]);
        ran.expect(0, &["a/b me ", "OTHER=kept"]);
        assert!(!ran.stdout.contains("REDLOCK_PASSWORD"), "{}", ran.stdout);
        let first = ran.stdout.lines().next().unwrap();
        first.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let (first, second) = (run(), run());
    assert!(first < second, "tokens grow: {first}, {second}");
}

#[test]
fn standard_input_and_output_are_the_commands() {
    let quorum = Quorum::start();
    let mut child = quorum
        .command("l", &["-q"], "cat; echo problem >&2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"one\ntwo\n");
    assert_eq!(output.stderr, b"problem\n");
    assert!(output.status.success());
}

#[test]
fn the_flag_c_runs_a_shell_command() {
    let quorum = Quorum::start();
    let arguments = [
        "run",
        "l",
        "-w",
        "60",
        "--masters",
        &quorum.urls,
        "-c",
        "echo $0; exit 3",
    ];
    redlock_with(&arguments, &[("SHELL", "/bin/sh")]).expect(3, &["/bin/sh"]);
    redlock_with(&arguments, &[("SHELL", "/nonexistent/sh")]).expect(127, &["/nonexistent/sh"]);
}

/// Processes of the command's group are stopped before another client may have the lock; processes outside of it are
/// not.
#[tokio::test]
async fn nothing_of_the_group_survives_the_lease() {
    let quorum = Quorum::start();
    // The command ends once the other process has its own session: until then, that process is in the group.
    let script = "trap '' TERM; sleep 1000 & echo left $!; setsid sleep 1000 >/dev/null 2>&1 & away=$!; \
                  until [ \"$(cut -d' ' -f6 /proc/$away/stat)\" = $away ]; do sleep 0.02; done; echo away $away; exit 3";
    let flags = ["--stop-grace", "300ms", "--lease-duration", "20s"];
    let mut wrapper = quorum.run("l", &flags, script);
    let (left, away) = (wrapper.number("left"), wrapper.number("away"));
    assert_eq!(wrapper.end().0, 3);
    assert!(!runs(left));
    assert!(runs(away), "documented: a session of its own is beyond the group");
    kill_hard(away);
    // A majority confirmed the release; this master may lag slightly behind.
    eventually(BOUND, "the lock was given back", async || {
        let lease: Option<String> = admin(&quorum.servers[0], &["GET", "redlock:lease:l"]).await;
        lease.map_or(Ok(()), Err)
    })
    .await;
}

/// A guardian that kept the pipe open would make a shell wait for it.
#[test]
fn nothing_of_redlock_holds_the_output_open() {
    let quorum = Quorum::start();
    let mut wrapper = quorum.run("l", &[], "echo me $$; exec sleep 1000 >/dev/null 2>&1");
    let command = wrapper.number("me");
    let guardian = wrapper.guardian(0);
    for number in 0..10 {
        let Ok(target) = std::fs::read_link(format!("/proc/{guardian}/fd/{number}")) else {
            continue;
        };
        let inherited = std::fs::read_link(format!("/proc/{}/fd/1", wrapper.child.pid())).unwrap();
        assert_ne!(target, inherited, "file {number}");
    }
    // The command has no open file of redlock, except those that both inherited: other tests of this process
    // open files, too.
    let files = |id: i64, above: i32| -> Vec<String> {
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().flatten();
        let number = |name: &str| name.parse().unwrap_or(0);
        let open = open.filter(|file| file.file_name().to_str().is_some_and(|name| number(name) > above));
        open.filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.display().to_string()))
            .collect()
    };
    let inner = ["socket:", "anon_inode:", "/memfd:"];
    // The shell may not have become the command yet.
    eventually_blocking(BOUND, "no open file of redlock", || {
        let guardians = files(guardian, -1);
        let ours =
            |file: &String| guardians.contains(file) || inner.iter().any(|kind| file.starts_with(kind));
        files(command, 2).into_iter().find(ours).map_or(Ok(()), Err)
    });
    kill_hard(command);
    assert_eq!(wrapper.end().0, 137);
    wait_gone(guardian);
}

/// As root, redlock and its command give up all capabilities, and are then like processes of another user.
#[test]
fn command_cannot_read_the_password_of_redlock() {
    let options = ServerOptions {
        password: Some("the-secret".into()),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let password = [("REDLOCK_PASSWORD", "the-secret")];
    init(&servers, &[], &password);
    let urls = urls(&servers);
    let quorum = Quorum { servers, urls };
    let by: &[&str] = if rustix::process::geteuid().is_root() {
        &["setpriv", "--bounding-set", "-all"]
    } else {
        &["env"]
    };
    let mut command = quorum.command_by(by, "l", &[], "cat /proc/$PPID/environ; echo code $?");
    let child = ChildGuard::spawn("redlock run", command.envs(password));
    let (code, out, err) = Wrapper::of(child).end();
    assert_eq!((code, out.as_str()), (0, "code 1"), "{err}");
    assert!(err.contains("/environ: Permission denied"), "{err}");
}
