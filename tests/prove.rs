//! Proves the promise of `redlock run` from outside with real servers and real processes, under all faults: the last
//! write of the old holder, the first write of the new one, and the end of the old lease.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "prove/delays.rs"]
mod delays;
#[path = "prove/faults.rs"]
mod faults;
#[path = "prove/fenced.rs"]
mod fenced;
#[path = "prove/observer.rs"]
mod observer;
#[path = "prove/outcome.rs"]
mod outcome;
#[path = "prove/plan.rs"]
mod plan;
#[path = "prove/processes.rs"]
mod processes;
#[allow(dead_code)]
#[path = "commands/program.rs"]
mod program;
#[path = "prove/records.rs"]
mod records;
#[path = "prove/report.rs"]
mod report;
#[path = "prove/rows.rs"]
mod rows;
#[path = "prove/stage.rs"]
mod stage;
#[path = "prove/trial.rs"]
mod trial;
#[path = "prove/work.rs"]
mod work;

use outcome::broken;
use plan::Plan;
use rows::Row;
use stage::Guardian;

/// Plays one trial of each row. `make prove-run` plays twenty.
#[test]
fn nothing_is_written_after_the_lease() {
    let plan = Plan::new(Row::all(), 1);
    let played = plan.play(Guardian::On);
    println!("{}", report::table(&played));
    assert_eq!(broken(&played), Vec::<String>::new());
}

/// Proves that the harness detects a broken promise: without the guardian, the work of a frozen wrapper
/// continues.
#[test]
fn without_the_guardian_a_frozen_wrapper_is_found_out() {
    let plan = Plan::new(vec![Row::WrapperFrozen], 1);
    for played in plan.play(Guardian::Off) {
        let outcome = played.outcome.unwrap();
        assert!(
            outcome.overlaps() && outcome.margin().is_some_and(|ms| ms < 0.0),
            "{outcome:?}"
        );
    }
}

#[test]
#[ignore = "more than twelve minutes: make prove-run"]
fn every_row() {
    let plan = Plan::from_variables();
    println!("{}\n", plan.how());
    let played = plan.play(Guardian::On);
    println!("{}", report::table(&played));
    let bare = Plan::of_the_harness(&plan).play(Guardian::Off);
    println!("{}", report::without_guardian(&bare));
    assert_eq!(broken(&played), Vec::<String>::new());
    let unseen = bare
        .iter()
        .filter(|one| !one.outcome.as_ref().is_ok_and(|o| o.overlaps()));
    assert_eq!(unseen.count(), 0, "without the guardian every trial must fail");
}

/// The work of the other tests, in a separate process.
#[test]
#[ignore = "no test: a process of the others"]
fn work() {
    work::run();
}
