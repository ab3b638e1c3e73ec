//! The state that the parts of the agent share: its view of the lock, and whether it is about to give up the
//! lock.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    clock,
    elector::{Elector, LockView},
    lease::{BootInstant, LockName},
    operator::state::{InUse, ProcessState},
};

/// The phase of the agent. The phases follow in this order, but `Yielding` leads back to `Contending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The masters are not known yet.
    Opening,
    Contending,
    /// The agent reports that it is not active, and releases the lock at this time.
    Yielding(BootInstant),
    /// Like `Yielding`, but permanently.
    Stopping,
}

/// Whether the agent gives up the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yields {
    Yes,
    /// There is no lease to give up, and no elector yet that could be asked to abstain from the lock.
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

    /// Reports whether the agent may be active at all.
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

    /// Makes the agent report, from this point, that it holds no lock. Returns the end of the time that the
    /// app has to stop.
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

    /// Makes the agent report that it is not active. The agent gives up the lock when the app has had its
    /// time to stop.
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
            // `self` owns the sender, so this does not fail.
            let _ = phase.changed().await;
        }
    }

    pub(super) fn elector(&self) -> Option<Elector> {
        let in_use = self.state.in_use.load();
        in_use.quorums.first().map(|quorum| quorum.elector.clone())
    }

    /// Returns the view of the lock, if the agent contends for it.
    pub(super) fn view(&self) -> Option<watch::Receiver<LockView>> {
        self.elector()?.watch(&self.lock)
    }

    /// Waits until this process no longer holds the lock.
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
