//! Tests that no process and no file of a control plane outlives the process that started it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, panic, thread};

use nix::unistd::Pid;

use crate::fixture::{BOUND, ControlPlane, Options, Process, state};
use redlock_testkit::{ChildGuard, eventually_blocking};

/// The variable of the process that is killed, which runs this same test.
const VICTIM: &str = "REDLOCK_TEST_VICTIM";

fn gone(pids: &[i32]) {
    eventually_blocking(BOUND, "its programs are gone", || {
        let left: Vec<_> = pids
            .iter()
            .filter(|&&pid| state(Pid::from_raw(pid)).is_some())
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
}

#[test]
fn nothing_survives_a_process_that_is_killed() {
    if env::var_os(VICTIM).is_some() {
        let plane = ControlPlane::start(Options::default());
        // A stopped program does not end on an ordinary signal.
        plane.pause_api_server();
        println!("{}: {:?}", plane.kubeconfig_admin().display(), plane.pids());
        loop {
            thread::park();
        }
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "leftovers::nothing_survives_a_process_that_is_killed",
            "--nocapture",
        ])
        .env(VICTIM, "1");
    let mut victim = ChildGuard::spawn("victim", &mut command);
    let line = victim.wait_for_line(4 * BOUND, ".kubeconfig: ");
    let (kubeconfig, pids) = line.split_once(": ").unwrap();
    let pids: Vec<i32> = serde_json::from_str(pids).unwrap();
    assert_eq!(pids.len(), 3, "{line}");
    assert!(
        pids.iter().all(|&pid| state(Pid::from_raw(pid)).is_some()),
        "{line}"
    );
    victim.kill();
    gone(&pids);
    let folder = Path::new(kubeconfig).parent().unwrap();
    eventually_blocking(BOUND, "its folder is gone", || {
        if folder.exists() { Err(folder) } else { Ok(()) }
    });
}

#[test]
fn nothing_survives_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let folder = folder.path();
    let panicked = panic::catch_unwind(move || {
        let process = Process::spawn("sleep", folder, Path::new("/bin/sleep"), &["600".into()]);
        sender.send(process.pid().as_raw()).unwrap();
        process.assert_running();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    gone(&[receiver.recv_timeout(Duration::ZERO).unwrap()]);
}
