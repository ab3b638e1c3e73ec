//! Decides whether a run may run its slot of a schedule, by the registers of the masters. Pure.
//!
//! A slot that is not repeated after a crash belongs to one run, whose job is a nonce. A slot that is repeated belongs to
//! all runs alike, by one job: the lock admits one of them at a time, and the first that ends records that in a second
//! register.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

use super::schedule::MOST_AHEAD;
use crate::lease::{Fate, Gone, HolderIdentity, NO_JOB, Nonce, SlotView, plausible::nth_greatest};

/// The register of the runs that began. No object of Kubernetes has such a name.
pub(super) const BEGUN: &str = "!run";
/// The register of the runs that ended.
pub(super) const ENDED: &str = "!ended";
/// The job of every run that may repeat a slot.
const REPEATABLE: &str = "repeatable";
/// The most characters of a holder that a message shows.
const SHOWN: usize = 200;

/// Whether the slot of a run that did not end is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCrash {
    /// Another run repeats it: it may run more than once.
    Retry,
    /// No other run begins it: it may not run to its end.
    Skip,
}

/// The slot of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OncePer {
    /// In seconds since 1970.
    pub(crate) slot: u64,
    pub(crate) on_crash: OnCrash,
}

impl OncePer {
    /// Returns the time of the slot, as messages and the command read it.
    pub(super) fn time(self) -> String {
        time(self.slot)
    }
}

/// The claim of one run to its slot.
#[derive(Clone, Debug)]
pub(super) struct SlotClaim {
    pub(super) slot: u64,
    pub(super) on_crash: OnCrash,
    /// The run, as the registers name it.
    pub(super) job: Arc<str>,
}

/// Why a slot can never belong to this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotConflict {
    /// Another run has it.
    By { holder: String },
    /// A run has run it, or a later slot, to its end.
    Ended,
    /// Another run has a later slot.
    Passed { slot: u64, holder: String },
    /// A register has a slot that no right clock has reached: every slot before it is refused.
    Blocked { slot: u64 },
    /// No claim up to this time is on record.
    Unrecorded { floor: u64 },
    /// The masters have different runs on record.
    Split,
}

impl SlotConflict {
    /// Reports whether another run has this slot or a later one. Otherwise no run is known to have it.
    pub(crate) fn is_of_a_run(&self) -> bool {
        match self {
            Self::By { .. } | Self::Ended | Self::Passed { .. } => true,
            Self::Blocked { .. } | Self::Unrecorded { .. } | Self::Split => false,
        }
    }

    fn of(gone: Gone, clock: u64) -> Self {
        match gone {
            Gone::To(job) => Self::By { holder: holder(&job) },
            Gone::Passed { slot, .. } if seconds_ahead(slot, clock).is_some() => Self::Blocked { slot },
            // Different runs claimed the later slot.
            Gone::Passed { job, .. } if &*job == NO_JOB => Self::Split,
            Gone::Passed { slot, job } => Self::Passed {
                slot,
                holder: holder(&job),
            },
            Gone::Unrecorded { floor } => Self::Unrecorded { floor },
            Gone::Lost => Self::Split,
        }
    }
}

impl fmt::Display for SlotConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By { holder } => write!(f, "it belongs to the run of {holder}"),
            Self::Ended => f.write_str("it has run to its end"),
            Self::Passed { slot, holder } => {
                write!(f, "the run of {holder} has the later slot {}", time(*slot))
            }
            Self::Blocked { slot } => write!(
                f,
                "the masters have the slot {} on record, which is ahead of their clocks: every slot before it is refused; \
                 see \"A slot that is ahead of the clocks\" in docs/run.md",
                time(*slot)
            ),
            Self::Unrecorded { floor } => write!(
                f,
                "the masters have no record of slots up to {}, because they were new or had lost their memory",
                time(*floor)
            ),
            Self::Split => {
                f.write_str("the masters have different runs on record, so that no run may have it")
            }
        }
    }
}

/// The state of a slot for one run, by the registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The holder of the lock may claim it.
    Open,
    /// This run can never have it.
    Taken(SlotConflict),
    /// Too few masters answered.
    Unknown,
}

impl SlotClaim {
    pub(super) fn new(once: OncePer, holder: &HolderIdentity, nonce: Nonce) -> Self {
        let job = match once.on_crash {
            OnCrash::Retry => format!("{REPEATABLE}@{holder}"),
            OnCrash::Skip => format!("{nonce}@{holder}"),
        };
        Self {
            slot: once.slot,
            on_crash: once.on_crash,
            job: job.into(),
        }
    }

    /// Returns by how many seconds the slot is further ahead of the masters' clocks than a run may be: a claim of it would
    /// refuse every slot before it (P-122).
    pub(super) fn seconds_ahead(&self, clock: u64) -> Option<u64> {
        seconds_ahead(self.slot, clock)
    }

    /// Returns the state of the slot by the masters' clocks, and by the registers of the runs that began and of those that
    /// ended. A run that may repeat a slot relies on this only if both were read while it held the lock: until then, another
    /// run may end (P-122).
    pub(super) fn state(&self, begun: &SlotView, ended: &SlotView, clock: u64) -> SlotState {
        match (begun.fate(self.slot, &self.job), self.on_crash) {
            (Fate::Gone(gone), _) => SlotState::Taken(SlotConflict::of(gone, clock)),
            (Fate::Mine | Fate::Open, OnCrash::Skip) => SlotState::Open,
            // A run writes its end only after its command has ended, so one master that shows it is enough.
            (Fate::Mine | Fate::Open, OnCrash::Retry) => match ended.latest() {
                Some(slot) if seconds_ahead(slot, clock).is_some() => {
                    SlotState::Taken(SlotConflict::Blocked { slot })
                }
                _ => match ended.is_reached(self.slot) {
                    Some(true) => SlotState::Taken(SlotConflict::Ended),
                    Some(false) => SlotState::Open,
                    None => SlotState::Unknown,
                },
            },
        }
    }

    /// Returns the slot as messages name it.
    pub(super) fn shown(&self) -> String {
        format!("slot {}", time(self.slot))
    }
}

/// Returns the time since 1970 that a majority of the masters' clocks has reached; `None` if fewer show a time. With at most
/// f wrong clocks, it is not ahead of every right one.
pub(super) fn clock_of(clocks: impl Iterator<Item = u64>, majority: usize) -> Option<u64> {
    nth_greatest(clocks, majority)
}

/// Returns by how many seconds a slot is ahead of this time, if that is more than any run with a right clock is.
fn seconds_ahead(slot: u64, clock: u64) -> Option<u64> {
    let ahead = slot.saturating_sub(clock);
    (ahead > MOST_AHEAD).then_some(ahead)
}

/// Returns the holder in a job that a master showed.
fn holder(job: &str) -> String {
    let name = job.split_once('@').map_or(job, |(_, holder)| holder);
    name.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

fn time(slot: u64) -> String {
    let time = i64::try_from(slot).map(Timestamp::from_second);
    match time {
        Ok(Ok(time)) => time.to_string(),
        _ => slot.to_string(),
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
