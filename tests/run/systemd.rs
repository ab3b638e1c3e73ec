//! Tests the systemd unit of docs/run.md: systemd accepts it, and the program accepts its command line.

use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/run.md");

fn unit() -> String {
    let page = fs::read_to_string(PAGE).unwrap();
    let (_, unit) = page.split_once("```ini\n").unwrap();
    unit.split_once("```").unwrap().0.to_owned()
}

/// Returns the command line of the unit, with this program in place of the installed ones.
fn command_line(unit: &str) -> Vec<&str> {
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    line.split(' ').collect()
}

#[test]
fn unit_of_the_documentation_is_accepted() {
    let unit = unit();
    let words = command_line(&unit);
    // Masters are missing, which is found after the command line has been read.
    let arguments: Vec<&str> = words[1..]
        .iter()
        .copied()
        .filter(|word| *word != "--contain")
        .collect();
    crate::program::redlock(&arguments).expect(64, &["no masters given"]);
    for setting in ["KillMode=mixed", "Delegate=yes", "RestartSec=5s"] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }

    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        println!("not verified: systemd-analyze is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mailer.service");
    fs::write(&file, unit.replace(words[0], env!("CARGO_BIN_EXE_redlock"))).unwrap();
    let verified = Command::new(analyze)
        .arg("verify")
        .arg("--man=no")
        .arg(&file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&verified.stderr);
    let about: Vec<&str> = errors
        .lines()
        .filter(|line| line.contains("mailer.service"))
        .collect();
    assert!(verified.status.success() && about.is_empty(), "{errors}");
}
