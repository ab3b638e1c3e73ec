//! Tests `--contain`: processes that leave the process group are stopped, too.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redlock_testkit::{ChildGuard, Mode, eventually_blocking};
use tempfile::TempDir;

use crate::common::cgroups;
use crate::wrapper::{BOUND, Quorum, SHORT, Through, UNHURRIED, Wrapper, kill_hard, runs, send, wait_gone};

const FILE: &str = "CONTAINED_FILE";
/// If a file is not written for this time, its writer has ended: the daemon writes every millisecond.
const SILENCE: Duration = Duration::from_millis(300);
const LONG: &[&str] = &["--contain", "--lease-duration", "60s"];
/// A process that holds the output of a failed test open ends by itself, and so does the test.
const WAITS: &str = "n=0; while [ $((n += 1)) -lt 1500 ]; do sleep 0.02; done";

/// A daemon in its own session, after two forks. It ignores the stop signal, and writes until it is killed.
const DAEMON: &str = "(trap '' TERM HUP; setsid sh -c '\"$WRITER\" --ignored --exact contained::writer &' \
                      </dev/null >/dev/null 2>&1)";

/// The work of the daemon, in a separate process: this program.
#[test]
#[ignore = "no test: a process of the others"]
fn writer() {
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(file)
        .unwrap();
    let own = std::process::id();
    // The work ends by itself, in case a killed test leaves it behind.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(120) {
        file.write_all(format!("{own}\n").as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
}

/// A `redlock run --contain` whose command has started the daemon.
struct Contained {
    wrapper: Wrapper,
    folder: TempDir,
    parent: PathBuf,
    daemon: i64,
}

impl Contained {
    /// Starts the command, which continues with `then` once the daemon writes.
    fn start(quorum: &Quorum, flags: &[&str], then: &str, parent: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{DAEMON}; until [ -s \"${FILE}\" ]; do sleep 0.02; done; echo writes; {then}");
        let mut command = quorum.command("l", flags, &script);
        command
            .env("WRITER", std::env::current_exe().unwrap())
            .env(FILE, folder.path().join("writes"));
        let mut wrapper = Wrapper::of(ChildGuard::spawn("redlock run --contain", &mut command));
        wrapper.child.wait_for_line(BOUND, "writes");
        let text = fs::read_to_string(folder.path().join("writes")).unwrap();
        Self {
            wrapper,
            daemon: text.lines().next().unwrap().parse().unwrap(),
            folder,
            parent: parent.to_owned(),
        }
    }

    fn cgroup(&self) -> Option<PathBuf> {
        cgroups::of(self.wrapper.child.pid(), &self.parent)
    }

    fn written(&self) -> u64 {
        fs::metadata(self.folder.path().join("writes")).unwrap().len()
    }

    /// Asserts that nothing is written from this moment.
    fn is_silent(&self) {
        let before = self.written();
        assert!(!runs(self.daemon), "the daemon runs");
        thread::sleep(SILENCE);
        assert_eq!(self.written(), before, "written after the stop");
    }

    fn wait_removed(&self) {
        eventually_blocking(BOUND, "the cgroup is removed", || {
            self.cgroup().map_or(Ok(()), Err)
        });
    }

    /// Asserts that nothing is left when the wrapper has ended.
    fn ends(mut self, code: i32) -> String {
        let (status, _) = self.wrapper.child.wait(BOUND);
        self.is_silent();
        assert_eq!(self.cgroup(), None);
        let err = self.wrapper.child.stderr().join("\n");
        assert_eq!(status.code(), Some(code), "{err}");
        err
    }
}

#[test]
fn daemon_that_the_command_leaves_behind_ends_before_the_release() {
    let Some(own) = cgroups::own_or_report("a daemon that is left behind") else {
        return;
    };
    let quorum = Quorum::start();
    let flags = ["--contain", "--stop-grace", "300ms", "--lease-duration", "60s"];
    let run = Contained::start(&quorum, &flags, "exit 3", &own);
    run.ends(3);
    quorum.is_free("l");
}

/// A signal that is passed on reaches only the process group.
#[test]
fn daemon_that_is_left_behind_has_its_grace() {
    if cgroups::own_or_report("the grace of a daemon that is left behind").is_none() {
        return;
    }
    let quorum = Quorum::start();
    let daemon = format!("trap \"sleep 0.2; echo cleaned up; exit\" TERM; echo ready >&2; {WAITS}");
    let script = format!("trap 'exit 3' USR1; setsid sh -c '{daemon}' & while :; do sleep 0.02; done");
    let flags = ["--contain", "--lease-duration", "30s", "--stop-grace", "15s"];
    let mut wrapper = quorum.run("l", &flags, &script);
    wrapper.child.wait_for_line(BOUND, "ready");
    wrapper.signal(Signal::SIGUSR1);
    let (code, out, err) = wrapper.end();
    assert_eq!((code, out.as_str()), (3, "cleaned up"), "{err}");
}

/// The stop signal reaches the process, and each process gets the signal once.
#[test]
fn process_of_another_session_gets_the_stop_signal() {
    if cgroups::own_or_report("the stop signal").is_none() {
        return;
    }
    let quorum = Quorum::start();
    let script = format!(
        "trap 'echo own' USR1; setsid sh -c 'trap \"echo asked\" USR1; echo ready; {WAITS}' & wait; wait; exit 4"
    );
    let flags = [UNHURRIED, &["--contain", "--stop-signal", "USR1"]].concat();
    let mut wrapper = quorum.run("l", &flags, &script);
    wrapper.child.wait_for_line(BOUND, "ready");
    quorum.pause();
    let (code, out, err) = wrapper.end();
    assert_eq!(code, 79, "{err}");
    for word in ["asked", "own"] {
        assert_eq!(out.matches(word).count(), 1, "{out}");
    }
}

#[test]
fn lost_lease_ends_the_daemon() {
    let Some(own) = cgroups::own_or_report("a lost lease") else {
        return;
    };
    let (through, quorum) = Through::start();
    let flags = [SHORT, &["--contain"]].concat();
    let run = Contained::start(&quorum, &flags, "sleep 1000", &own);
    through.set(Mode::LoseReplies);
    run.ends(79);
}

#[test]
fn killed_wrapper_takes_the_daemon_and_the_cgroup_with_it() {
    let Some(own) = cgroups::own_or_report("kill -9 of redlock run") else {
        return;
    };
    let quorum = Quorum::start();
    let mut run = Contained::start(&quorum, LONG, "sleep 1000", &own);
    let guardian = run.wrapper.guardian(0);
    let killed = Instant::now();
    run.wrapper.child.kill();
    wait_gone(run.daemon);
    println!("killed {:?} after the wrapper, lease 60 s", killed.elapsed());
    run.is_silent();
    run.wait_removed();
    wait_gone(guardian);
}

#[test]
fn frozen_wrapper_does_not_keep_the_daemon_alive() {
    let Some(own) = cgroups::own_or_report("a frozen redlock run") else {
        return;
    };
    let quorum = Quorum::start();
    let flags = [SHORT, &["--contain"]].concat();
    let run = Contained::start(&quorum, &flags, "sleep 1000", &own);
    run.wrapper.signal(Signal::SIGSTOP);
    wait_gone(run.daemon);
    assert_eq!(quorum.ran("l", &["-w", "20"], "echo next").1, "next");
    run.is_silent();
    run.wrapper.signal(Signal::SIGCONT);
    run.ends(79);
}

#[test]
fn guardian_that_replaces_another_kills_the_cgroup() {
    let Some(own) = cgroups::own_or_report("kill of the guardian") else {
        return;
    };
    let quorum = Quorum::start();
    let mut run = Contained::start(&quorum, LONG, "sleep 1000", &own);
    let first = run.wrapper.guardian(0);
    kill_hard(first);
    let second = run.wrapper.guardian(first);
    assert!(runs(run.daemon), "no guardian's end is the command's");
    run.wrapper.child.kill();
    wait_gone(run.daemon);
    run.is_silent();
    run.wait_removed();
    wait_gone(second);
}

/// The command has not begun: its cgroup holds the launcher alone.
#[test]
fn wrapper_that_is_killed_while_it_waits_leaves_no_cgroup() {
    let Some(own) = cgroups::own_or_report("kill -9 of a redlock run that waits") else {
        return;
    };
    let quorum = Quorum::start();
    let mut holder = quorum.run("l", &[], "echo holds; exec sleep 1000");
    holder.child.wait_for_line(BOUND, "holds");
    let mut waiting = quorum.run("l", &["--contain"], "echo began");
    waiting.child.wait_for_line(BOUND, "held by");
    let (guardian, id) = (waiting.guardian(0), waiting.child.pid());
    assert!(cgroups::of(id, &own).is_some());
    waiting.child.kill();
    wait_gone(guardian);
    // Another guardian may have replaced the first one before the command began.
    eventually_blocking(BOUND, "the cgroup is removed", || {
        cgroups::of(id, &own).map_or(Ok(()), Err)
    });
    assert_eq!(waiting.end().1, "");
}

#[test]
fn service_uses_its_cgroup_again() {
    let Some(own) = cgroups::own_or_report("a service") else {
        return;
    };
    let quorum = Quorum::start();
    let script = "trap 'exit 4' USR1; echo began $$; (setsid sleep 60 &); while :; do sleep 0.02; done";
    let mut wrapper = quorum.run("l", &[SHORT, &["--contain", "--service"]].concat(), script);
    let first = wrapper.number("began");
    let cgroup = cgroups::of(wrapper.child.pid(), &own).unwrap();
    quorum.pause();
    wrapper.child.wait_for_line(BOUND, "is started again");
    quorum.resume();
    let second = eventually_blocking(BOUND, "the command is started again", || {
        let lines = wrapper.child.stdout();
        let began: Vec<i64> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("began ")?.parse().ok())
            .collect();
        began.get(1).copied().ok_or(lines)
    });
    let inside = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
    assert!(
        !runs(first) && inside.lines().any(|line| line == second.to_string()),
        "{inside}"
    );
    wrapper.signal(Signal::SIGUSR1);
    assert_eq!(wrapper.end().0, 4);
    assert!(!cgroup.exists());
}

/// The command is itself a `redlock run --contain`, whose cgroup is below that of the outer one.
#[test]
fn contained_run_in_a_contained_run() {
    let Some(own) = cgroups::own_or_report("nested use") else {
        return;
    };
    let quorum = Quorum::start();
    let inner = format!(
        "exec {} run inner -w 60 --masters {} --contain -- sh -c",
        env!("CARGO_BIN_EXE_redlock"),
        quorum.urls
    );
    let ended = quorum.ran("outer", &["--contain"], &format!("{inner} 'echo inside; exit 5'"));
    assert_eq!((ended.0, ended.1.as_str()), (5, "inside"), "{}", ended.2);

    let script =
        format!("{inner} '(setsid sleep 1000 >/dev/null 2>&1 & echo away $!); echo me $$; sleep 1000'");
    let mut outer = quorum.run("outer", LONG, &script);
    let (away, me) = (outer.number("away"), outer.number("me"));
    let cgroup = cgroups::of(outer.child.pid(), &own).unwrap();
    assert_eq!(
        cgroups::below(&cgroup).len(),
        1,
        "the inner one is below the outer one"
    );
    outer.child.kill();
    wait_gone(me);
    wait_gone(away);
    eventually_blocking(BOUND, "both cgroups are removed", || {
        if cgroup.exists() { Err(()) } else { Ok(()) }
    });
}

/// A cgroup that was removed under the command has no state to read. Unknown is not empty: the lock is not released.
#[test]
fn cgroup_whose_state_cannot_be_read_leaves_the_lease_to_run_out() {
    let Some(own) = cgroups::own_or_report("a cgroup that vanished") else {
        return;
    };
    let quorum = Quorum::start();
    let flags = ["--contain", "--lease-duration", "20s", "--stop-grace", "200ms"];
    let mut wrapper = quorum.run("l", &flags, "echo me $$; exec sleep 1000");
    let me = wrapper.number("me");
    let guardian = wrapper.guardian(0);
    let cgroup = cgroups::of(wrapper.child.pid(), &own).unwrap();
    fs::write(own.join("cgroup.procs"), me.to_string()).unwrap();
    fs::remove_dir(&cgroup).unwrap();
    send(me, Signal::SIGTERM);
    let (code, _, err) = wrapper.end();
    assert_eq!(code, 70, "{err}");
    assert!(err.contains("cgroup.events: No such device"), "{err}");
    assert_eq!(quorum.refused("l", &["-n"]).0, 75, "the lease runs out");
    wait_gone(guardian);
}
