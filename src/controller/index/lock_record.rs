//! Reads and computes the record of the targets that may run, which an object has beside its finalizer.

use std::{collections::BTreeSet, sync::Arc};

use super::{Index, lock_store::LockEntry, target_key::TargetKey, targets::has_finalizer};
use crate::{
    api::{
        in_force::InForce,
        leader_lock::Enforcement,
        plan::LockPlan,
        target::{Action, Target},
        validate::recorded_targets,
    },
    controller::object::ObjectKey,
};

impl LockEntry {
    /// Returns the record of an object with the finalizer.
    pub(super) fn record(&self) -> Option<InForce> {
        InForce::on(&self.object).filter(|_| has_finalizer(&self.object))
    }

    /// Reports whether the object has the finalizer, and its record names the lock of this plan or none.
    pub(super) fn is_guarded_for(&self, plan: &LockPlan) -> bool {
        has_finalizer(&self.object)
            && self.record().is_none_or(|record| {
                record
                    .identity()
                    .is_some_and(|identity| identity == plan.identity())
            })
    }

    /// Reports whether the targets of this plan may be started: the record names the lock and all of them.
    pub(super) fn is_recorded(&self, plan: &LockPlan) -> bool {
        let keys = self.recorded_keys();
        self.is_guarded_for(plan) && self.record().is_some() && undone_keys(plan).is_subset(&keys)
    }

    /// Returns the targets that may run according to the record.
    pub(super) fn recorded_keys(&self) -> BTreeSet<TargetKey> {
        let record = self.record();
        let targets = record.iter().flat_map(|record| &record.targets);
        targets.filter_map(|target| self.key_of(target)).collect()
    }

    fn key_of(&self, target: &Target) -> Option<TargetKey> {
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        TargetKey::of_target(namespace, target)
    }

    /// Returns the record for this plan: its targets, and recorded ones that the target task still stops.
    pub(super) fn wanted_record(&self, plan: &LockPlan) -> InForce {
        let planned = undone_keys(plan);
        let in_hand: Option<BTreeSet<TargetKey>> = self.phase.report().map(|report| {
            let works = report.has.iter();
            works.map(|work| TargetKey::of(&plan.namespace, work)).collect()
        });
        let declared = self.object.spec.targets.iter();
        let declared: Vec<Target> = declared
            .filter(|target| target.action != Action::OncePerSchedule)
            .filter(|target| self.key_of(target).is_some_and(|key| planned.contains(&key)))
            .cloned()
            .collect();
        let declared_keys: BTreeSet<TargetKey> =
            declared.iter().filter_map(|target| self.key_of(target)).collect();
        let kept = self.record().into_iter().flat_map(|record| record.targets);
        let kept = kept.filter(|target| {
            self.key_of(target).is_some_and(|key| {
                let used = planned.contains(&key) || in_hand.as_ref().is_none_or(|keys| keys.contains(&key));
                used && !declared_keys.contains(&key)
            })
        });
        InForce::new(plan, kept.chain(declared.iter().cloned()).collect())
    }

    /// Reports whether the record names targets that neither the plan nor the target task has any longer.
    pub(super) fn records_too_much(&self, plan: &LockPlan) -> bool {
        let wanted = self.wanted_record(plan).targets;
        let wanted: BTreeSet<TargetKey> = wanted.iter().filter_map(|target| self.key_of(target)).collect();
        !self.recorded_keys().is_subset(&wanted)
    }
}

/// Returns the targets of a plan that have to be stopped when its lease ends.
fn undone_keys(plan: &LockPlan) -> BTreeSet<TargetKey> {
    let undone = plan.targets.iter().filter(|target| target.work.is_undone());
    undone
        .map(|target| TargetKey::of(&plan.namespace, &target.work))
        .collect()
}

impl Index {
    /// Adds the targets to the plan that were removed from the spec and may still run.
    pub(super) fn with_leftovers(&self, key: &ObjectKey, plan: Arc<LockPlan>) -> Arc<LockPlan> {
        let Some(entry) = self.locks.get(key).filter(|entry| entry.is_guarded_for(&plan)) else {
            return plan;
        };
        let Some(record) = entry.record() else {
            let has_leftovers = !plan.guards();
            return Arc::new(LockPlan {
                has_leftovers,
                ..plan.as_ref().clone()
            });
        };
        let declared = undone_keys(&plan);
        let gone: Vec<Target> = record
            .targets
            .into_iter()
            .filter(|target| entry.key_of(target).is_some_and(|key| !declared.contains(&key)))
            // A target of another lock is no longer one of this lock.
            .filter(|target| {
                let other = entry.key_of(target).and_then(|what| self.locks.taken(key, &what));
                other.is_none()
            })
            .collect();
        if gone.is_empty() || plan.enforcement == Enforcement::Observe {
            return plan;
        }
        let leftovers = recorded_targets(&entry.object, &gone, &entry.templates.graces());
        Arc::new(LockPlan {
            leftovers,
            ..plan.as_ref().clone()
        })
    }
}
