//! Proves that the observation detects two holders of one lock, by one run with another key prefix.

use std::thread;
use std::time::Duration;

use redlock::clock;

use crate::cast::{PROCESSES, RUNS};
use crate::plan::Plan;
use crate::play::{BOUND, Played, settle};
use crate::report::Report;
use crate::stage::Stage;
use redlock_testkit::eventually_blocking;

/// Gives the last run another key prefix: for the masters, it contends for another lock.
#[test]
fn two_holders_of_one_lock_are_detected() {
    let mut stage = Stage::start(true);
    settle(&mut stage).unwrap();
    let began = clock::now();
    let (_, lock) = RUNS[RUNS.len() - 1];
    eventually_blocking(BOUND, "both of them run their command", || {
        stage.tend();
        let of_lock = (0..PROCESSES).filter(|&index| stage.processes[index].guarded().is_some());
        let holders: Vec<usize> = of_lock.collect();
        let twice = holders.len() == 3;
        if twice { Ok(()) } else { Err(holders) }
    });
    // Time for the records of both to grow; no condition depends on it.
    thread::sleep(Duration::from_millis(500));
    let seen = stage.end(began);
    let (plan, played) = (Plan::new(0, 0), Played::default());
    let report = Report::new(&plan, &played, &seen);
    assert!(!report.overlaps.is_empty(), "nothing was seen: {:?}", seen.claims);
    let of_lock = report.overlaps.iter().all(|overlap| overlap.first.lock == lock);
    assert!(of_lock, "{:?}", report.overlaps);
    let wrongs = report.wrongs();
    assert!(
        wrongs.iter().any(|wrong| wrong.starts_with("two held for")),
        "{wrongs:?}"
    );
}
