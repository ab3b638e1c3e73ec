//! The lock on the masters: its tasks, and the single owner that joins them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{sync::watch, time};

use super::{
    Options, RunError,
    once::{BEGUN, ENDED, SlotClaim, SlotState},
};
use crate::{
    clock,
    elector::{Elector, ElectorTask, LockView, Silent},
    lease::{Authority, Claim, FencingToken, LockName, Terms, Timings},
    masters::{Masters, Notices, Tasks},
};

/// Time limit for the release of the lock: one release, to masters of which some hang.
const GIVING_UP: Duration = Duration::from_millis(1_200);
/// Time limit for the masters that have not answered within [`GIVING_UP`].
const CLEANING_UP: Duration = Duration::from_millis(300);

/// A task of the lock ended that must keep running: nothing is held any more.
#[derive(Debug, Error)]
#[error("contending for the lock: {0}")]
pub(crate) struct Ended(String);

pub(super) struct Election {
    pub(super) masters: Masters,
    tasks: Tasks,
    elector: Elector,
    lock: LockName,
    task: ElectorTask,
    standing: watch::Receiver<LockView>,
}

impl Election {
    /// Starts to contend for the lock.
    pub(super) async fn start(
        (masters, notices, tasks): (Masters, Notices, Tasks),
        options: &Options,
        timings: Timings,
    ) -> Result<Self, RunError> {
        // A call that takes longer than a retry period delays the retry.
        masters.set_command_timeout(timings.command_timeout(None).min(masters.command_timeout()));
        let identity = options.identity.clone();
        let (elector, task) = Elector::start(masters.clone(), notices, identity, Arc::new(Silent));
        let terms = Terms::of_own_work(masters.cluster().clone(), timings);
        elector.put(options.lock.clone(), terms);
        // The elector handles its orders in sequence: its answer shows that it has added the lock.
        elector.answers().await;
        let standing = elector.watch(&options.lock);
        let standing = standing.ok_or_else(|| Ended("the elector has ended".into()))?;
        Ok(Self {
            masters,
            tasks,
            elector,
            lock: options.lock.clone(),
            task,
            standing,
        })
    }

    /// Returns the present state of the lock.
    pub(super) fn standing(&mut self) -> LockView {
        self.standing.borrow_and_update().clone()
    }

    /// Returns the authority of the lease with this token, if it still has any.
    pub(super) fn authority(&mut self, token: FencingToken) -> Option<Authority> {
        let authority = self.standing.borrow_and_update().authority_at(clock::now());
        authority.filter(|authority| authority.token == token)
    }

    /// Reads the state of a slot, at this time by the clocks of the masters.
    pub(super) async fn slot_state(&self, claim: &SlotClaim, clock: u64) -> SlotState {
        let begun = self.elector.slots(&self.lock, BEGUN).await;
        let ended = self.elector.slots(&self.lock, ENDED).await;
        match (begun, ended) {
            (Some(begun), Some(ended)) => claim.state(&begun, &ended, clock),
            (None, _) | (_, None) => SlotState::Unknown,
        }
    }

    /// Makes one attempt to claim the slot. This process must hold the lock.
    pub(super) async fn claim_slot(&self, claim: &SlotClaim) -> Claim {
        self.elector
            .claim(&self.lock, BEGUN, claim.slot, &claim.job)
            .await
    }

    /// Makes one attempt to record that the run of this slot has ended.
    pub(super) async fn record_end(&self, claim: &SlotClaim) -> Claim {
        self.elector
            .claim(&self.lock, ENDED, claim.slot, &claim.job)
            .await
    }

    /// Reports whether the local clock stepped after the lease with this token was acquired.
    pub(super) fn clock_stepped_after(&self, token: FencingToken) -> bool {
        self.standing.borrow().clock_stepped_after(token)
    }

    /// Returns when the state of the lock differs from that of the last call. Returns `Err` once: the
    /// election cannot be used afterwards, and this method must not be called again.
    pub(super) async fn changed(&mut self) -> Result<(), Ended> {
        tokio::select! {
            changed = self.standing.changed() => changed.map_err(|_| Ended("no task contends for the lock any more".into())),
            end = &mut self.task => Err(Ended(match end {
                Ok(Ok(())) => "the elector returned".into(),
                Ok(Err(closed)) => closed.to_string(),
                Err(broken) => broken.to_string(),
            })),
            end = self.tasks.ended() => Err(Ended(end.to_string())),
        }
    }

    /// Releases the lock within a bounded time. On a master that cannot be reached, the lease expires.
    pub(super) async fn close(mut self) {
        if !self.task.is_finished() {
            self.elector.shut_down(HashSet::new());
            if time::timeout(GIVING_UP, &mut self.task).await.is_err() {
                self.task.abort();
            }
        }
        let _ = time::timeout(CLEANING_UP, self.tasks.close()).await;
    }
}
