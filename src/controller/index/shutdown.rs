//! Decides how every lock is given up when the process ends: handed to a sibling, stopped first, or released.

use std::collections::{HashMap, HashSet};

use super::{Effect, Index, Planted, World, targets::has_finalizer};
use crate::{
    api::{
        LeaderLock,
        leader_lock::{Candidates, Enforcement, OnQuorumLoss},
        plan::LockPlan,
    },
    controller::{
        index::lock_store::LockEntry,
        object::{ObjectKey, trim},
        planted::{WorldMistake, plants},
        sibling_answers::Round,
        target_task::{StopRequest, StopScope, TargetReport},
    },
    lease::LockName,
};

/// The locks that only siblings may take over, by quorum.
pub(in crate::controller) type Reserve = HashMap<String, HashSet<LockName>>;

/// The way in which the locks are given up.
#[derive(Debug, Default)]
pub(in crate::controller) struct Handed {
    pub(in crate::controller) reserve: Reserve,
    /// The locks whose targets are stopped first, because no sibling can take them over.
    pub(in crate::controller) stops: Vec<LastStop>,
}

#[derive(Debug)]
pub(in crate::controller) struct LastStop {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) plan: LockPlan,
    pub(in crate::controller) halt: StopRequest,
}

impl Handed {
    pub(in crate::controller) fn keep(&mut self, plan: &LockPlan) {
        let locks = self.reserve.entry(plan.quorum.clone()).or_default();
        locks.insert(plan.lock_name.clone());
    }
}

/// Reports whether a sibling would take over the lock of this plan, or manages the targets of an agent's lock.
pub(super) fn has_successor(siblings: &Round, plan: &LockPlan) -> bool {
    let observed = plan.candidates == Candidates::Agents;
    siblings.has_successor(&plan.quorum, &plan.lock_name, observed)
}

impl Index {
    /// Announces to the siblings that this replica takes nothing over from now on.
    pub(in crate::controller) fn begin_stop(&mut self, at: &World<'_>) {
        self.resign_coordinator(at);
        self.hide_willing();
        self.publish(true);
    }

    /// Ends the process in the ordinary way.
    pub(super) fn end_process(&mut self) {
        self.ends = true;
        self.effects.push(Effect::EndProcess);
    }

    /// Returns the locks whose targets this replica is responsible for, with the plans in force.
    pub(super) fn with_own_targets(&self, at: &World<'_>) -> impl Iterator<Item = (&ObjectKey, &LockPlan)> {
        let switched = self.with_switched_targets();
        let own = switched.filter(|(key, _, plan)| self.is_responsible(key, plan, at));
        own.map(|(key, _, plan)| (key, plan))
    }

    /// Returns the locks whose targets a replica switches, with the plans in force.
    fn with_switched_targets(&self) -> impl Iterator<Item = (&ObjectKey, &LockEntry, &LockPlan)> {
        let plans = self.locks.with_targets();
        let plans =
            plans.filter_map(|(key, entry, _)| Some((key, entry, entry.phase.active_plan()?.as_ref())));
        plans.filter(|(_, _, plan)| plan.enforcement != Enforcement::Observe)
    }

    /// Reports whether this replica is responsible for the targets. Every replica manages those of an agent's lock, so the last
    /// one stops them.
    fn is_responsible(&self, key: &ObjectKey, plan: &LockPlan, at: &World<'_>) -> bool {
        plan.candidates == Candidates::Agents || self.holds(key, at)
    }

    /// Returns the locks whose targets this replica passes on, or stops, at its end.
    fn to_hand_out(&self, successors: &Round, at: &World<'_>) -> Vec<(&ObjectKey, &LockPlan, StopScope)> {
        let own = self.with_own_targets(at);
        let own = own.map(|(key, plan)| (key, plan, StopScope::EndOfHolder));
        let is_last = successors.is_last() && !plants(WorldMistake::LeavesTargetsOfLostHolder);
        let others = self.of_lost_holders(at).filter(|_| is_last);
        let others = others.map(|(key, plan)| (key, plan, StopScope::EndOfLastProcess));
        own.chain(others).collect()
    }

    /// Returns the locks that this replica does not hold, whose targets may run, and which no process would stop once the last
    /// one ends. Targets that continue to run without a majority of the masters do so across a restart of the operator.
    fn of_lost_holders(&self, at: &World<'_>) -> impl Iterator<Item = (&ObjectKey, &LockPlan)> {
        let others = self.with_switched_targets().filter(|(key, entry, plan)| {
            let may_run = entry.phase.may_run() || has_finalizer(&entry.object);
            let continues = plan.on_quorum_loss == OnQuorumLoss::KeepRunning || plan.is_fenced();
            let stops = !continues
                || at.views.has_majority(&plan.quorum)
                || plants(WorldMistake::StopsContinuingWork);
            may_run && stops && !self.is_responsible(key, plan, at)
        });
        others.map(|(key, _, plan)| (key, plan))
    }

    /// Decides how each lock is given up. A lock with targets goes to a sibling that sees a majority of the
    /// masters and contends; without such a sibling, its targets are stopped first (P-60). All other locks are
    /// released. The last replica also stops the targets of a lock whose holder is lost.
    pub(in crate::controller) fn hand_out(&self, successors: &Round, at: &World<'_>) -> Handed {
        let mut handed = Handed::default();
        // A sibling of another version may have started targets that this one cannot read.
        let unreadable = self.locks.unreadable.keys();
        let unreadable = unreadable.filter_map(|key| self.locks.get(key)?.phase.active_plan());
        unreadable.for_each(|plan| handed.keep(plan));
        for (key, plan, scope) in self.to_hand_out(successors, at) {
            let taken = has_successor(successors, plan) || self.is_replaced(successors, plan, at);
            if taken && !self.plants(Planted::StopsDespiteSuccessor) {
                handed.keep(plan);
                continue;
            }
            if self.plants(Planted::ReleasesAtEnd) {
                continue;
            }
            let bound = plan.stop_bound();
            let halt = StopRequest {
                by: at.now + bound,
                scope,
            };
            handed.stops.push(LastStop {
                key: key.clone(),
                plan: plan.clone(),
                halt,
            });
        }
        handed
    }

    /// Removes the finalizers of the stopped locks: after the last replica ends, no other replica would
    /// remove them.
    pub(in crate::controller) fn remove_last_finalizers(&mut self, stopped: &[ObjectKey], at: &World<'_>) {
        for key in stopped {
            if let Some(entry) = self.locks.get_mut(key) {
                // This is the last attempt, so it does not wait for the backoff.
                entry.finalizer.reset();
            }
            self.remove_finalizer(key, at);
        }
    }

    /// Stores the last report of a target task, without any decision.
    pub(in crate::controller) fn keep_report(&mut self, report: TargetReport) {
        let entry = self.locks.get_mut(&report.key);
        if let Some(task) = entry.and_then(|entry| entry.phase.task_mut()) {
            task.last = Some(report);
        }
    }

    /// Stores the version of a lock that a write of its status returned, without any decision.
    pub(in crate::controller) fn keep_object(&mut self, mut object: Box<LeaderLock>) {
        trim(&mut object.metadata);
        let entry = self.locks.get_mut(&ObjectKey::of(object.as_ref()));
        if let Some(entry) = entry.filter(|entry| entry.object.metadata.uid == object.metadata.uid) {
            entry.object = *object;
        }
    }

    /// Ends all target tasks, so that nothing is switched any more.
    pub(in crate::controller) fn dismiss_target_tasks(&mut self) {
        self.locks.dismiss_target_tasks();
    }
}
