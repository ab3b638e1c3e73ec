//! The outcome of a trial.

use redlock::lease::BootInstant;

use crate::delays::Delays;
use crate::plan::Played;
use crate::rows::{Promise, Row};

#[derive(Debug)]
pub struct Outcome {
    /// The end of the old holder's lease; `None` if the lease was released.
    pub valid_until: Option<BootInstant>,
    /// The last write of the old holder.
    pub last: BootInstant,
    /// The first write of the new holder.
    pub first: BootInstant,
    pub old_token: u64,
    pub new_token: u64,
    /// Number of writes of the old holder after the first write of the new one.
    pub late: usize,
    /// Number of writes of the old holder that the resource accepted after one of the new holder.
    pub let_in: usize,
    /// The delays that the machine caused to the processes of the trial.
    pub delays: Delays,
}

/// Returns the signed milliseconds from `from` to `to`.
fn milliseconds(from: BootInstant, to: BootInstant) -> f64 {
    (to.since(from).as_secs_f64() - from.since(to).as_secs_f64()) * 1000.0
}

impl Outcome {
    /// Returns the milliseconds from the last write of the old holder to the end of its lease.
    pub fn margin(&self) -> Option<f64> {
        self.valid_until.map(|end| milliseconds(self.last, end))
    }

    /// Returns the milliseconds from the last write of the old holder to the first write of the new one.
    pub fn gap(&self) -> f64 {
        milliseconds(self.last, self.first)
    }

    pub fn overlaps(&self) -> bool {
        self.last >= self.first
    }

    pub fn tokens_grow(&self) -> bool {
        self.new_token > self.old_token
    }

    fn wrongs(&self, row: Row) -> Vec<&'static str> {
        let kept = row.promise() == Promise::Kept;
        let wrongs = [
            (kept && self.overlaps(), "both wrote"),
            (
                kept && self.margin().is_some_and(|ms| ms <= 0.0),
                "a write after the lease",
            ),
            (!self.tokens_grow(), "the token did not grow"),
            (self.let_in > 0, "the resource let a late write in"),
        ];
        let wrongs = wrongs.into_iter().filter(|(wrong, _)| *wrong);
        wrongs.map(|(_, what)| what).collect()
    }
}

/// Returns the promises that were not kept, with the command that plays each trial again.
pub fn broken(played: &[Played]) -> Vec<String> {
    let of_one = |played: &Played| {
        let again = format!(
            "make prove-run ARGS='REDLOCK_ROWS={} REDLOCK_TRIALS=1 REDLOCK_SEED={}'",
            played.row.key(),
            played.seed
        );
        match &played.outcome {
            Err(panic) => vec![format!("{again}: {panic}")],
            Ok(outcome) => {
                let wrongs = outcome.wrongs(played.row).into_iter();
                wrongs
                    .map(|wrong| format!("{again}: {wrong}: {outcome:?}; {}", outcome.delays))
                    .collect()
            }
        }
    };
    played.iter().flat_map(of_one).collect()
}
