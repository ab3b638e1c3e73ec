//! The lock on the masters: the tasks behind it, and the one owner that joins them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{sync::watch, time};

use super::{Options, RunError};
use crate::{
    clock,
    elector::{Elector, ElectorTask, LockView, Silent},
    lease::{Authority, FencingToken, Terms, Timings},
    masters::{Masters, Notices, Tasks},
};

/// How long giving the lock back may take: one release, to masters of which some hang.
const GIVING_UP: Duration = Duration::from_millis(1_200);
/// How long the masters that had not answered by then are waited for.
const CLEANING_UP: Duration = Duration::from_millis(300);

/// A task behind the lock ended that must not end: nothing is held any more.
#[derive(Debug, Error)]
#[error("contending for the lock: {0}")]
pub(crate) struct Ended(String);

pub(super) struct Election {
    pub(super) masters: Masters,
    tasks: Tasks,
    elector: Elector,
    task: ElectorTask,
    standing: watch::Receiver<LockView>,
}

impl Election {
    /// Begins to contend.
    pub(super) async fn start(
        (masters, notices, tasks): (Masters, Notices, Tasks),
        options: &Options,
        timings: Timings,
    ) -> Result<Self, RunError> {
        // A command that outlasts a retry period holds up the retry.
        masters.set_command_timeout(timings.command_timeout(None).min(masters.command_timeout()));
        let identity = options.identity.clone();
        let (elector, task) = Elector::start(masters.clone(), notices, identity, Arc::new(Silent));
        let terms = Terms::of_own_work(masters.cluster().clone(), timings);
        elector.put(options.lock.clone(), terms);
        // It takes its orders in turn.
        elector.answers().await;
        let standing = elector.watch(&options.lock);
        let standing = standing.ok_or_else(|| Ended("the elector has ended".into()))?;
        Ok(Self {
            masters,
            tasks,
            elector,
            task,
            standing,
        })
    }

    /// How the lock stands now.
    pub(super) fn standing(&mut self) -> LockView {
        self.standing.borrow_and_update().clone()
    }

    /// What the lease with this token is still good for.
    pub(super) fn authority(&mut self, token: FencingToken) -> Option<Authority> {
        let authority = self.standing.borrow_and_update().authority_at(clock::now());
        authority.filter(|authority| authority.token == token)
    }

    /// Whether the local clock stepped after the lease with this token was acquired.
    pub(super) fn clock_stepped_after(&self, token: FencingToken) -> bool {
        self.standing.borrow().clock_stepped_after(token)
    }

    /// Returns when the state of the lock differs from the one of the last call. `Err` is returned once; the election
    /// is of no use after it, and must not be called again.
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

    /// Releases the lock, in bounded time. On a master that cannot be informed, the lease runs out.
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
