//! Stops targets that an earlier operator left running under an object that cannot be used now.
//!
//! Otherwise, these targets would keep running: a refused object has no plan, and without a plan there is no
//! target task.

use std::sync::Arc;

use super::{Effect, Index, TargetTaskChange, World, decide::observe_only};
use crate::{
    api::{leader_lock::Enforcement, plan::LockPlan},
    controller::{
        index::target_key::TargetKey,
        object::ObjectKey,
        problem::{Problem, Reason},
    },
};

impl Index {
    /// Stops the targets that may run: as an observer of the lock if its quorum is open, and otherwise
    /// without the lock.
    pub(super) fn stop_leftovers(
        &mut self,
        key: &ObjectKey,
        wanted: &Result<Arc<LockPlan>, Problem>,
        at: &World<'_>,
    ) {
        let Some(entry) = self.locks.get(key) else { return };
        let Some(mut plan) = entry.leftover_plan() else {
            // Not even the lock name can be read. No target is known to run, and the finalizer would keep the object
            // forever.
            if entry.object.metadata.deletion_timestamp.is_some() {
                self.remove_finalizer(key, at);
            }
            return;
        };
        // A target that another lock runs is not left over.
        plan.targets.retain(|target| {
            let what = TargetKey::of(&plan.namespace, &target.work);
            self.locks.taken(key, &what).is_none()
        });
        if plan.targets.is_empty() {
            self.remove_finalizer(key, at);
            return;
        }
        // No target has to be stopped first: the lock would be withdrawn at once, and activated again
        // endlessly.
        let observed =
            plan.enforcement == Enforcement::Observe && entry.object.metadata.deletion_timestamp.is_none();
        let reason = wanted.as_ref().err().map(|problem| problem.reason);
        tracing::warn!(object = %format!("LeaderLock {key}"), reason = reason.map(Reason::name),
            "the LeaderLock cannot be used, and an earlier operator may have left its targets running: the operator \
             stops them");
        // On the masters, the name may belong to another object.
        let taken = reason == Some(Reason::DuplicateLockName);
        if !taken && !observed && self.open.get(&plan.quorum).is_some() {
            self.activate(key, observe_only(&plan), at);
        } else if let Some(entry) = self.locks.get_mut(key) {
            entry.phase.stop_leftovers(Arc::new(plan));
        }
    }

    /// Ends the stop of leftovers: none of them runs any longer.
    pub(super) fn forget_leftovers(&mut self, key: &ObjectKey) {
        let entry = self.locks.get_mut(key);
        if entry.is_some_and(|entry| entry.phase.forget_leftovers().is_some()) {
            self.effects
                .push(Effect::Targets(TargetTaskChange::End(key.clone())));
        }
    }
}
