//! Tests a whole run, and interrupted runs.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::leftovers::{demo, gone, processes};

/// The demo promises a minute; a machine that runs other tests at the same time gets more.
const BOUND: Duration = Duration::from_secs(120);

/// Returns the report of a run that keeps every promise. A machine that pauses for a second loses leases of
/// 3 s, and the run reports a change of the holder: safety must hold in each run, and the other promises in
/// one of six.
fn kept(folder: &Path) -> Value {
    for attempt in 1..=6 {
        let mut run = demo(folder, &["--output", "json", "--seed", "3"]);
        let (status, _) = run.wait(BOUND);
        let stdout = run.stdout().join("\n");
        let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
        assert_eq!(report["overlaps"], 0);
        assert_eq!(report["tokensStrictlyIncreasing"], true);
        for check in report["checks"].as_array().unwrap() {
            let safety = check["what"] == "no master shows a lease while it has no seal";
            assert!(!safety || check["ok"] == true, "{check}");
        }
        if status.success() {
            return report;
        }
        println!("attempt {attempt}: {status}: {report:#}");
    }
    panic!("no run of six kept every promise");
}

#[test]
fn the_promises_hold_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let report = kept(folder.path());
    assert!(report["durationSeconds"].as_f64().unwrap() > 0.0);
    let takeovers = report["takeovers"].as_array().unwrap();
    for kind in ["crash", "release", "pause"] {
        let of_kind = takeovers.iter().filter(|takeover| takeover["kind"] == kind);
        assert!(
            of_kind.clone().count() > 0,
            "no takeover of kind {kind}: {takeovers:#?}"
        );
        assert!(of_kind.clone().all(|takeover| takeover["milliseconds"].is_f64()));
    }
    assert!(
        report["observations"]["masters"].as_u64().unwrap() > 1000,
        "the observer did not observe all the time"
    );
    gone(folder.path());
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing_behind() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = demo(folder.path(), &[]);
        run.wait_for_line(BOUND, "every lock found a holder");
        assert!(
            processes(folder.path()).len() >= 8,
            "five masters and three replicas"
        );
        run.signal(signal);
        let (status, _) = run.wait(BOUND);
        assert_eq!(status.code(), Some(code));
        gone(folder.path());
    }
}

#[test]
fn a_run_that_is_killed_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = demo(folder.path(), &[]);
    run.wait_for_line(BOUND, "every lock found a holder");
    run.kill();
    gone(folder.path());
}

#[test]
fn without_redis_server_it_names_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_redlock"));
    let output = command
        .args(["demo", "--output", "json"])
        .env("PATH", folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{stderr}");
    assert!(stderr.contains("install the package `redis-server`"), "{stderr}");
    assert!(output.stdout.is_empty());
    gone(folder.path());
}
