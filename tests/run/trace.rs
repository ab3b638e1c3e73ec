//! Tests `REDLOCK_TRACE`: a replay repeats the decisions of a real process from its recorded inputs.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use redlock_testkit::{ChildGuard, RedisServers, ServerOptions, eventually_blocking};
use tempfile::TempDir;

use crate::common::forget_variables;
use crate::program::{Ran, init, redlock, urls};
use crate::wrapper::{BOUND, Quorum, Wrapper};

const PASSWORD: &str = "a-password-of-this-test";
/// A busy machine lost a lease of 3 s before the test ended it.
const LEASE: &str = "12s";
/// A command that prints its token, so that each lease can be observed.
const SCRIPT: &str = "echo token $REDLOCK_TOKEN; exec sleep 1000";

/// Three masters with a user that has a password, and a folder for traces.
struct Scene {
    quorum: Quorum,
    folder: TempDir,
}

impl Scene {
    fn start() -> Self {
        let options = ServerOptions {
            users: vec![format!("user on >{PASSWORD} ~* &* +@all")],
            ..ServerOptions::default()
        };
        let servers = RedisServers::start(3, &options).unwrap();
        let urls = urls(&servers);
        init(&servers, &["--max-lease-duration", LEASE], &[]);
        Self {
            quorum: Quorum { servers, urls },
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn candidate(&self, name: &str) -> Wrapper {
        let flags = [
            "--service",
            "--lease-duration",
            LEASE,
            "--identity",
            name,
            "--username",
            "user",
        ];
        let mut command = self.quorum.command("l", &flags, SCRIPT);
        forget_variables(&mut command);
        command.env("REDLOCK_PASSWORD", PASSWORD);
        command.env("REDLOCK_TRACE", self.folder.path().join(name));
        Wrapper::of(ChildGuard::spawn(name, &mut command))
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Waits until the trace of a candidate has this text, and returns it.
    fn trace(&self, name: &str, wanted: &str) -> String {
        eventually_blocking(BOUND, &format!("{wanted} in the trace of {name}"), || {
            let files = self.files();
            let own = |path: &&PathBuf| path.file_stem().is_some_and(|stem| stem == name);
            let path = files.iter().find(own).ok_or_else(|| format!("{files:?}"))?;
            let text = fs::read_to_string(path).unwrap();
            if text.contains(wanted) {
                Ok(text)
            } else {
                Err(format!("{} bytes", text.len()))
            }
        })
    }
}

fn replay(files: &[PathBuf]) -> Ran {
    let files = files.iter().map(|path| path.to_str().unwrap());
    redlock(&[&["replay"], &*files.collect::<Vec<_>>()].concat())
}

fn number_before(text: &str, what: &str) -> u64 {
    let (before, _) = text.rsplit_once(what).unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Writes a file with this text; returns its path for a replay.
fn written(folder: &Path, text: &str) -> Vec<PathBuf> {
    let path = folder.join("changed");
    fs::write(&path, text).unwrap();
    vec![path]
}

/// Plays the scene: the first holder loses its lease, wins another one, and is killed; in between, a server
/// is killed and started again.
fn play(scene: &Scene) {
    let mut first = scene.candidate("first");
    first.child.wait_for_line(BOUND, "token ");
    let second = scene.candidate("second");
    scene.quorum.servers[2].kill();
    scene.trace("first", "Renewed");
    scene.quorum.servers[2].restart().unwrap();
    scene.quorum.pause();
    scene.trace("first", "ended: Some(QuorumLost)");
    scene.quorum.resume();
    let ids = [first.child.pid(), second.child.pid()].map(i64::from);
    // The second lease is the last one, whichever candidate wins it.
    crate::wrapper::kill_hard(ids[0]);
    scene.trace("second", "won: Some");
    second.signal(Signal::SIGTERM);
    let (code, _, err) = second.end();
    assert!([0, 128 + 15].contains(&code), "{code}: {err}");
}

#[test]
fn replay_repeats_the_decisions_of_real_processes() {
    let scene = Scene::start();
    play(&scene);
    let files = scene.files();
    assert_eq!(files.len(), 2, "{files:?}");
    let replayed = replay(&files);
    replayed.expect(0, &["2 files, ", ", 0 divergences"]);
    println!("{}", replayed.stdout);
    assert!(
        number_before(&replayed.stdout, " outputs equal") > 100,
        "{replayed:?}"
    );
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains(PASSWORD), "{}: the password", path.display());
    }
    let ended = scene.trace("second", "Released");
    assert!(ended.ends_with("}\n"), "the trace was not flushed at the end");

    // A killed process leaves half a line.
    let folder = scene.folder.path();
    replay(&written(folder, &ended[..ended.len() - 5])).expect(0, &[", 0 divergences"]);
    // Changes one reply.
    let lines: Vec<&str> = ended.lines().collect();
    let is_grant = |line: &&str| line.contains("\"granted\"");
    let place = lines.iter().position(is_grant).expect("a grant");
    let changed = lines[place].replace("\"code\":\"Ok\"", "\"code\":\"Unsealed\"");
    assert_ne!(changed, lines[place]);
    let changed = [&lines[..place], &[&*changed], &lines[place + 1..]]
        .concat()
        .join("\n")
        + "\n";
    let found = replay(&written(folder, &changed));
    found.expect(
        1,
        &[
            "returned another result",
            "recorded:",
            "replayed:",
            ", 1 divergences",
        ],
    );
    let (_, line) = found.stdout.split_once(": line ").unwrap();
    let line: usize = line.split(':').next().unwrap().parse().unwrap();
    assert!(
        line > place + 1 && line < place + 50,
        "line {line}, changed {}",
        place + 1
    );
    // Changes the limits, so that the engine decides differently.
    let (usual, shorter) = (
        "\"acquire_limit\":{\"secs\":2,\"nanos\":0}",
        "\"acquire_limit\":{\"secs\":0,\"nanos\":1000000}",
    );
    assert!(ended.contains(usual), "{}", lines[1]);
    let changed = ended.replace(usual, shorter);
    replay(&written(folder, &changed)).expect(1, &["returned another result", "Transmit"]);
}

#[test]
fn a_trace_that_cannot_be_written_or_read_is_a_failure() {
    let missing = "/nonexistent/folder/trace";
    crate::program::redlock_with(&["crd"], &[("REDLOCK_TRACE", missing)]).expect(
        78,
        &["REDLOCK_TRACE=/nonexistent/folder/trace", "creating the file"],
    );
    redlock(&["replay", missing]).expect(78, &[missing]);
    redlock(&["--help"]).expect(0, &[]);
    assert!(!redlock(&["--help"]).stdout.contains("replay"));
}
