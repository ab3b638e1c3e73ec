use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redlock_testkit::write_executable;

#[test]
fn a_written_program_runs_while_other_threads_start_processes() {
    let folder = tempfile::tempdir().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // With a PATH, the standard library forks.
                    let mut other = Command::new("true");
                    other.env("PATH", "/usr/bin:/bin").status().unwrap();
                }
            });
        }
        let results: Vec<_> = (0..300)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                write_executable(&path, "#!/bin/sh\nexit 0\n");
                Command::new(path).status()
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            assert!(result.unwrap().success());
        }
    });
}
