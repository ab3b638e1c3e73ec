//! What an operator before this one left running under an object that cannot be used now.
//!
//! Nobody would stop it: what is refused has no plan, and what has no plan has no target task.

use std::sync::Arc;

use super::{Effect, Index, Planted, World, decide::observe_only};
use crate::{
    api::{leader_lock::Enforcement, plan::LockPlan, validate::leftovers},
    controller::{
        index::target_key::TargetKey,
        object::ObjectKey,
        problem::{Problem, Reason},
    },
};

impl Index {
    /// Stops what may run of it: under the lock, where the masters can say who holds it; else by itself.
    pub(super) fn stop_leftovers(
        &mut self,
        key: &ObjectKey,
        wanted: &Result<Arc<LockPlan>, Problem>,
        at: &World<'_>,
    ) {
        let Some(entry) = self.locks.get(key) else { return };
        let Some(mut plan) = leftovers(&entry.object, &entry.templates.graces()) else {
            // Not even its name can be read. Nothing is known to run, and its finalizer would keep it forever.
            if entry.object.metadata.deletion_timestamp.is_some() {
                self.set_finalizer(key, false, at);
            }
            return;
        };
        // What another lock runs is not left over.
        plan.targets.retain(|target| {
            let what = TargetKey::of(&plan.namespace, &target.work);
            self.locks.taken(key, &what).is_none()
        });
        if plan.targets.is_empty() {
            self.set_finalizer(key, false, at);
            return;
        }
        // Nothing of it has to be stopped first: the lock would be given up at once, and taken again without end.
        let observed = plan.enforcement == Enforcement::Observe
            && entry.object.metadata.deletion_timestamp.is_none()
            && !self.plants(Planted::StopsObserved);
        let reason = wanted.as_ref().err().map(|problem| problem.reason);
        tracing::warn!(object = %format!("LeaderLock {key}"), reason = reason.map(Reason::name),
            "it cannot be used, and an operator before may have left its targets running: stops them");
        // The name may be another object's on the masters.
        let taken = reason == Some(Reason::DuplicateLockName);
        if !taken && !observed && self.open.get(&plan.quorum).is_some() {
            self.activate(key, observe_only(&plan), at);
        } else if let Some(entry) = self.locks.get_mut(key) {
            entry.phase.stop_leftovers(Arc::new(plan));
        }
    }

    /// Nothing of it runs any more.
    pub(super) fn forget_leftovers(&mut self, key: &ObjectKey) {
        let entry = self.locks.get_mut(key);
        if entry.is_some_and(|entry| entry.phase.forget_leftovers().is_some()) {
            self.effects.push(Effect::EndTargetTask(key.clone()));
        }
    }
}
