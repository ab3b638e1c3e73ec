//! Withdraws a lock: its targets are stopped first, then the lock is given up.

use std::time::Duration;

use super::{
    AfterStop, Effect, Index, Planted, World,
    decide::UNCONFIRMED,
    departure::{Departing, Departure, departure},
};
use crate::{
    api::{
        leader_lock::{Candidates, DeletionPolicy, Enforcement},
        plan::LockPlan,
    },
    controller::{
        index::{
            lock_store::LockEntry,
            phase::{LockPhase, TargetTask},
        },
        object::ObjectKey,
        target_task::StopRequest,
    },
    lease::ReleaseMode,
};

impl Index {
    /// Stops the targets, then releases the lock. This takes stop + lease at most, regardless of the state of
    /// the masters; after that, the lease is left to expire.
    pub(super) fn withdraw(&mut self, key: &ObjectKey, at: &World<'_>) {
        let now = at.now;
        let Some(departing) = self.departing(key, at) else {
            return;
        };
        let departure = departure(departing);
        if departure == Departure::Wait {
            self.due.tasks.insert(key.clone());
            return;
        }
        let unbounded = self.plants(Planted::StopsWithoutBound);
        let more = Duration::from_secs(if unbounded { 3_600 } else { 0 });
        // The target task must know whether the end may count as clean before it is ordered to stop.
        self.apply_targets(key, at);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let Some(plan) = entry.phase.plan() else {
            return;
        };
        let until = now + plan.stop_bound() + more;
        entry.phase.leave();
        match (departure, entry.phase.task()) {
            (Departure::Stop, Some(_)) => {
                let halt = StopRequest {
                    by: until,
                    lease: None,
                    departs: true,
                };
                self.effects.push(Effect::StopTargets {
                    key: key.clone(),
                    halt,
                    after: AfterStop::TakenAway(until),
                });
            }
            (departure, _) => self.on_stopped(key, departure == Departure::Leave { stopped: true }, at),
        }
    }

    /// Returns the facts about a lock that is to be withdrawn; `None` if no plan is applied.
    fn departing(&self, key: &ObjectKey, at: &World<'_>) -> Option<Departing> {
        let now = at.now;
        let entry = self.locks.get(key)?;
        let plan = entry.phase.plan()?;
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let guarded = super::targets::has_finalizer(&entry.object);
        // The first observation of the masters, and the first answers of the siblings, arrive shortly after the first
        // plan.
        let observed = entry.phase.contention().is_none_or(|contention| {
            now.since(contention.since) >= UNCONFIRMED && self.asked_since(contention.since, at)
        });
        let sibling_ruled_out = observed && !self.sibling_is_responsible(key, at);
        let held_by_sibling = self.held_by_us(key, at) && !self.holds(key, at);
        let sibling_ruled_out = sibling_ruled_out || self.plants(Planted::StopsDespiteSibling);
        Some(Departing {
            deleted,
            orphan: deleted && entry.object.spec.deletion_policy == DeletionPolicy::Orphan,
            guarded,
            unreadable: self.locks.unreadable.contains_key(key),
            enforced: plan.enforcement == Enforcement::Enforce,
            targets: !plan.targets.is_empty(),
            runs: entry.phase.task().map(TargetTask::runs),
            for_sibling: plan.candidates == Candidates::Operator
                && (held_by_sibling || (guarded && !sibling_ruled_out)),
        })
    }

    pub(super) fn on_stopped(&mut self, key: &ObjectKey, stopped: bool, at: &World<'_>) {
        let releases = stopped || self.plants(Planted::ReleasesUnstopped);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if !matches!(entry.phase, LockPhase::Leaving(..)) {
            return;
        }
        let active = entry.phase.active_plan().cloned();
        let task = entry.phase.take_task();
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        entry.phase = if deleted { LockPhase::Left } else { LockPhase::Idle };
        if !stopped {
            tracing::warn!(object = %format!("LeaderLock {key}"),
                "targets were not stopped; the operator stops contending for the lock, and its lease expires");
        }
        let release_mode = if releases {
            ReleaseMode::Release
        } else {
            ReleaseMode::Abandon
        };
        if task.is_some() {
            self.effects.push(Effect::EndTargetTask(key.clone()));
        }
        // Other locks that wait for its targets are judged again, too.
        self.due.locks.insert(key.clone());
        if let Some(plan) = active {
            self.remove_from_quorum(key, &plan, release_mode);
        }
        // An object that stays guards the targets that were not stopped; a deleted object does not wait any
        // longer.
        let done = |entry: &LockEntry| (stopped || deleted) && super::targets::has_finalizer(&entry.object);
        if self.locks.get(key).is_some_and(done) {
            self.set_finalizer(key, false, at);
        }
    }

    /// Forgets a lock whose object is gone.
    pub(super) fn forget_lock(&mut self, key: &ObjectKey) {
        // A name or quorum that another object waits for may be free now.
        self.due.locks.insert(key.clone());
        let unreadable = self.locks.unreadable.contains_key(key);
        let Some(entry) = self.locks.forget(key) else {
            return;
        };
        // Another client removed the finalizer while targets run, or may run: no other cluster may begin before the
        // lease has expired.
        let release_mode = if unreadable || entry.phase.may_run() {
            ReleaseMode::Abandon
        } else {
            ReleaseMode::Release
        };
        for reference in entry.templates.references() {
            let effect = Effect::UnfollowTemplate(key.clone(), reference.clone());
            self.effects.push(effect);
        }
        if entry.phase.task().is_some() && !self.plants(Planted::TaskOutlivesLock) {
            self.effects.push(Effect::EndTargetTask(key.clone()));
        }
        if let Some(plan) = entry.phase.active_plan() {
            self.remove_from_quorum(key, plan, release_mode);
        }
    }

    /// Gives up the lock of an object, unless another object owns its name now.
    fn remove_from_quorum(&mut self, key: &ObjectKey, plan: &LockPlan, release_mode: ReleaseMode) {
        let Some(quorum) = self.open.get_mut(&plan.quorum) else {
            return;
        };
        let named = quorum.names.get(&plan.lock_name);
        if named.is_none_or(|named| named == key) {
            quorum.names.remove(&plan.lock_name);
            self.effects.push(Effect::RemoveLock {
                quorum: plan.quorum.clone(),
                lock: plan.lock_name.clone(),
                release_mode,
            });
        }
    }
}
