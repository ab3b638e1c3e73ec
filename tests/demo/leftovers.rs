//! Finds processes and files that a demo left behind. Each demo gets its own folder for temporary files.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redlock_testkit::{ChildGuard, eventually_blocking};

const BOUND: Duration = Duration::from_secs(30);

/// Returns the demo, with all its temporary files below `folder`.
pub fn demo(folder: &Path, arguments: &[&str]) -> ChildGuard {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.arg("demo").args(arguments).env("TMPDIR", folder);
    ChildGuard::spawn("redlock demo", &mut command)
}

/// Returns every process that names `folder` in its command line; by `ps` where `/proc` is missing.
pub fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let output = Command::new("ps").args(["-A", "-o", "pid=,args="]).output();
    let output = output.expect("ps is missing; install the package `procps`");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains(folder))
        .map(str::to_owned)
        .collect()
}

/// Asserts that nothing is left below `folder`, and that no process uses it.
pub fn gone(folder: &Path) {
    eventually_blocking(BOUND, "processes and files of the demo are gone", || {
        let files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        let processes = processes(folder);
        if files.is_empty() && processes.is_empty() {
            Ok(())
        } else {
            Err((files, processes))
        }
    });
}
