//! A lease is passed on when all that runs under it is stopped: because somebody asks for it, or nothing gets ready.
//!
//! The lease is kept and renewed meanwhile. What cannot be stopped in time runs on.

use std::{sync::Arc, time::Duration};

use super::{AfterStop, Effect, Index, Planted, World};
use crate::{
    api::plan::LockPlan,
    controller::{object::ObjectKey, target_task::StopRequest},
    lease::{ClusterId, FencingToken},
};

/// Why a lease is to be passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Purpose {
    /// By this request.
    Asked(String),
    /// Nothing of it gets ready.
    Unready,
}

/// A drain that is under way. The number distinguishes it from a later one of the same lock: the view of a lease that was
/// given up just now may let the same request begin once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    pub(super) purpose: Purpose,
    pub(super) number: u64,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Drained {
    pub(super) number: u64,
    pub(super) token: FencingToken,
    pub(super) to: ClusterId,
    pub(super) plan: Arc<LockPlan>,
    pub(super) bound: Duration,
    pub(in crate::controller) stopped: bool,
}

impl Index {
    pub(super) fn next_drain(&mut self, purpose: Purpose) -> Drain {
        self.in_flight.drains += 1;
        let number = self.in_flight.drains;
        Drain { purpose, number }
    }

    /// Stops what runs under this lease, within its time or this one; then the lease is passed on.
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
            // Contended for since a moment ago, or its target task has panicked: the task is started next.
            self.due.tasks.insert(key.clone());
            return;
        };
        let most = plan.timings.stop + plan.timings.lease_duration;
        let most = if unbounded { most * 100 } else { most };
        let bound = patience.min(most);
        let halt = StopRequest {
            by: at.now + bound,
            lease: Some(token),
        };
        entry.phase.drain(drain);
        let drained = Drained {
            number,
            token,
            to,
            plan,
            bound,
            stopped: false,
        };
        self.effects.push(Effect::StopTargets {
            key: key.clone(),
            halt,
            after: AfterStop::Drained(purpose, Box::new(drained)),
        });
    }

    pub(super) fn on_drained(
        &mut self,
        key: &ObjectKey,
        purpose: Purpose,
        drained: &Drained,
        at: &World<'_>,
    ) {
        let keeps = self.plants(Planted::KeepsDrain);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if !keeps {
            entry.phase.end_drain(&Drain {
                purpose: purpose.clone(),
                number: drained.number,
            });
        }
        if drained.stopped {
            // Nothing may run under this lease any more, so it ends, whatever was asked for meanwhile.
            self.effects.push(Effect::HandOver {
                quorum: drained.plan.quorum.clone(),
                lock: drained.plan.lock_name.clone(),
                token: drained.token,
                to: drained.to.clone(),
            });
        } else if entry.phase.task().is_some() {
            self.effects.push(Effect::ResumeTargets(key.clone()));
        }
        match purpose {
            Purpose::Asked(text) => self.on_asked_drained(key, text, drained, at),
            Purpose::Unready => self.on_unready_drained(key, drained),
        }
        self.answer_hand_over(key, at);
    }

    /// This replica holds this lease.
    pub(super) fn holds_lease(&self, key: &ObjectKey, token: FencingToken, at: &World<'_>) -> bool {
        let snapshot = self.snapshot(key, at);
        let authority = snapshot.and_then(|snapshot| snapshot.authority);
        authority.is_some_and(|authority| authority.token == token)
    }
}
