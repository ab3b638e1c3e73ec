//! Keeps the memory of this replica about the statuses of one lock.

use super::Settled;
use crate::{
    controller::{events::EventReason, status::BlindStatus},
    lease::FencingToken,
};

#[derive(Debug, Default)]
pub(super) struct StatusMemory {
    /// The token of the last lease of this replica, as the status names it.
    pub(super) last_held: Option<FencingToken>,
    /// The token in a status about which the masters were asked last.
    pub(super) checked: Option<CheckedToken>,
    /// Whether the last status that this replica wrote reports an unknown state.
    pub(super) unknown: bool,
    /// The last status that this replica wrote without a majority.
    pub(super) blind: Option<BlindStatus>,
    pub(super) settled: Settled,
    /// Whether an event reported why the lock cannot be given up.
    pub(super) departure_reported: bool,
    /// Events to emit once the status is written.
    pub(super) events: Vec<(EventReason, String)>,
}

/// A token in a status that is larger than any token that this replica saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedToken {
    pub(super) token: i64,
    /// Whether a master may have issued it.
    pub(super) plausible: bool,
}

impl StatusMemory {
    /// Reports whether a master may have issued this token; `None` if no master was asked about it.
    pub(super) fn is_plausible(&self, token: i64) -> Option<bool> {
        let checked = self.checked.filter(|checked| checked.token == token)?;
        Some(checked.plausible)
    }
}
