//! Tests `make mutants` with a cargo that records its arguments.

use std::process::{Command, Output};

use super::programs::Programs;
use super::source::ROOT;

fn make(cargo: &str) -> (Programs, Output) {
    let programs = Programs::real(&["sh", "make", "mkdir"]);
    programs.add("cargo", cargo);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec make --no-print-directory mutants ARGS=--list"]);
    command.env_clear().env("PATH", programs.path());
    let output = command.current_dir(ROOT).output().unwrap();
    (programs, output)
}

#[test]
fn without_cargo_mutants_the_command_that_installs_it_is_named() {
    let (_programs, output) = make("exit 101");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("cargo-mutants is missing; install it: cargo install --locked cargo-mutants"),
        "{error}"
    );
}

#[test]
fn the_core_is_changed_with_the_arguments_that_are_given() {
    let (_programs, output) = make("echo \"ran: $* ($REDLOCK_SEEDS seeds)\"");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let expected = "ran: mutants --package redlock-core --features trace --output target --list (60 seeds)";
    assert!(text.contains(expected), "{text}");
}
