//! Schedules the writes of an object's finalizer: one at a time, and after a failure with a backoff.

use std::time::Duration;

use crate::{controller::backoff::Backoff, lease::BootInstant};

/// The writes of the finalizer of one object.
#[derive(Debug, Default)]
pub(super) struct FinalizerWrites {
    under_way: bool,
    backoff: Backoff,
}

impl FinalizerWrites {
    pub(super) fn may_start(&self, now: BootInstant) -> bool {
        !self.under_way && self.backoff.is_over(now)
    }

    /// Reports whether the last write failed and its backoff is not over.
    pub(super) fn is_waiting(&self, now: BootInstant) -> bool {
        !self.backoff.is_over(now)
    }

    pub(super) fn start(&mut self) {
        self.under_way = true;
    }

    pub(super) fn end(&mut self) {
        self.under_way = false;
    }

    /// Starts the backoff after a failure; see [`Backoff::fail`].
    pub(super) fn fail(&mut self, longest: Duration, now: BootInstant, jitter: f64) {
        self.backoff.fail(longest, now, jitter);
    }

    /// Ends the backoff: the next write does not wait.
    pub(super) fn reset(&mut self) {
        self.backoff.reset();
    }
}
