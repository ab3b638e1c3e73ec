//! What this replica remembers of the statuses of one lock.

use super::Settled;
use crate::{
    controller::{events::EventReason, status::BlindStatus},
    lease::FencingToken,
};

#[derive(Debug, Default)]
pub(super) struct StatusMemory {
    /// The last lease of this replica, as its status names it.
    pub(super) last_held: Option<FencingToken>,
    /// The token in a status about which the masters were asked last.
    pub(super) checked: Option<CheckedToken>,
    /// The status is as this replica wrote it: nothing is known.
    pub(super) unknown: bool,
    /// The last status that this replica wrote without seeing a majority.
    pub(super) blind: Option<BlindStatus>,
    pub(super) settled: Settled,
    /// Events that are emitted when the status that is being written has been.
    pub(super) events: Vec<(EventReason, String)>,
}

/// A token in a status that is larger than what this replica saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedToken {
    pub(super) token: i64,
    /// A master may have given it.
    pub(super) plausible: bool,
}

impl StatusMemory {
    /// Whether a master may have given this token; `None` if no master was asked about it.
    pub(super) fn is_plausible(&self, token: i64) -> Option<bool> {
        let checked = self.checked.filter(|checked| checked.token == token)?;
        Some(checked.plausible)
    }
}
