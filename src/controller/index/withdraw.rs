//! Withdraws a lock: its targets are stopped first, then the departure is recorded, then the lock is given up.

use std::time::Duration;

use super::{
    AfterStop, Effect, ElectorChange, FinalizerChange, Index, Planted, TargetTaskChange, WatchChange, World,
    decide::{UNCONFIRMED, observe_only},
    departure::{Departing, Departure, departure},
    targets::{has_finalizer, paused},
};
use crate::{
    api::{
        leader_lock::{Candidates, DeletionPolicy, Enforcement, LockState},
        plan::LockPlan,
    },
    controller::{
        events::EventReason,
        index::phase::{LockPhase, TargetTask},
        object::ObjectKey,
        planted::{WorldMistake, plants},
        problem::Reason,
        target_task::{StopRequest, StopScope},
    },
    lease::{BootInstant, ReleaseMode},
};

/// The time for the record of a departure, beyond the time for the stop. Without an answer of the API server, the lock is
/// then given up: the next holder reads the object, and finds that it is to be withdrawn.
const RECORDED: Duration = Duration::from_secs(10);

impl Index {
    /// Stops the targets, then releases the lock. A stop that fails is repeated: lease and finalizer stay until the
    /// targets are stopped.
    pub(super) fn withdraw(&mut self, key: &ObjectKey, at: &World<'_>) {
        let Some(departing) = self.departing(key, at) else {
            return;
        };
        let departure = departure(departing);
        match departure {
            Departure::Wait => {
                self.due.tasks.insert(key.clone());
                return;
            }
            Departure::Observe => return self.observe_departure(key, at),
            Departure::Paused => return self.report_paused_departure(key),
            Departure::Stop | Departure::Leave { .. } => {}
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
        let until = at.now + plan.stop_bound() + more;
        entry.phase.leave();
        match (departure, entry.phase.task()) {
            (Departure::Stop, Some(_)) => self.order_departure(key, until),
            (departure, _) => self.leave_at_once(key, departure, at),
        }
    }

    /// Leaves a lock without a stop.
    fn leave_at_once(&mut self, key: &ObjectKey, departure: Departure, at: &World<'_>) {
        if let Some(entry) = self.locks.get_mut(key) {
            entry.departs = false;
        }
        self.on_stopped(key, departure == Departure::Leave { stopped: true }, at);
    }

    fn order_departure(&mut self, key: &ObjectKey, until: BootInstant) {
        if let Some(entry) = self.locks.get_mut(key) {
            entry.departs = true;
        }
        self.effects.push(Effect::Targets(TargetTaskChange::Stop {
            key: key.clone(),
            halt: StopRequest {
                by: until,
                scope: StopScope::Departure,
            },
            after: AfterStop::TakenAway(until),
        }));
    }

    /// Observes a lock that a sibling withdraws. A replica that contended for it would win the lease that the sibling
    /// releases.
    fn observe_departure(&mut self, key: &ObjectKey, at: &World<'_>) {
        self.due.tasks.insert(key.clone());
        if plants(WorldMistake::DepartsUnrecorded) {
            return;
        }
        let plan = self.locks.get(key).and_then(|entry| entry.phase.active_plan());
        if let Some(plan) = plan.filter(|plan| plan.state != LockState::SteppedDown) {
            let observed = observe_only(plan);
            self.activate(key, observed, at);
        }
    }

    /// Returns the facts about a lock that is to be withdrawn; `None` if no plan is applied.
    fn departing(&self, key: &ObjectKey, at: &World<'_>) -> Option<Departing> {
        let now = at.now;
        let entry = self.locks.get(key)?;
        let plan = entry.phase.plan()?;
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let guarded = entry.is_guarded_for(plan);
        // The first observation of the masters, and the first answers of the siblings, arrive shortly after the first
        // plan.
        let observed = entry.phase.contention().is_none_or(|contention| {
            now.since(contention.since) >= UNCONFIRMED && self.asked_since(contention.since, at)
        });
        let sibling_ruled_out = observed && !self.sibling_is_responsible(key, at);
        let holds = self.holds(key, at);
        let held_by_sibling = self.held_by_us(key, at) && !holds;
        // A replica that observes the lock on the masters knows that no sibling holds it.
        let blind = entry.phase.contention().is_none() || !at.views.has_majority(&plan.quorum);
        let coordinated = blind
            && self.is_coordinated_elsewhere(&plan.quorum, at)
            && !self.plants(Planted::StopsDespiteCoordinator);
        // The targets may run under another lock, which the record names.
        let may_run = has_finalizer(&entry.object);
        let for_sibling = plan.candidates == Candidates::Operator
            && (held_by_sibling || (may_run && (!sibling_ruled_out || coordinated)))
            && !self.plants(Planted::StopsDespiteSibling);
        Some(Departing {
            orphan: deleted && entry.object.spec.deletion_policy == DeletionPolicy::Orphan,
            guarded,
            unreadable: self.locks.unreadable.contains_key(key),
            enforced: plan.enforcement == Enforcement::Enforce,
            paused: paused(&entry.object).is_some() && !plants(WorldMistake::LeavesPaused),
            targets: !plan.targets.is_empty() || !plan.leftovers.is_empty(),
            runs: entry.phase.task().map(TargetTask::runs),
            holds,
            for_sibling,
        })
    }

    /// Handles the end of the stop of a departure.
    pub(super) fn on_stopped(&mut self, key: &ObjectKey, stopped: bool, at: &World<'_>) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if !matches!(entry.phase, LockPhase::Leaving(..)) || entry.phase.recorded_by().is_some() {
            return;
        }
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let orphan = deleted && entry.object.spec.deletion_policy == DeletionPolicy::Orphan;
        let unreadable = self.locks.unreadable.contains_key(key);
        if stopped {
            let Some(entry) = self.locks.get_mut(key) else {
                return;
            };
            entry.phase.record_by(at.now + RECORDED);
            return self.advance_departure(key, at);
        }
        // A lock that stays declared is left by its deadline: its lease runs out, and other clusters wait for the targets.
        let gives_up = !deleted
            || orphan
            || unreadable
            || self.is_unserved(key)
            || !self.runs_under_departure(key)
            || plants(WorldMistake::LeavesPaused);
        if gives_up || self.plants(Planted::ReleasesUnstopped) {
            return self.finish_departure(key, false, at);
        }
        self.repeat_departure(key);
    }

    /// Reports whether the kind of a target is not served: no controller acts on its objects, and none can be stopped.
    fn is_unserved(&self, key: &ObjectKey) -> bool {
        let report = self.locks.get(key).and_then(|entry| entry.phase.report());
        let trouble = report.and_then(|report| report.trouble.as_ref());
        trouble.is_some_and(|trouble| trouble.reason == Reason::KindUnknown)
    }

    /// Reports whether the departure was ordered to a target task: without one, no target is known to run.
    fn runs_under_departure(&self, key: &ObjectKey) -> bool {
        self.locks.get(key).is_some_and(|entry| entry.departs)
    }

    /// Decides again about a departure whose stop was refused or was not carried out in time.
    fn repeat_departure(&mut self, key: &ObjectKey) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        entry.phase.resume();
        let report = entry.phase.report();
        let why = report.and_then(|report| report.trouble.as_ref());
        let why = why.map_or_else(String::new, |trouble| format!(": {}", trouble.message));
        let reported = std::mem::replace(&mut entry.status.departure_reported, true);
        tracing::warn!(object = %format!("LeaderLock {key}"),
            "targets of a lock that is to be given up were not stopped{why}; retrying");
        if !reported {
            let note = format!(
                "the lock is to be given up, and its targets could not be stopped{why}: the lease and the finalizer stay \
                 until they are stopped"
            );
            self.warn(key, EventReason::DepartureBlocked, note);
        }
        self.due.tasks.insert(key.clone());
    }

    /// Gives the lock up once its departure is recorded on the API server, by this replica or by a sibling.
    pub(super) fn advance_departure(&mut self, key: &ObjectKey, at: &World<'_>) {
        let holds = self.holds(key, at);
        let Some(entry) = self.locks.get(key) else { return };
        let unguarded = entry.phase.plan().is_some_and(|plan| !entry.is_guarded_for(plan));
        if matches!(entry.phase, LockPhase::Leaving(..)) && unguarded && !holds && entry.departs {
            // A sibling has stopped the targets, and may have started them again for another lock or object.
            return self.finish_departure(key, true, at);
        }
        let (Some(until), Some(plan)) = (entry.phase.recorded_by(), entry.phase.plan()) else {
            return;
        };
        let unrecorded = plants(WorldMistake::DepartsUnrecorded);
        if !entry.is_guarded_for(plan) || until <= at.now || unrecorded {
            return self.finish_departure(key, true, at);
        }
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        self.due.departures.insert(key.clone());
        // A sibling that holds the former lock, or may hold it because it does not answer, may run the targets: their record
        // stays. An agent runs no targets.
        let agents = plan.candidates == Candidates::Agents;
        let none_holds = self.responsibility_is_known(key, at) && (agents || !self.held_by_us(key, at));
        if deleted || holds || none_holds {
            self.remove_finalizer(key, at);
        }
    }

    /// Continues the departures that wait for their record.
    pub(super) fn check_departures(&mut self, at: &World<'_>) {
        for key in std::mem::take(&mut self.due.departures) {
            self.advance_departure(&key, at);
        }
    }

    /// Gives the lock up.
    fn finish_departure(&mut self, key: &ObjectKey, stopped: bool, at: &World<'_>) {
        let releases = stopped || self.plants(Planted::ReleasesUnstopped);
        self.remember_former_token(key, at);
        if !stopped {
            self.report_targets_left(key, at);
        }
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let active = entry.phase.active_plan().cloned();
        let task = entry.phase.take_task();
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        entry.phase = if deleted { LockPhase::Left } else { LockPhase::Idle };
        entry.departs = false;
        entry.status.departure_reported = false;
        entry.status.has_left = true;
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
            self.effects
                .push(Effect::Targets(TargetTaskChange::End(key.clone())));
        }
        // Other locks that wait for its targets are judged again, too.
        self.due.locks.insert(key.clone());
        if let Some(plan) = active {
            self.remove_from_quorum(key, &plan, release_mode, at);
        }
        // An object that stays guards the targets that were not stopped; a deleted object does not wait any
        // longer.
        if deleted
            && self
                .locks
                .get(key)
                .is_some_and(|entry| has_finalizer(&entry.object))
        {
            self.remove_finalizer(key, at);
        }
    }

    /// Removes the finalizer and its record. Where this replica does not hold the lock, another one may have added them
    /// again: then only the version that the decision is about is changed.
    pub(super) fn remove_finalizer(&mut self, key: &ObjectKey, at: &World<'_>) {
        let holds = self.holds(key, at);
        let Some(entry) = self.locks.get(key) else { return };
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let version = entry.object.metadata.resource_version.clone();
        let version = version.filter(|_| !holds && !deleted);
        self.set_finalizer(key, FinalizerChange::Remove { version }, at);
    }

    /// Forgets a lock whose object is gone.
    pub(super) fn forget_lock(&mut self, key: &ObjectKey, at: &World<'_>) {
        // A name or quorum that another object waits for may be free now.
        self.due.locks.insert(key.clone());
        let started = self.started_under_lease(key, at);
        let unreadable = self.locks.unreadable.contains_key(key);
        self.in_flight.asked.remove(key);
        let Some(entry) = self.locks.forget(key) else {
            return;
        };
        // Another client removed the finalizer while targets run, or may run: no other cluster may begin before the
        // lease has expired. After a recorded departure, and under a lease under which nothing was started, none runs.
        let recorded = entry.phase.recorded_by().is_some();
        let release_mode = if unreadable || (!recorded && started && entry.phase.may_run()) {
            ReleaseMode::Abandon
        } else {
            ReleaseMode::Release
        };
        for reference in entry.templates.references() {
            let effect = Effect::Watch(WatchChange::UnfollowTemplate(key.clone(), reference.clone()));
            self.effects.push(effect);
        }
        if entry.phase.task().is_some() && !self.plants(Planted::TaskOutlivesLock) {
            self.effects
                .push(Effect::Targets(TargetTaskChange::End(key.clone())));
        }
        if let Some(plan) = entry.phase.active_plan() {
            self.remove_from_quorum(key, plan, release_mode, at);
        }
    }

    /// Reports whether targets may have been started or adopted under the present lease of this replica: the object was
    /// read under it. The pods of a fenced lock run on before that.
    fn started_under_lease(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let Some(entry) = self.locks.get(key) else {
            return false;
        };
        let fenced = entry.phase.plan().is_some_and(|plan| plan.is_fenced());
        let authority = self.snapshot(key, at).and_then(|snapshot| snapshot.authority);
        fenced || authority.is_none_or(|authority| entry.read_under == Some(authority.token))
    }

    /// Gives up the lock of an object, unless another object owns its name now.
    fn remove_from_quorum(
        &mut self,
        key: &ObjectKey,
        plan: &LockPlan,
        release_mode: ReleaseMode,
        at: &World<'_>,
    ) {
        let view = self.view(&plan.quorum, &plan.lock_name, at);
        let token = view
            .and_then(|view| view.authority)
            .map(|authority| authority.token);
        let Some(quorum) = self.open.get_mut(&plan.quorum) else {
            return;
        };
        let named = quorum.names.get(&plan.lock_name);
        if named.is_none_or(|named| named == key) {
            quorum.names.remove(&plan.lock_name);
            // Another object may have had the name before.
            let others = self.locks.of_identity(&plan.quorum, &plan.lock_name);
            self.due.locks.extend(others);
            if let Some(token) = token {
                self.open.give_up(&plan.quorum, &plan.lock_name, token);
            }
            self.effects.push(Effect::Elector(ElectorChange::RemoveLock {
                quorum: plan.quorum.clone(),
                lock: plan.lock_name.clone(),
                release_mode,
            }));
        }
    }
}
