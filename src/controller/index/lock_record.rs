//! Reads and computes the record of the targets that may run, which an object has beside its finalizer.

use std::{collections::BTreeSet, sync::Arc};

use super::{Index, lock_store::LockEntry, target_key::TargetKey, targets::has_finalizer};
use crate::{
    api::{
        in_force::InForce,
        leader_lock::Enforcement,
        plan::{LockIdentity, LockPlan, TargetPlan},
        target::Target,
        validate::{leftovers, recorded_targets},
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

    /// Returns a plan to observe the lock and to stop its targets although the object cannot be used: under the lock of
    /// the record, and with the recorded targets as well.
    pub(super) fn leftover_plan(&self) -> Option<LockPlan> {
        let graces = self.templates.graces();
        let mut plan = leftovers(&self.object, &graces)?;
        let Some(record) = self.record() else {
            return Some(plan);
        };
        if let Some(LockIdentity {
            quorum,
            lock_name,
            fencing,
        }) = record.identity()
        {
            (plan.quorum, plan.lock_name, plan.fencing) = (quorum, lock_name, fencing);
        }
        let declared = undone_keys(&plan);
        let gone = record.targets.into_iter().filter(|target| {
            let key = self.key_of(target);
            key.is_some_and(|key| !declared.contains(&key))
        });
        let gone: Vec<Target> = gone.collect();
        plan.targets
            .extend(recorded_targets(&self.object, &gone, &graces));
        Some(plan)
    }

    fn key_of(&self, target: &Target) -> Option<TargetKey> {
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        TargetKey::of_target(namespace, target)
    }

    /// Returns the record for this plan: its targets, and those that were removed and that the target task still stops.
    pub(super) fn wanted_record(&self, plan: &LockPlan) -> InForce {
        let in_hand: Option<BTreeSet<TargetKey>> = self.phase.report().map(|report| {
            let works = report.has.iter();
            works.map(|work| TargetKey::of(&plan.namespace, work)).collect()
        });
        let stops = |target: &&TargetPlan| {
            let key = TargetKey::of(&plan.namespace, &target.work);
            in_hand.as_ref().is_none_or(|keys| keys.contains(&key))
        };
        let undone = plan.targets.iter().filter(|target| target.work.is_undone());
        let all = undone.chain(plan.leftovers.iter().filter(stops));
        InForce::new(plan, all.map(|target| target.declared.as_ref().clone()).collect())
    }

    /// Reports whether targets that this plan does not declare may run, according to the object.
    pub(super) fn may_have_left(&self, plan: Option<&LockPlan>) -> bool {
        let unrecorded = self.phase.plan().is_some_and(|plan| plan.has_leftovers);
        let declared = plan.map(undone_keys).unwrap_or_default();
        unrecorded || !self.recorded_keys().is_subset(&declared)
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
            // A target that another lock switches is no longer one of this lock. A lock that only declares it waits.
            .filter(|target| {
                let what = entry.key_of(target);
                what.is_none_or(|what| self.locks.switched_by_other(key, &what).is_none())
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
