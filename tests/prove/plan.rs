//! Decides which trials are played, with which seeds, and how many at once.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use tokio::runtime::Runtime;

use crate::outcome::Outcome;
use crate::rows::Row;
use crate::stage::Guardian;
use crate::trial;

/// The number of trials at once. A trial mostly waits; with more trials, they would test the machine.
const SIDE_BY_SIDE: usize = 6;
const TRIALS: u64 = 20;
const WITHOUT_GUARDIAN: u64 = 3;

#[derive(Debug)]
pub struct Plan {
    rows: Vec<Row>,
    trials: u64,
    /// The seed of the first trial of each row; those of the next trials count up from it.
    seed: u64,
}

#[derive(Debug)]
pub struct Played {
    pub row: Row,
    pub seed: u64,
    /// The outcome, or the message of the panic.
    pub outcome: Result<Outcome, String>,
}

impl Plan {
    /// Creates a plan with the seed of `REDLOCK_SEED`, or with a random one. Prints the seed.
    pub fn new(rows: Vec<Row>, trials: u64) -> Self {
        let given = std::env::var("REDLOCK_SEED").ok();
        let seed = given.map_or_else(|| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap());
        println!("REDLOCK_SEED={seed}");
        Self { rows, trials, seed }
    }

    pub fn from_variables() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let rows = variable("REDLOCK_ROWS");
        let rows = rows.map_or_else(Row::all, |keys| keys.split(',').map(Row::parse).collect());
        let trials = variable("REDLOCK_TRIALS").map_or(TRIALS, |trials| trials.parse().unwrap());
        Self::new(rows, trials)
    }

    /// Returns the plan of the trials that must fail.
    pub fn of_the_harness(other: &Self) -> Self {
        Self {
            rows: vec![Row::WrapperFrozen],
            trials: other.trials.min(WITHOUT_GUARDIAN),
            seed: other.seed,
        }
    }

    /// Returns the command that plays the whole plan again.
    pub fn how(&self) -> String {
        let rows: Vec<&str> = self.rows.iter().map(|row| row.key()).collect();
        format!(
            "make prove-run ARGS='REDLOCK_SEED={} REDLOCK_TRIALS={} REDLOCK_ROWS={}'",
            self.seed,
            self.trials,
            rows.join(",")
        )
    }

    /// Plays all trials; a trial that panics is reported like the others. The trials that take the whole machine are
    /// last, one at a time.
    pub fn play(&self, guardian: Guardian) -> Vec<Played> {
        let seeds = self.seed..self.seed + self.trials;
        let all = self
            .rows
            .iter()
            .flat_map(|&row| seeds.clone().map(move |seed| (row, seed)));
        let (alone, together): (Vec<_>, Vec<_>) = all.partition(|(row, _)| row.alone());
        let runtime = Runtime::new().unwrap();
        let mut played = play(together, SIDE_BY_SIDE, guardian, &runtime);
        played.extend(play(alone, 1, guardian, &runtime));
        played.sort_by_key(|one| (self.rows.iter().position(|row| *row == one.row), one.seed));
        played
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.row.key(), self.seed)?;
        match &self.outcome {
            Ok(outcome) => {
                if let Some(margin) = outcome.margin() {
                    write!(f, "last write {margin:.1} ms before valid_until, ")?;
                }
                write!(f, "the next holder's first {:.1} ms after it", outcome.gap())
            }
            Err(panic) => write!(f, "{panic}"),
        }
    }
}

fn play(trials: Vec<(Row, u64)>, at_once: usize, guardian: Guardian, network: &Runtime) -> Vec<Played> {
    let (left, played) = (Mutex::new(trials.into_iter()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((row, seed)) = next() {
                    let play = || trial::play(row, seed, guardian, network.handle());
                    let outcome = catch_unwind(AssertUnwindSafe(play)).map_err(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        text.unwrap_or_else(|| "it panicked".into())
                    });
                    let one = Played { row, seed, outcome };
                    eprintln!("{one}");
                    played.lock().unwrap().push(one);
                }
            });
        }
    });
    played.into_inner().unwrap()
}
