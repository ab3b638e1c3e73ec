//! Drains a lock: stops its targets, then hands over its lease, on request or because the targets do not become ready.
//!
//! The lease is renewed during the drain. Targets that cannot be stopped in time keep running.

use std::{sync::Arc, time::Duration};

use super::{AfterStop, Effect, ElectorChange, Index, Planted, TargetTaskChange, World};
use crate::{
    api::plan::LockPlan,
    controller::{
        object::ObjectKey,
        target_task::{StopRequest, StopScope},
    },
    lease::{ClusterId, FencingToken},
};

/// The reason for a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Purpose {
    /// This request for a hand-over.
    Asked(String),
    /// The targets do not become ready.
    Unready,
}

/// A drain under way. The number distinguishes it from a later drain of the same lock: the view of a lease that was
/// just given up may let the same request begin again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    pub(super) purpose: Purpose,
    pub(super) number: u64,
}

/// The result of a drain.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Drained {
    pub(super) number: u64,
    pub(super) token: FencingToken,
    pub(super) to: ClusterId,
    pub(super) plan: Arc<LockPlan>,
    pub(super) bound: Duration,
    pub(in crate::controller) stopped: bool,
    /// Whether the end is recorded as clean on the masters.
    pub(in crate::controller) clean: bool,
}

impl Drained {
    /// Reports whether the lease ends now, after the stop of the targets (P-60): it is passed on, or left to run
    /// out for another cluster. The lease of a fenced lock is passed on only after a confirmed end. Without a
    /// confirmation, a failover leaves it to run out, since this cluster abstains.
    pub(super) fn ends(&self, purpose: &Purpose) -> bool {
        self.stopped && (self.is_confirmed() || *purpose == Purpose::Unready)
    }

    /// Reports whether another cluster may acquire the lock at once.
    pub(super) fn is_confirmed(&self) -> bool {
        self.clean || !self.plan.is_fenced()
    }
}

impl Index {
    pub(super) fn next_drain(&mut self, purpose: Purpose) -> Drain {
        self.in_flight.drains += 1;
        let number = self.in_flight.drains;
        Drain { purpose, number }
    }

    /// Stops the targets under this lease, within the shorter of their stop time and `patience`; then the
    /// lease is handed over.
    pub(super) fn drain(
        &mut self,
        key: &ObjectKey,
        token: FencingToken,
        to: ClusterId,
        purpose: Purpose,
        patience: Duration,
        at: &World<'_>,
    ) {
        let unbounded = self.plants(Planted::DrainsByWallClock);
        let drain = self.next_drain(purpose.clone());
        let number = drain.number;
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        // An order to a task that has panicked would be lost.
        let ended = at.views.target_task_ended(key);
        let task = entry.phase.task().filter(|task| !task.broken && !ended);
        let (Some(plan), Some(_)) = (entry.phase.active_plan().cloned(), task) else {
            // The lock has just become active, or its target task has panicked: the task is started next.
            self.due.tasks.insert(key.clone());
            return;
        };
        let most = plan.stop_bound();
        let most = if unbounded { most * 100 } else { most };
        let bound = patience.min(most);
        let halt = StopRequest {
            by: at.now + bound,
            scope: StopScope::Lease(token),
        };
        entry.phase.drain(drain);
        let drained = Drained {
            number,
            token,
            to,
            plan,
            bound,
            stopped: false,
            clean: false,
        };
        self.effects.push(Effect::Targets(TargetTaskChange::Stop {
            key: key.clone(),
            halt,
            after: AfterStop::Drained(purpose, Box::new(drained)),
        }));
    }

    pub(super) fn on_drained(
        &mut self,
        key: &ObjectKey,
        purpose: Purpose,
        drained: &Drained,
        at: &World<'_>,
    ) {
        let keeps = self.plants(Planted::KeepsDrain);
        let passes = drained.stopped && self.plants(Planted::PassesUnconfirmed);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if !keeps {
            entry.phase.end_drain(&Drain {
                purpose: purpose.clone(),
                number: drained.number,
            });
        }
        if passes || drained.ends(&purpose) {
            // Targets must not start again under this lease, so it ends even if the request has changed.
            self.effects.push(Effect::Elector(ElectorChange::HandOver {
                quorum: drained.plan.quorum.clone(),
                lock: drained.plan.lock_name.clone(),
                token: drained.token,
                to: drained.to.clone(),
            }));
        } else if entry.phase.task().is_some() {
            self.effects
                .push(Effect::Targets(TargetTaskChange::Resume(key.clone())));
        }
        match purpose {
            Purpose::Asked(text) => self.on_asked_drained(key, text, drained, at),
            Purpose::Unready => self.on_unready_drained(key, drained),
        }
        self.answer_hand_over(key, at);
    }

    /// Reports whether this replica holds this lease.
    pub(super) fn holds_lease(&self, key: &ObjectKey, token: FencingToken, at: &World<'_>) -> bool {
        let snapshot = self.snapshot(key, at);
        let authority = snapshot.and_then(|snapshot| snapshot.authority);
        authority.is_some_and(|authority| authority.token == token)
    }
}
