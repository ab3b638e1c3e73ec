//! Runs many seeds on all cores and counts every fault. Used by `make simulate`.

use std::{
    num::NonZero,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    checks::Broken,
    fenced,
    planted::Planted,
    simulation::{Happened, number, run},
};

/// The interval of progress lines.
const LINE: Duration = Duration::from_secs(10);

/// All faults. A run without one of them proves nothing.
const FAULTS: [&str; 53] = [
    "FLUSHALL",
    "answer that waits after the effect",
    "batch of two locks",
    "break",
    "clock beyond the drift",
    "clock step of a master",
    "command that waits for its effect",
    "common clock step of the masters",
    "connection lost after a release",
    "connection lost before a release",
    "crash of a candidate",
    "crash of a master that keeps its memory",
    "crash of a master without memory",
    "death of a holder's elector",
    "delay",
    "duplicate",
    "forged registers",
    "forged registers repaired",
    "full memory",
    "full memory in the calm",
    "full memory of all masters",
    "hung master",
    "late ghost",
    "local clock stops",
    "local clock stops under a lease",
    "lost connection",
    "lost lease",
    "lost lease that a poll shows",
    "lost reply",
    "lost request",
    "overtaken on a new connection",
    "partition",
    "partition from all masters",
    "partition of replies alone",
    "pause past the lease",
    "refused write",
    "renewed connection",
    "reservation",
    "script sent with its text",
    "scripts forgotten",
    "server replaced",
    "seven masters",
    "shutdown while acquiring",
    "shutdown while active",
    "shutdown while ending",
    "shutdown while observing",
    "shutdown while renewing",
    "shutdown while waiting",
    "stop amid a round",
    "ten candidates",
    "timings changed during a renewal",
    "total loss",
    "win of the second lock",
];

#[test]
#[ignore = "runs for SEEDS seeds: make simulate"]
fn simulate() {
    let all = soak(run);
    all.is_prompt();
    let missing: Vec<_> = FAULTS
        .into_iter()
        .filter(|fault| all.faults.get(fault).is_none_or(|count| *count == 0))
        .collect();
    assert!(
        missing.is_empty(),
        "never happened: {missing:?}; more SEEDS are needed"
    );
}

#[test]
#[ignore = "runs for SEEDS seeds: make simulate FENCED=1"]
fn simulate_fenced() {
    soak(fenced::run);
}

fn soak(run: fn(u64, Planted, bool) -> Result<Happened, Broken>) -> Happened {
    let first = number("FIRST_SEED").unwrap_or(0);
    let seeds = number("SEEDS").unwrap_or(100_000);
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let (sender, receiver) = mpsc::channel();
    let mut all = Happened::default();
    let mut violations: Vec<(u64, Broken)> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds
                        || sender.send((seed, run(seed, Planted::default(), false))).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut done, mut printed) = (0_u64, began);
        for (seed, end) in receiver {
            done += 1;
            match end {
                Ok(happened) => all.add(happened),
                Err(broken) => {
                    println!("seed {seed}: {broken:?}\n  again: make simulate SEED={seed}");
                    violations.push((seed, broken));
                }
            }
            if printed.elapsed() >= LINE {
                printed = Instant::now();
                println!("{done} of {seeds} seeds, {} violations", violations.len());
            }
        }
    });
    let rate = seeds as f64 / began.elapsed().as_secs_f64();
    let faults: Vec<String> = all
        .faults
        .iter()
        .map(|(fault, count)| format!("{fault} {count}"))
        .collect();
    println!(
        "{seeds} seeds, {} violations, {rate:.0} seeds/s, {} leases won, {} of {} entries late, faults: {}",
        violations.len(),
        all.wins,
        all.late,
        all.entries,
        faults.join(", ")
    );
    assert!(violations.is_empty(), "{violations:?}");
    all
}
