//! Writes the marks of a target task into the registers of its lock.

use std::time::Duration;

use super::TargetTask;
use crate::{
    api::plan::TAKEOVER_MARGIN,
    controller::problem::{Problem, Reason},
    lease::{FencingToken, Mark},
};

/// The reason why nothing may be started yet.
pub(super) enum Undeclared {
    /// The first list of the pods of a fenced lock is under way, or its lease is being handed to this
    /// cluster.
    Awaited,
    Trouble(Problem),
}

impl TargetTask {
    pub(super) async fn mark(&self, token: FencingToken, mark: Mark) -> bool {
        let lock = self.config.plan.lock_name.clone();
        self.config.elector.mark(lock, token, mark).await
    }

    /// Writes that targets run under this lease, and how long other clusters have to wait after its end.
    /// Called before the first target starts (P-81), and before a target that needs longer starts. Returns why the
    /// mark is not written.
    pub(super) async fn declare(&mut self, token: FencingToken) -> Result<(), Undeclared> {
        let (planned, removed) = if self.fencing.is_some() {
            (self.fenced_delay(token).await?, Duration::ZERO)
        } else {
            let removed = self.removed.iter().filter(|target| target.is_undone());
            // A removed target may still run.
            let longest = removed.map(|target| target.stop_time + TAKEOVER_MARGIN);
            (self.config.plan.takeover_delay, longest.max().unwrap_or_default())
        };
        let delay = self.leases.delays.needed(planned, removed);
        if self.leases.delays.is_declared(token, delay) {
            return Ok(());
        }
        if !self.mark(token, Mark::Held { delay }).await {
            let text = "a majority of the masters did not record that targets start, or that they need longer to stop";
            return Err(Undeclared::Trouble(Problem::new(Reason::NotMarked, text)));
        }
        self.leases.delays.declared(token, delay);
        self.config.own_tokens.remember(token.0);
        Ok(())
    }
}
