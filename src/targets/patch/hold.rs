//! Decides when an object whose fields have their standby values is stopped. Pure: `now` is an argument.

use std::time::Duration;

use crate::{lease::BootInstant, targets::read::Read};

/// The result of the status checks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// All checks hold, and the status is about this generation of the object.
    Stopped,
    /// All checks hold, for an earlier generation: the status may be older than the stop.
    Outdated,
    /// All checks hold, but the status names no generation.
    Undated,
    /// A check does not hold; the text names it.
    Running(String),
}

/// The result of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The object does not exist.
    Gone,
    /// The fields have their standby values.
    Standby {
        writers: Writers,
        /// `None` if no checks are declared.
        shown: Option<Shown>,
    },
    Other,
}

/// Identifies one period of standby: a field that was changed and changed back between two reads has another
/// writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writers {
    pub(super) uid: Option<String>,
    /// The managers that own each field, with the times of their writes.
    pub(super) managers: Vec<Vec<String>>,
}

/// The knowledge of this replica about a stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    /// The fields have not been seen with their standby values.
    #[default]
    Open,
    Standby {
        /// `None` if the object does not exist.
        writers: Option<Writers>,
        /// The time of the answer that first showed the fields with these values.
        since: BootInstant,
        /// Whether the checks may have held before the fields were written. If so, they prove nothing by
        /// themselves.
        held_before: bool,
    },
}

/// The next move of a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Write the standby values.
    Write,
    /// The work may still run; the text names a check that does not hold.
    Wait(Option<String>),
    /// The status cannot show a stop: it has no generation.
    Undated,
    Stopped,
}

/// The settings of a stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) stop: Duration,
    /// Whether a status without a generation counts.
    pub(super) trusts_status: bool,
}

impl Hold {
    /// Decides on a read. `doubt` is whether an unanswered write may still start the object.
    pub(super) fn next(&mut self, found: Found, rules: Rules, read: Read, doubt: bool) -> Move {
        let (writers, shown) = match found {
            Found::Other => {
                *self = Self::Open;
                return Move::Write;
            }
            Found::Gone => (None, None),
            Found::Standby { writers, shown } => (Some(writers), shown),
        };
        let (since, held_before) = match self {
            Self::Standby {
                writers: known,
                since,
                held_before,
            } if *known == writers => (*since, *held_before),
            // Another replica or another writer may have written the fields just now.
            Self::Standby { .. } | Self::Open => (read.answered, true),
        };
        let held_before = held_before && !matches!(shown, Some(Shown::Running(_)));
        *self = Self::Standby {
            writers,
            since,
            held_before,
        };
        if doubt {
            return Move::Wait(None);
        }
        // The fields have these values at a moment after the wait.
        let over = read.asked >= since + rules.stop;
        match shown {
            None if over => Move::Stopped,
            None => Move::Wait(None),
            Some(Shown::Stopped) => Move::Stopped,
            Some(Shown::Undated) if !rules.trusts_status => Move::Undated,
            Some(Shown::Undated) if over || !held_before => Move::Stopped,
            Some(Shown::Undated | Shown::Outdated) => {
                Move::Wait(Some("the status is older than the stop".to_owned()))
            }
            Some(Shown::Running(text)) => Move::Wait(Some(text)),
        }
    }

    /// Records the answer to a write of the standby values. `before` is the result of the checks before the
    /// write.
    pub(super) fn written(&mut self, writers: Writers, before: Option<&Shown>, answered: BootInstant) {
        *self = Self::Standby {
            writers: Some(writers),
            since: answered,
            held_before: !matches!(before, Some(Shown::Running(_))),
        };
    }

    /// Returns the end of the wait for a stop that no status confirms.
    pub(super) fn ends(&self, stop: Duration) -> Option<BootInstant> {
        match self {
            Self::Standby { since, .. } => Some(*since + stop),
            Self::Open => None,
        }
    }
}

#[cfg(test)]
mod tests;
