//! A lease is passed on when all that runs under it is stopped: because somebody asks for it, or nothing gets ready.
//!
//! The lease is kept and renewed meanwhile. What cannot be stopped in time runs on.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{Core, Job};
use crate::{
    api::plan::LockPlan,
    clock,
    controller::{
        object::ObjectKey,
        target_task::{Command, StopRequest},
    },
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

/// How it ended.
#[derive(Debug)]
pub(super) struct Drained {
    pub(super) token: FencingToken,
    pub(super) to: ClusterId,
    pub(super) plan: Arc<LockPlan>,
    pub(super) bound: Duration,
    pub(super) stopped: bool,
}

impl Core {
    /// Stops what runs under this lease, within its time or this one; then the lease is passed on.
    pub(super) fn drain(
        &mut self,
        key: &ObjectKey,
        token: FencingToken,
        to: ClusterId,
        purpose: Purpose,
        patience: Duration,
    ) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let (Some(plan), Some(warden)) = (entry.put.clone(), &entry.warden) else {
            // Put a moment ago: whoever is to stop what runs is not there yet.
            self.wardens_due.insert(key.clone());
            return;
        };
        let bound = patience.min(plan.timings.stop + plan.timings.lease_duration);
        let (done, stopped) = oneshot::channel();
        let halt = StopRequest {
            by: clock::now() + bound,
            lease: Some(token),
        };
        warden.send(Command::Stop(halt, done));
        entry.draining = Some(purpose.clone());
        let key = key.clone();
        let end = move |stopped| {
            let drained = Drained {
                token,
                to: to.clone(),
                plan: plan.clone(),
                bound,
                stopped,
            };
            Job::Drained(key.clone(), purpose.clone(), Box::new(drained))
        };
        // By the warden's time, which knows best whether it can still be taken back.
        self.jobs
            .start(end(false), async move { end(stopped.await.is_ok()) });
    }

    pub(super) fn on_drained(&mut self, key: &ObjectKey, purpose: Purpose, drained: &Drained) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        entry.draining = None;
        if drained.stopped {
            // Nothing may run under this lease any more, so it ends, whatever was asked for meanwhile.
            let (lock, to) = (drained.plan.lock_name.clone(), drained.to.clone());
            if let Some(quorum) = self.fleet.get(&drained.plan.quorum) {
                quorum.elector.hand_over_lease(lock, drained.token, to);
            }
        } else if let Some(warden) = &entry.warden {
            warden.send(Command::Resume);
        }
        match purpose {
            Purpose::Asked(text) => self.on_asked_drained(key, text, drained),
            Purpose::Unready => self.on_unready_drained(key, drained),
        }
        self.answer_hand_over(key);
    }

    /// This replica holds this lease.
    pub(super) fn holds_lease(&self, key: &ObjectKey, token: FencingToken) -> bool {
        let standing = self.standing(key);
        let authority = standing.and_then(|standing| standing.borrow().authority_at(clock::now()));
        authority.is_some_and(|authority| authority.token == token)
    }
}
