//! Writes the marks of a target task into the registers of its lock.

use super::TargetTask;
use crate::{
    api::plan::TAKEOVER_BESIDE_STOP,
    lease::{FencingToken, Mark},
};

impl TargetTask {
    pub(super) async fn mark(&self, token: FencingToken, mark: Mark) -> bool {
        let lock = self.config.plan.lock_name.clone();
        self.config.elector.mark(lock, token, mark).await
    }

    /// Writes that targets run under this lease, and how long other clusters have to wait after it. Called before the
    /// first target starts, and before a target starts that needs longer. Returns false if a majority did not write it.
    pub(super) async fn declare(&mut self, token: FencingToken) -> bool {
        let removed = self.removed.iter().filter(|target| target.is_undone());
        // A removed target may still run.
        let longest = removed
            .map(|target| target.stop_time + TAKEOVER_BESIDE_STOP)
            .max();
        let planned = self.config.plan.takeover_delay;
        let delay = self.leases.delays.needed(planned, longest.unwrap_or_default());
        if self.leases.delays.is_declared(token, delay) {
            return true;
        }
        if !self.mark(token, Mark::Held { delay }).await {
            return false;
        }
        self.leases.delays.declared(token, delay);
        self.config.own_tokens.remember(token.0);
        true
    }
}
