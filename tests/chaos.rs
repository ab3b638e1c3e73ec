//! Tests real masters, real operators and real `redlock run`s under all faults at once, while an observer records the
//! holders.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "chaos/cast.rs"]
mod cast;
#[path = "chaos/claims.rs"]
mod claims;
mod common;
#[path = "chaos/draw.rs"]
mod draw;
#[path = "chaos/kinds.rs"]
mod kinds;
#[path = "chaos/naive.rs"]
mod naive;
#[path = "chaos/plan.rs"]
mod plan;
#[path = "chaos/play.rs"]
mod play;
#[path = "chaos/poll.rs"]
mod poll;
#[path = "chaos/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "commands/program.rs"]
mod program;
#[path = "chaos/report.rs"]
mod report;
#[path = "chaos/stage.rs"]
mod stage;
#[path = "chaos/stray.rs"]
mod stray;
#[path = "chaos/strike.rs"]
mod strike;
#[path = "chaos/traces.rs"]
mod traces;
#[path = "chaos/wall.rs"]
mod wall;
#[path = "chaos/watch.rs"]
mod watch;
#[path = "chaos/work.rs"]
mod work;

use plan::Plan;
use report::Report;

const SHORT: u64 = 90;
const LONG: u64 = 20 * 60;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a number is needed")),
    )
}

fn play(seconds: u64) {
    let seed = variable("REDLOCK_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let plan = Plan::new(seed, seconds);
    println!("{}\n", plan.again());
    let (played, seen) = play::play(&plan);
    let report = Report::new(&plan, &played, &seen);
    println!("\n{report}");
    let wrongs = report.wrongs();
    if !wrongs.is_empty() {
        let kept = report.keep();
        let wrongs = wrongs.join("\n  ");
        panic!(
            "{wrongs}\nacts, claims and logs: {}\nagain: {}",
            kept.display(),
            plan.again()
        );
    }
}

/// Runs for ninety seconds with every kind of fault. `make chaos` runs for twenty minutes.
#[test]
fn no_lock_is_held_twice_under_faults() {
    play(SHORT);
}

#[test]
#[ignore = "twenty minutes: make chaos"]
fn chaos() {
    play(variable("REDLOCK_SECONDS").unwrap_or(LONG));
}

/// The work under `redlock run`, in a separate process.
#[test]
#[ignore = "no test: a process of the others"]
fn work() {
    work::run();
}
