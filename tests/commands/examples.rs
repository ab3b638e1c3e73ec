//! Tests that every example of `--help` works in a shell as printed.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::program::{quorum, redlock, redlock_with, urls};
use redlock_testkit::{ChildGuard, RedisServer, RedisServers, ServerOptions, write_executable};

/// A terminal of the usual narrow width: an example that is wrapped there cannot be copied.
const COLUMNS: &str = "80";
/// The time limit of an example: a command that runs until it is stopped reports invalid arguments sooner.
const SECONDS: &str = "5";
const BOUND: Duration = Duration::from_secs(60);
/// The most runs of an example whose masters answer later than it waits.
const ATTEMPTS: usize = 5;
/// The urls of the masters in the examples.
const MASTERS: &str = "redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003";
/// The command whose examples are not run here: another test runs it, for a minute.
const NOT_PLAYED: &str = "demo";

fn commands() -> Vec<String> {
    let help = redlock(&["--help"]).stdout;
    let (_, rest) = help.split_once("Commands:\n").expect("a list of the commands");
    let lines = rest.lines().take_while(|line| !line.is_empty());
    // The description of a command continues below it, further to the right.
    let named = lines.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names = named.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Returns the examples of a command, each with its continuation lines.
fn examples(command: &str) -> Vec<String> {
    let help = redlock_with(&[command, "--help"], &[("COLUMNS", COLUMNS)]).stdout;
    let lines = help.lines().skip_while(|line| !line.starts_with("Example"));
    let mut found: Vec<String> = Vec::new();
    for line in lines.skip(1).take_while(|line| line.starts_with("  ")) {
        match found.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => *last = format!("{last}\n{line}"),
            None => found.push(line.to_owned()),
        }
    }
    found
}

/// Creates a folder for examples: the program, the repository's examples, and programs that only read input.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_redlock"), place.path().join("redlock")).unwrap();
    symlink(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"),
        place.path().join("examples"),
    )
    .unwrap();
    for name in ["kubectl", "man"] {
        write_executable(&place.path().join(name), "#!/bin/sh\nexec cat >/dev/null\n");
    }
    place
}

/// Moves the directories in an example into the folder, because this machine may be a node with fenced pods.
fn in_place(example: &str, place: &Path) -> String {
    ["/run/redlock", "/var/lib/kubelet"]
        .into_iter()
        .fold(example.to_owned(), |example, directory| {
            example.replace(directory, &format!("{}{directory}", place.display()))
        })
}

/// Runs the examples of a command one after the other, and returns the output of those that failed. A master on a busy
/// machine may answer later than an example waits: the example is run again, and `init` on servers that restart empty.
fn play(command: &str, examples: &[String], place: &Path, servers: &[RedisServer]) -> Vec<String> {
    let masters = urls(servers);
    let play = |example: &String| {
        let script = in_place(&example.replace(MASTERS, &masters), place);
        let (mut status, mut output) = ran(&script, place, &masters);
        for _ in 1..ATTEMPTS {
            if !matches!(status.code(), Some(1 | 69)) {
                break;
            }
            if command == "init" {
                servers.iter().for_each(|server| server.restart_empty().unwrap());
            }
            (status, output) = ran(&script, place, &masters);
        }
        let right = match status.code() {
            // The second code is the exit code of a command that runs until it is stopped.
            Some(0 | 124) => true,
            // The command needs a cluster, or a node with node fencing, and this machine is neither.
            Some(78) => output.contains("kubeconfig") || output.contains("table of fenced pods"),
            _ => false,
        };
        // The rest of a wrapped line begins differently.
        let whole = ["redlock ", "source "]
            .iter()
            .any(|word| example.trim_start().starts_with(word));
        (!right || !whole || output.contains("panicked"))
            .then(|| format!("{example}\n  ended with {status}: {output}"))
    };
    examples.iter().filter_map(play).collect()
}

/// Runs a script in a shell; returns its exit status and its output.
fn ran(script: &str, place: &Path, masters: &str) -> (ExitStatus, String) {
    let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("timeout");
    crate::common::forget_variables(&mut bash);
    bash.args([SECONDS, "bash", "-o", "pipefail", "-c", script])
        .current_dir(place)
        .env("PATH", path)
        .env("HOME", place)
        .env("REDLOCK_MASTERS", masters)
        .env("KUBECONFIG", place.join("no-kubeconfig"))
        .env_remove("KUBERNETES_SERVICE_HOST");
    let mut shell = ChildGuard::spawn(script, &mut bash);
    let (status, _) = shell.wait(BOUND);
    (status, [shell.stdout(), shell.stderr()].concat().join("\n"))
}

#[test]
fn every_example_of_the_help_works_as_printed() {
    let (place, (sealed, _)) = (place(), quorum());
    let new = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let commands = commands();
    assert!(
        commands.len() >= 10 && commands.contains(&"status".into()),
        "{commands:?}"
    );
    let play = |command: &str| {
        let examples = examples(command);
        assert!(!examples.is_empty(), "redlock {command} --help shows no example");
        let servers = if command == "init" { &new } else { &sealed };
        play(command, &examples, place.path(), servers)
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let played = commands.iter().filter(|command| *command != NOT_PLAYED);
        let plays: Vec<_> = played.map(|command| scope.spawn(|| play(command))).collect();
        plays.into_iter().flat_map(|play| play.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
