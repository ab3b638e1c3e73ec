//! Decides whether a lock is contended for, left unchanged, or withdrawn.

use std::{sync::Arc, time::Duration};

use super::{Effect, ElectorChange, Index, Planted, QuorumChange, TargetTaskChange, World, phase::LockPhase};
use crate::{
    api::{
        leader_lock::{Candidates, Enforcement, LockState},
        plan::{LockIdentity, LockPlan},
    },
    controller::{
        index::{lock_store::LockEntry, target_key::target_keys, targets::paused},
        object::ObjectKey,
        planted::{WorldMistake, plants},
        problem::{Problem, Reason},
        writer::Item,
    },
};

#[derive(Clone, Debug, PartialEq)]
enum Decision {
    Activate(Arc<LockPlan>),
    Keep,
    Withdraw,
    /// The lock cannot be active; targets that it may have left running are stopped.
    StopLeftovers,
}

/// The facts about a lock on which the decision is based.
struct DecisionFacts<'a> {
    active: Option<&'a LockPlan>,
    /// Whether targets that the lock may have left running are being stopped.
    stops_leftovers: bool,
    /// Whether another object now owns a target of the active plan.
    overtaken: bool,
    wanted: &'a Result<Arc<LockPlan>, Problem>,
    /// Whether it is confirmed that no other cluster uses the same cluster name on the quorum.
    confirmed: bool,
    /// Whether the quorum on which the lock is active is still declared, and was not replaced by another one
    /// of the same name.
    declared: bool,
    deleted: bool,
    /// Whether targets of the lock may run in this cluster: its finalizer is set.
    guarded: bool,
    /// The lock under which the targets may run, if it is not the declared one.
    in_force: Option<FormerLock>,
    /// Whether the annotation forbids to switch the targets.
    paused: bool,
    /// Whether this cluster can switch no target of the lock, and none was started.
    unswitchable: bool,
    /// Whether this replica holds the lock.
    holds: bool,
    /// Whether this replica has to stop targets whose lock no replica of this cluster is known to hold.
    in_charge: bool,
}

/// The time that a new operator waits for its quorum before it handles locks that it cannot contend for. The
/// first round of the target task comes after this time.
pub(super) const UNCONFIRMED: Duration = Duration::from_secs(1);
/// The time that a new operator waits for an object that may be applied at the same moment, such as a Secret
/// or the quorum.
const MAY_COME: Duration = Duration::from_secs(3);

/// Decides on a lock. An active lock stays active while its spec is invalid: a typo must not stop the work
/// that the lock guards. Only an unambiguous request withdraws it.
fn decide(facts: &DecisionFacts<'_>) -> Decision {
    let Some(active) = facts.active else {
        return match facts.wanted {
            // Targets may run under another lock, which a sibling may hold: they are stopped first.
            Ok(plan) if let Some(former) = &facts.in_force => match former {
                FormerLock::Open(former) => Decision::Activate(observe_former(plan, former)),
                // Its quorum is being opened, or cannot be opened now.
                FormerLock::NotOpen => Decision::Keep,
            },
            Ok(plan) if facts.confirmed && !facts.deleted => Decision::Activate(plan.clone()),
            // The lease of a paused lock is kept.
            Ok(plan) if facts.guarded && facts.deleted && facts.paused => Decision::Activate(plan.clone()),
            // An earlier operator left targets running. The lock is observed but never acquired, which stops the
            // targets unless a sibling holds the lock.
            Ok(plan) if facts.guarded && facts.deleted => Decision::Activate(observe_only(plan)),
            Ok(plan) if facts.guarded && facts.in_charge => Decision::Activate(observe_until_confirmed(plan)),
            _ if facts.stops_leftovers && facts.deleted => Decision::Withdraw,
            Err(_) if facts.stops_leftovers => Decision::Keep,
            Err(_) if facts.guarded && facts.in_charge => Decision::StopLeftovers,
            _ => Decision::Keep,
        };
    };
    match facts.wanted {
        _ if facts.deleted || !facts.declared => Decision::Withdraw,
        Err(problem) if !problem.reason.leaves_in_force() => Decision::Withdraw,
        Err(_) if facts.overtaken => Decision::Withdraw,
        Err(_) => Decision::Keep,
        Ok(plan) if plan.identity() != active.identity() => Decision::Withdraw,
        // Another cluster may be able to switch the targets. None was started here, so none has to be stopped.
        Ok(plan) if facts.unswitchable && !gives_up(plan) => Decision::Activate(observe_only(plan)),
        // The new plan gives up the lock at once, so the holder stops running targets first.
        Ok(plan) if gives_up(plan) && stops_first(plan, active, facts) => Decision::Withdraw,
        Ok(plan) if facts.confirmed => Decision::Activate(plan.clone()),
        Ok(_) => Decision::Keep,
    }
}

/// Reports whether the targets have to be stopped before this plan, which gives up the lock. A replica that does not hold
/// the lock only stops contending. Under `candidates: Agents` it would take a sibling that still holds the lock for an
/// agent.
fn stops_first(plan: &LockPlan, active: &LockPlan, facts: &DecisionFacts<'_>) -> bool {
    let has_targets = active.guards() || !active.targets.is_empty();
    let holds = facts.holds && !gives_up(active);
    has_targets && (holds || plan.candidates != active.candidates)
}

/// Returns a plan to observe the lock under which the targets may run.
fn observe_former(plan: &LockPlan, former: &LockIdentity) -> Arc<LockPlan> {
    Arc::new(LockPlan {
        quorum: former.quorum.clone(),
        lock_name: former.lock_name.clone(),
        fencing: former.fencing,
        ..observe_only(plan).as_ref().clone()
    })
}

/// The lock under which the targets of an object may run, according to its record.
#[derive(Clone, Debug, PartialEq)]
enum FormerLock {
    Open(LockIdentity),
    /// The quorum is declared, and not open.
    NotOpen,
}

fn gives_up(plan: &LockPlan) -> bool {
    plan.state == LockState::SteppedDown || plan.candidates == Candidates::Agents
}

pub(super) fn observe_only(plan: &LockPlan) -> Arc<LockPlan> {
    Arc::new(LockPlan {
        state: LockState::SteppedDown,
        ..plan.clone()
    })
}

/// Like [`observe_only`], for the time until the cluster name is confirmed. If this cluster contends for the lock, its targets
/// continue to run without a majority of the masters where the lock declares that.
fn observe_until_confirmed(plan: &LockPlan) -> Arc<LockPlan> {
    Arc::new(LockPlan {
        awaits_confirmation: !gives_up(plan) && !plants(WorldMistake::StopsUnconfirmed),
        ..observe_only(plan).as_ref().clone()
    })
}

impl Index {
    /// Contends for a lock as its object declares, or not at all.
    pub(super) fn apply_lock(&mut self, key: &ObjectKey, at: &World<'_>) {
        let quorum = self
            .locks
            .get(key)
            .map(|entry| entry.object.spec.quorum_ref.name.clone());
        self.follow_templates(key);
        let view = self.quorums.view(quorum.as_deref().unwrap_or_default());
        let others = self.locks.resolve(key, view, &self.me.cluster);
        self.hurry_templates(key, at);
        self.due.locks.extend(others);
        let (Some(wanted), Some(entry)) = (self.locks.resolution(key), self.locks.get(key)) else {
            return;
        };
        let own = entry.own_plan().filter(|_| self.plants(Planted::SharesTarget));
        let wanted = own.map_or(wanted, |plan| Ok(plan.clone()));
        if !entry.phase.is_leaving() {
            let next = self.decision(key, entry, &wanted, at);
            self.carry_out(key, next, &wanted, at);
            if self.locks.has_other_claims(key) && !plants(WorldMistake::KeepsFormerClaims) {
                // Other locks may wait for targets that the former plan had.
                self.due.locks.insert(key.clone());
            }
        }
        self.writer.push(Item::Lock(key.clone()));
        self.answer_hand_over(key, at);
    }

    fn decision(
        &self,
        key: &ObjectKey,
        entry: &LockEntry,
        wanted: &Result<Arc<LockPlan>, Problem>,
        at: &World<'_>,
    ) -> Decision {
        let quorum = self.quorums.get(&entry.object.spec.quorum_ref.name);
        let reporter = quorum.and_then(|quorum| quorum.reporting.reporter());
        let guarded = super::targets::has_finalizer(&entry.object);
        let declared = |plan: &Arc<LockPlan>| {
            let quorum = self.quorums.get(&plan.quorum);
            quorum.is_some_and(|quorum| !quorum.phase.awaits_other())
        };
        let patience = match wanted {
            Err(problem) if problem.reason.may_pass() => MAY_COME,
            _ => UNCONFIRMED,
        };
        // The lock may become usable once its templates are read; a read that hangs or fails soon counts as answered.
        let opening = |problem: &Problem| problem.reason == Reason::Opening;
        let awaited = wanted.as_ref().is_err_and(opening) && entry.templates.awaited();
        let overtaken = |plan: &Arc<LockPlan>| {
            let mut all = target_keys(plan).into_iter();
            all.any(|what| self.locks.taken(key, &what).is_some())
        };
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let active = entry.phase.active_plan();
        decide(&DecisionFacts {
            active: active.map(AsRef::as_ref),
            stops_leftovers: matches!(entry.phase, LockPhase::StoppingLeftovers(_)),
            overtaken: wanted.is_err() && active.is_some_and(overtaken),
            wanted,
            confirmed: reporter.is_some_and(|reporter| reporter.confirmed()),
            declared: active.is_some_and(declared),
            deleted: deleted && !self.plants(Planted::ContendsWhileDeleted),
            guarded,
            in_force: self.former_lock(entry, wanted),
            paused: paused(&entry.object).is_some(),
            unswitchable: !guarded && entry.phase.report().is_some_and(|report| report.unswitchable),
            holds: self.holds(key, at),
            in_charge: guarded && !awaited && self.in_charge(key, entry, patience, at),
        })
    }

    /// Returns the lock of the record, if it is not the declared one. A lock that only observes has nothing to stop.
    fn former_lock(&self, entry: &LockEntry, wanted: &Result<Arc<LockPlan>, Problem>) -> Option<FormerLock> {
        let plan = wanted.as_ref().ok()?;
        let former = entry.record()?.identity()?;
        if former == plan.identity() || plan.enforcement == Enforcement::Observe {
            return None;
        }
        if self.open.get(&former.quorum).is_some() {
            return Some(FormerLock::Open(former));
        }
        // The masters of a quorum that was deleted cannot be asked.
        let declared = self.quorums.get(&former.quorum).is_some();
        declared.then_some(FormerLock::NotOpen)
    }

    fn carry_out(
        &mut self,
        key: &ObjectKey,
        next: Decision,
        wanted: &Result<Arc<LockPlan>, Problem>,
        at: &World<'_>,
    ) {
        let Some(entry) = self.locks.get(key) else { return };
        let guarded = super::targets::has_finalizer(&entry.object);
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let again = match entry.phase {
            LockPhase::Contending(..) => false,
            LockPhase::StoppingLeftovers(_) => deleted,
            LockPhase::Idle | LockPhase::Leaving(..) | LockPhase::Left => true,
        };
        if guarded && again {
            // This replica may become responsible later; a deleted lock is withdrawn once it is observed.
            self.due.tasks.insert(key.clone());
        }
        match next {
            Decision::Activate(plan) => {
                self.cancel_departure(key);
                self.activate(key, plan, at);
            }
            Decision::Keep => {}
            Decision::Withdraw => {
                self.remember_former_token(key, at);
                self.withdraw(key, at);
            }
            Decision::StopLeftovers => self.stop_leftovers(key, wanted, at),
        }
        if !guarded {
            self.forget_leftovers(key);
        }
        self.apply_targets(key, at);
    }

    /// Reports whether this replica has to stop targets that may run. It does not if a sibling with a
    /// majority of the masters is responsible for the lock.
    fn in_charge(&self, key: &ObjectKey, entry: &LockEntry, patience: Duration, at: &World<'_>) -> bool {
        // Nothing was observed before the caches were filled.
        let since = self
            .ready
            .map_or(entry.first_seen, |ready| ready.max(entry.first_seen));
        let now = at.now;
        now.since(since) >= patience && self.asked_since(since, at) && !self.sibling_is_responsible(key, at)
    }

    /// Revokes a stop whose reason is gone, such as a changed spec that was changed back.
    fn cancel_departure(&mut self, key: &ObjectKey) {
        let entry = self.locks.get_mut(key);
        if entry.is_some_and(|entry| std::mem::replace(&mut entry.departs, false)) {
            self.effects
                .push(Effect::Targets(TargetTaskChange::CancelDeparture(key.clone())));
        }
    }

    pub(super) fn activate(&mut self, key: &ObjectKey, plan: Arc<LockPlan>, at: &World<'_>) {
        let plan = self.with_abstention(key, plan, at);
        let plan = self.with_leftovers(key, plan);
        let Some(quorum) = self.open.get_mut(&plan.quorum) else {
            return;
        };
        let owner = quorum.names.get(&plan.lock_name);
        if plan.state == LockState::SteppedDown && owner.is_some_and(|owner| owner != key) {
            // Another object contends for the lock of this name: it is observed already.
            self.due.tasks.insert(key.clone());
        } else {
            quorum.names.insert(plan.lock_name.clone(), key.clone());
            self.effects
                .push(Effect::Elector(ElectorChange::ActivateLock(plan.clone())));
        }
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        entry.status.has_left = false;
        if entry.phase.active_plan().is_none() {
            // The lock owns its targets from this point, even if its object is being deleted.
            self.due.locks.insert(key.clone());
        }
        if entry.phase.contend(plan, at.now).is_some() {
            self.effects
                .push(Effect::Targets(TargetTaskChange::End(key.clone())));
        }
    }

    pub(super) fn close_quorum(&mut self, name: &str, why: &'static str) {
        if self.open.close(name) {
            let name = name.to_owned();
            self.effects
                .push(Effect::Quorum(QuorumChange::Close { name, why }));
        }
    }

    /// Closes quorums that are no longer declared, once no lock needs them.
    pub(super) fn close_quorums(&mut self) {
        let gone: Vec<String> = self
            .open
            .names()
            .filter(|name| self.quorums.get(name).is_none() && !self.locks.any_active(name))
            .cloned()
            .collect();
        for name in gone {
            self.close_quorum(&name, "the RedisQuorum was deleted");
            // The servers of the closed quorum may now belong to another one.
            self.due.quorums.extend(self.quorums.names());
        }
    }
}

#[cfg(test)]
mod tests;
