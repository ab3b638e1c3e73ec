//! What the agent's parts share: how it stands by the lock, and whether it is about to give it up.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    clock,
    elector::{Elector, LockView},
    lease::{BootInstant, LockName},
    operator::state::{InUse, ProcessState},
};

/// From one to the next, and back from `Yielding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The masters are not known yet.
    Opening,
    Contending,
    /// Reports that it is not active, then releases the lock.
    Yielding(BootInstant),
    /// The same, for good.
    Stopping,
}

/// Whether it will give the lock up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yields {
    Yes,
    /// There is no lease to give up, and no process that could be asked to leave the lock alone.
    NotYet,
}

#[derive(Debug)]
pub(super) struct Post {
    pub(super) state: Arc<ProcessState>,
    pub(super) lock: LockName,
    pub(super) stop_grace: Duration,
    phase: watch::Sender<Phase>,
}

impl Post {
    pub(super) fn new(state: Arc<ProcessState>, lock: LockName, stop_grace: Duration) -> Self {
        Self {
            state,
            lock,
            stop_grace,
            phase: watch::Sender::new(Phase::Opening),
        }
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Whether it may be active at all.
    pub(super) fn contends(&self) -> bool {
        *self.phase.borrow() == Phase::Contending
    }

    /// Enters a phase, except from `Stopping`, which is the last one.
    pub(super) fn enter(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let enters = *phase != Phase::Stopping && *phase != next;
            if enters {
                *phase = next;
            }
            enters
        });
    }

    pub(super) fn waits_for(&self, problem: &str) {
        self.state.in_use.store(Arc::new(InUse {
            problems: vec![problem.to_owned()],
            ..InUse::default()
        }));
    }

    pub(super) fn opened(&self, in_use: InUse) {
        self.state.in_use.store(Arc::new(in_use));
        self.enter(Phase::Contending);
    }

    /// From here on the agent reports no lock as held. Returns the end of the time that the app has to stop.
    pub(super) fn stop(&self) -> BootInstant {
        let until = match self.phase.send_replace(Phase::Stopping) {
            Phase::Yielding(at) => at,
            Phase::Opening | Phase::Contending | Phase::Stopping => clock::now() + self.stop_grace,
        };
        let before = self.state.in_use.load();
        self.state.in_use.store(Arc::new(InUse {
            quorums: before.quorums.clone(),
            problems: before.problems.clone(),
            stopping: true,
            ..InUse::default()
        }));
        until
    }

    /// From here on the agent reports that it is not active; it gives the lock up when the app has had its time.
    pub(super) fn step_down(&self, now: BootInstant) -> Yields {
        let at = now + self.stop_grace;
        self.phase.send_if_modified(|phase| {
            let begins = *phase == Phase::Contending;
            if begins {
                *phase = Phase::Yielding(at);
            }
            begins
        });
        match *self.phase.borrow() {
            Phase::Opening => Yields::NotYet,
            _ => Yields::Yes,
        }
    }

    /// Waits for a request to give up the lock, and returns the time at which to do so.
    pub(super) async fn yields(&self) -> BootInstant {
        let mut phase = self.phase.subscribe();
        loop {
            if let Phase::Yielding(at) = *phase.borrow_and_update() {
                return at;
            }
            // The sender is here.
            let _ = phase.changed().await;
        }
    }

    pub(super) fn elector(&self) -> Option<Elector> {
        let in_use = self.state.in_use.load();
        in_use.quorums.first().map(|quorum| quorum.elector.clone())
    }

    /// How the lock stands, where it is contended for.
    pub(super) fn view(&self) -> Option<watch::Receiver<LockView>> {
        self.elector()?.watch(&self.lock)
    }

    /// Waits until the lock is not held by this process.
    pub(super) async fn given_up(&self, elector: &Elector) {
        while let Some(mut view) = elector.watch(&self.lock) {
            let Some(authority) = view.borrow_and_update().authority_at(clock::now()) else {
                return;
            };
            tokio::select! {
                _ = view.changed() => {}
                () = clock::sleep_until(authority.valid_until) => {}
            }
        }
    }
}
