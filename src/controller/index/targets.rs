//! Handles locks with targets: their target tasks, and the finalizer that keeps an object until its targets are
//! stopped.

use super::{
    Effect, FinalizerChange, FinalizerEnd, Index, ObjectRequest, Planted, TargetTaskChange, TargetTaskStart,
    WatchChange, World,
    happened::{Off, happened, start_postponed},
    lock_store::LockEntry,
    phase::{LockPhase, TargetTask},
};
use crate::{
    api::{
        FINALIZER, LeaderLock, PAUSED,
        leader_lock::{Candidates, Enforcement, LockState},
        plan::LockPlan,
    },
    controller::{
        backoff,
        events::EventRecord,
        object::ObjectKey,
        planted::{WorldMistake, plants},
        target_task::{Permissions, TargetReport},
        writer::Item,
    },
    lease::Holder,
};

/// Reports whether no target runs, and the task has stopped each target that was removed. A target that was only read may have
/// pods that end.
fn is_settled(report: &TargetReport, plan: &LockPlan) -> bool {
    let has_removed = plan.targets.is_empty() && !report.has.is_empty();
    let forgets = plants(WorldMistake::UnguardsUnconfirmed);
    !report.runs && (!has_removed || report.unswitchable || forgets)
}

impl Index {
    /// Starts, updates or ends the target task of an active lock.
    pub(super) fn apply_targets(&mut self, key: &ObjectKey, at: &World<'_>) {
        let unreadable = self.locks.unreadable.contains_key(key);
        let shown = self.snapshot(key, at);
        let starts_anyway = self.plants(Planted::StartsWithoutFinalizer);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        // The target task of a lock whose last target was removed from the spec stays until that target is stopped.
        let runs = entry.phase.task().is_some_and(TargetTask::runs);
        let plan = entry.phase.plan().cloned();
        let plan = plan.filter(|plan| runs || !plan.targets.is_empty() || plan.guards());
        let Some(plan) = plan else {
            self.end_target_task(key);
            return;
        };
        let mut hands = hands(entry, &plan);
        hands.unreadable = unreadable;
        hands.guarded |= starts_anyway;
        let key = key.clone();
        // An order to a task that has panicked would be lost.
        let ended = at.views.target_task_ended(&key);
        if entry.phase.task().is_some_and(|task| !task.broken && !ended) {
            self.effects
                .push(Effect::Targets(TargetTaskChange::Update { key, plan, hands }));
            return;
        }
        let detached = entry.phase.active_plan().is_none();
        let own_tokens = entry.own_tokens.clone();
        if !detached {
            if self.open.get(&plan.quorum).is_none() {
                return;
            }
            if shown.is_none() {
                // The lock has just become active; the elector shows it at the next read.
                self.due.tasks.insert(key);
                return;
            }
        }
        entry.phase.start_task();
        if plan.is_fenced() {
            self.effects.push(Effect::Watch(WatchChange::FollowNodeGuards));
        }
        self.effects
            .push(Effect::Targets(TargetTaskChange::Start(Box::new(
                TargetTaskStart {
                    key,
                    plan,
                    hands,
                    detached,
                    own_tokens,
                },
            ))));
    }

    /// Ends the target task, so that nothing is switched for this lock any more.
    pub(super) fn end_target_task(&mut self, key: &ObjectKey) {
        let entry = self.locks.get_mut(key);
        if entry.is_some_and(|entry| entry.phase.take_task().is_some()) {
            self.effects
                .push(Effect::Targets(TargetTaskChange::End(key.clone())));
        }
    }

    pub(super) fn on_target_task_ended(&mut self, key: ObjectKey) {
        if let Some(task) = self.locks.get_mut(&key).and_then(|entry| entry.phase.task_mut()) {
            tracing::error!(object = %format!("LeaderLock {key}"),
                "the task that switches the targets ended unexpectedly; it is started again");
            task.broken = true;
            self.due.locks.insert(key);
        }
    }

    /// Handles a report on the targets of a lock.
    pub(super) fn on_report(&mut self, mut report: TargetReport, at: &World<'_>) {
        let key = report.key.clone();
        let now = at.now;
        let held = self.held_by_us(&key, at);
        let snapshot = self.snapshot(&key, at);
        let Some(entry) = self.locks.get_mut(&key) else {
            return;
        };
        if entry.phase.task().is_none() {
            return;
        }
        let reporter = self.quorums.get(&entry.object.spec.quorum_ref.name);
        let reporter = reporter.and_then(|quorum| quorum.reporting.reporter());
        let unwritten = !held && reporter.is_some_and(|reporter| reporter.locks_unreported(now).is_some());
        let last = entry.phase.report();
        if let Some(trouble) = &report.trouble
            && last.is_none_or(|last| last.trouble != report.trouble)
        {
            tracing::warn!(
                object = %format!("LeaderLock {key}"), reason = trouble.reason.name(), text = trouble.message,
                "targets are not in their desired state"
            );
        }
        let off = off(&entry.object, entry.phase.active_plan().map(AsRef::as_ref));
        let mut happened = happened(last, &report, off);
        happened.extend(start_postponed(last, &report, snapshot.as_ref(), off));
        if unwritten && off.is_none() {
            happened.extend(entry.status.settled.stopped_unwritten(&report));
        }
        // Each note is emitted once: the report is stored, and read again, without its notes.
        let notes = std::mem::take(&mut report.notes).into_iter();
        happened.extend(notes.map(|note| (note.reason, note.text)));
        if report.unswitchable != last.is_some_and(|last| last.unswitchable) {
            // The lock is contended for only where a target can be switched.
            self.due.locks.insert(key.clone());
        }
        if last.is_none_or(|last| last.has != report.has) {
            // Other locks may wait for targets that this lock no longer has.
            self.due.locks.insert(key.clone());
        }
        let wants_read = report.wants_read;
        if let Some(task) = entry.phase.task_mut() {
            task.last = Some(report);
        }
        let happened = EventRecord::all(&entry.object, happened).map(Effect::Record);
        self.effects.extend(happened);
        self.adjust_finalizer(&key, held, at);
        if let Some(since) = wants_read {
            self.want_read(&key, since, at);
        }
        self.writer.push(Item::Lock(key));
    }

    /// Adds or removes the finalizer, according to the last report on the targets of a lock.
    fn adjust_finalizer(&mut self, key: &ObjectKey, held: bool, at: &World<'_>) {
        let Some(entry) = self.locks.get(key) else { return };
        let Some(report) = entry.phase.report() else {
            return;
        };
        if entry.object.metadata.deletion_timestamp.is_some() || entry.phase.is_leaving() {
            return;
        }
        let Some(plan) = entry.phase.plan().cloned() else {
            return;
        };
        let guarded = entry.is_guarded_for(&plan);
        let recorded = entry.is_recorded(&plan);
        let outdated = guarded && !plan.targets.is_empty() && entry.records_too_much(&plan);
        // The holder is an agent: every replica reads the same targets and writes the same record.
        let writes = plan.candidates == Candidates::Agents || self.holds(key, at);
        if (report.wants_guard && !recorded) || (outdated && writes) {
            let record = entry.wanted_record(&plan);
            // The same record again would change nothing.
            if entry.record().as_ref() != Some(&record) {
                self.set_finalizer(key, FinalizerChange::Add(record), at);
            }
        } else if guarded && is_settled(report, &plan) && self.needs_no_finalizer(key, &plan, held, at) {
            // The sibling that sees the holder of the lock may be about to start the targets.
            if !self.responsibility_is_known(key, at) {
                self.due.finalizers.insert(key.clone());
            } else if !self.sibling_is_responsible(key, at) {
                self.remove_finalizer(key, at);
            }
        }
    }

    /// Reports whether no replica of this cluster may be about to start or stop targets of the lock. While no cluster holds
    /// the lock, a sibling may win it at any time.
    fn needs_no_finalizer(&self, key: &ObjectKey, plan: &LockPlan, held: bool, at: &World<'_>) -> bool {
        if plan.targets.is_empty() {
            // The holder may stop removed targets.
            let decides = plan.candidates == Candidates::Agents || self.holds(key, at);
            return !held || decides || self.plants(Planted::UnguardsBesideHolder);
        }
        let snapshot = self.snapshot(key, at);
        let elsewhere = snapshot.is_some_and(|snapshot| snapshot.holder.is_some());
        !held && (elsewhere || plan.state != LockState::Enabled || plan.candidates == Candidates::Agents)
    }

    /// Reports whether this replica holds the lock.
    pub(in crate::controller) fn holds(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let snapshot = self.snapshot(key, at);
        snapshot.is_some_and(|snapshot| snapshot.authority.is_some())
    }

    /// Reports whether a replica of this cluster holds the lock, as far as this replica sees or a sibling
    /// proves.
    pub(super) fn held_by_us(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let seen = self.snapshot(key, at).is_some_and(|snapshot| {
            let own = |holder: &Holder| holder.cluster.uid() == self.me.cluster.uid();
            snapshot.authority.is_some() || snapshot.holder.as_ref().is_some_and(own)
        });
        seen || self.is_proven_held(key, at)
    }

    pub(super) fn set_finalizer(&mut self, key: &ObjectKey, change: FinalizerChange, at: &World<'_>) {
        if !change.adds() && self.plants(Planted::FinalizerStays) {
            return;
        }
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if !entry.finalizer.may_start(at.now) {
            // The finalizer is checked again once a write may start.
            return;
        }
        entry.finalizer.start();
        self.effects.push(Effect::Object(ObjectRequest::SetFinalizer {
            key: key.clone(),
            uid: entry.object.metadata.uid.clone(),
            change,
        }));
    }

    pub(super) fn on_finalizer(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        end: Result<FinalizerEnd, String>,
        at: &World<'_>,
    ) {
        let now = at.now;
        let any = self.plants(Planted::TakesAnswerOfPredecessor);
        let entry = self.locks.get_mut(key);
        let entry = entry.filter(|entry| any || entry.object.metadata.uid.as_deref() == uid);
        // An answer about a predecessor of the object, or about an object that is gone, is ignored.
        let Some(entry) = entry else { return };
        entry.finalizer.end();
        match &end {
            Ok(FinalizerEnd::Written(_) | FinalizerEnd::Unread) => entry.finalizer.reset(),
            Ok(FinalizerEnd::Gone) | Err(_) => {
                entry.finalizer.fail(backoff::LONGEST, now, self.random.f64());
            }
        }
        match end {
            Ok(FinalizerEnd::Written(mut object)) => {
                crate::controller::object::trim(&mut object.metadata);
                self.see_answer(object, at);
                // A change that was requested during the write had to wait.
                self.due.finalizers.insert(key.clone());
            }
            // Either the object is gone, and the watch reports that, or its definition is not served for a while.
            Ok(FinalizerEnd::Gone) => {
                self.due.finalizers.insert(key.clone());
            }
            Ok(FinalizerEnd::Unread) => {}
            Err(reason) => {
                tracing::warn!(object = %format!("LeaderLock {key}"), reason,
                    "finalizer could not be changed; retrying");
                self.due.finalizers.insert(key.clone());
            }
        }
    }

    /// Handles the locks that had to wait.
    pub(super) fn check_targets(&mut self, at: &World<'_>) {
        self.due.locks.append(&mut self.due.tasks);
        // Their abstention may have ended.
        self.due.locks.append(&mut self.due.abstaining);
        self.show_willing(at);
        self.check_unready(at);
        self.check_finalizers(at);
        self.check_reads(at);
        self.check_departures(at);
    }
}

impl Index {
    /// Retries failed writes once their backoff is over, and starts those that waited for a write under way.
    fn check_finalizers(&mut self, at: &World<'_>) {
        let now = at.now;
        for key in std::mem::take(&mut self.due.finalizers) {
            let Some(entry) = self.locks.get(&key) else {
                continue;
            };
            if entry.finalizer.is_waiting(now) {
                self.due.finalizers.insert(key);
            } else if matches!(entry.phase, LockPhase::Left) {
                if has_finalizer(&entry.object) {
                    self.remove_finalizer(&key, at);
                }
            } else {
                let held = self.held_by_us(&key, at);
                self.adjust_finalizer(&key, held, at);
            }
        }
    }
}

/// Returns the value of the paused annotation.
pub(super) fn paused(object: &LeaderLock) -> Option<&str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(PAUSED).map(String::as_str)
}

/// Returns the reason why no target of the lock is switched; `None` if they are.
pub(super) fn off(object: &LeaderLock, plan: Option<&LockPlan>) -> Option<Off> {
    if paused(object).is_some() {
        return Some(Off::Paused);
    }
    plan.is_some_and(|plan| plan.enforcement == Enforcement::Observe)
        .then_some(Off::Observed)
}

pub(in crate::controller) fn has_finalizer(object: &LeaderLock) -> bool {
    let finalizers = object.metadata.finalizers.as_ref();
    finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

fn hands(entry: &LockEntry, plan: &LockPlan) -> Permissions {
    Permissions {
        off: off(&entry.object, Some(plan)).is_some(),
        guarded: entry.is_recorded(plan),
        finalizer: has_finalizer(&entry.object),
        unreadable: false,
        starts: (entry.object.metadata.deletion_timestamp.is_none() && !entry.phase.is_leaving())
            || plants(WorldMistake::DepartsUnrecorded),
        read: entry.reads.last(),
    }
}
