//! Whether a lock is contended for: put, left as it is, or taken away.

use std::{sync::Arc, time::Duration};

use super::{
    Core, Job,
    departure::{Departing, Departure, departure},
};
use crate::{
    api::{
        leader_lock::{Candidates, DeletionPolicy, Enforcement, LockState},
        plan::LockPlan,
    },
    clock,
    controller::{
        locks::LockEntry,
        object::ObjectKey,
        problem::{Problem, Reason},
        switched::switched,
        target_task::{Command, Handle, StopRequest},
        writer::Item,
    },
    lease::{Farewell, Moment},
};

/// A lock that is being taken away: what runs is stopped first.
#[derive(Clone, Copy, Debug)]
pub(in crate::controller) struct Leaving {
    /// It goes then, whatever became of the targets.
    pub(in crate::controller) until: Moment,
    pub(in crate::controller) stopped: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Move {
    Put(Arc<LockPlan>),
    Keep,
    TakeAway,
    /// It cannot be put: what it may have left running is stopped.
    StopRemains,
}

/// What is known of a lock when its place is decided.
struct Facts<'a> {
    put: Option<&'a LockPlan>,
    /// What it may have left running is being stopped.
    stops_remains: bool,
    /// Something that is put is another object's by now.
    overtaken: bool,
    wanted: &'a Result<Arc<LockPlan>, Problem>,
    /// No other cluster has our name on the quorum.
    confirmed: bool,
    /// The quorum in which it is put is still declared, and not another one under its name.
    declared: bool,
    deleted: bool,
    /// Something of it may run in this cluster: its finalizer is there.
    guarded: bool,
    /// It is for this replica to stop what nobody of this cluster is known to hold.
    in_charge: bool,
}

/// So long an operator that was started waits for its quorum before it minds what it cannot contend for. The first
/// round of the warden comes after it.
const UNCONFIRMED: Duration = Duration::from_secs(1);
/// And so long for what may come by itself: a Secret, or the quorum, that is applied in the same moment.
const MAY_COME: Duration = Duration::from_secs(3);

/// A lock that is contended for stays while its spec is wrong: a slip of the pen must not stop the work that it guards.
/// Only what the object clearly asks for takes it away.
fn place(facts: &Facts<'_>) -> Move {
    let Some(put) = facts.put else {
        return match facts.wanted {
            Ok(plan) if facts.confirmed && !facts.deleted => Move::Put(plan.clone()),
            // An operator before this one left it running. It is looked at, never taken: that stops what runs, unless a
            // sibling holds the lock.
            Ok(plan) if facts.guarded && (facts.deleted || facts.in_charge) => {
                Move::Put(only_looked_at(plan))
            }
            _ if facts.stops_remains && facts.deleted => Move::TakeAway,
            Err(_) if facts.stops_remains => Move::Keep,
            Err(_) if facts.guarded && facts.in_charge => Move::StopRemains,
            _ => Move::Keep,
        };
    };
    // The name, or the lock, is somebody else's.
    let lost = |problem: &Problem| {
        [Reason::ClusterNameNotUnique, Reason::DuplicateLockName].contains(&problem.reason)
    };
    match facts.wanted {
        _ if facts.deleted || !facts.declared => Move::TakeAway,
        Err(problem) if lost(problem) => Move::TakeAway,
        Err(_) if facts.overtaken => Move::TakeAway,
        Err(_) => Move::Keep,
        Ok(plan) if (&plan.quorum, &plan.lock_name) != (&put.quorum, &put.lock_name) => Move::TakeAway,
        // It gives the lock back at once: what runs must be stopped before.
        Ok(plan) if gives_up(plan) && !gives_up(put) && (put.guards() || !put.targets.is_empty()) => {
            Move::TakeAway
        }
        Ok(plan) if facts.confirmed => Move::Put(plan.clone()),
        Ok(_) => Move::Keep,
    }
}

fn runs(warden: &Handle) -> bool {
    warden.last.as_ref().is_none_or(|report| report.runs)
}

fn gives_up(plan: &LockPlan) -> bool {
    plan.state == LockState::SteppedDown || plan.candidates == Candidates::Agents
}

pub(super) fn only_looked_at(plan: &LockPlan) -> Arc<LockPlan> {
    Arc::new(LockPlan {
        state: LockState::SteppedDown,
        ..plan.clone()
    })
}

impl Core {
    /// Contends for a lock as its object asks, or not at all.
    pub(super) fn apply_lock(&mut self, key: &ObjectKey) {
        let quorum = self
            .locks
            .get(key)
            .map(|entry| entry.object.spec.quorum_ref.name.clone());
        self.follow_templates(key);
        let view = self.quorums.view(quorum.as_deref().unwrap_or_default());
        let others = self.locks.judge(key, view);
        self.touched_locks.extend(others);
        let (Some(wanted), Some(entry)) = (self.locks.verdict(key), self.locks.get(key)) else {
            return;
        };
        if entry.leaving.is_none() {
            let reporter = quorum.and_then(|quorum| self.quorums.get(&quorum)?.reporter.as_ref());
            let guarded = super::targets::has_finalizer(&entry.object);
            let declared = |plan: &Arc<LockPlan>| {
                let quorum = self.quorums.get(&plan.quorum);
                quorum.is_some_and(|quorum| !quorum.awaits_other)
            };
            let patience = match &wanted {
                Err(problem) if problem.reason.may_pass() => MAY_COME,
                _ => UNCONFIRMED,
            };
            // The lock may be usable once its templates are read; a read that hangs or fails is soon taken for an answer.
            let opening = |problem: &Problem| problem.reason == Reason::Opening;
            let awaited = wanted.as_ref().is_err_and(opening) && entry.templates.awaited();
            let overtaken = |plan: &Arc<LockPlan>| {
                let mut all = switched(plan).into_iter();
                all.any(|what| self.locks.taken(key, &what).is_some())
            };
            let next = place(&Facts {
                put: entry.put.as_deref(),
                stops_remains: entry.remains.is_some(),
                overtaken: wanted.is_err() && entry.put.as_ref().is_some_and(overtaken),
                wanted: &wanted,
                confirmed: reporter.is_some_and(|reporter| reporter.confirmed()),
                declared: entry.put.as_ref().is_some_and(declared),
                deleted: entry.object.metadata.deletion_timestamp.is_some(),
                guarded,
                in_charge: guarded && !awaited && self.in_charge(key, entry, patience),
            });
            let minded = entry.remains.is_some() && entry.object.metadata.deletion_timestamp.is_none();
            if guarded && entry.put.is_none() && !minded {
                // It may be for this replica later; and what is deleted is taken away once it is looked at.
                self.wardens_due.insert(key.clone());
            }
            match next {
                Move::Put(plan) => self.put(key, plan),
                Move::Keep => {}
                Move::TakeAway => self.take_away(key),
                Move::StopRemains => self.stop_remains(key, &wanted),
            }
            if !guarded {
                self.forget_remains(key);
            }
            self.apply_targets(key);
        }
        self.writer.push(Item::Lock(key.clone()));
        self.answer_hand_over(key);
    }

    /// Whether it is for this replica to stop what may run: unless a sibling with a majority of the masters has the lock in
    /// hand.
    fn in_charge(&self, key: &ObjectKey, entry: &LockEntry, patience: Duration) -> bool {
        // Nothing was looked at before the caches were filled.
        let since = self
            .ready
            .map_or(entry.first_seen, |ready| ready.max(entry.first_seen));
        let now = clock::now();
        now.since(since) >= patience && self.asked_since(since, now) && !self.sibling_is_responsible(key, now)
    }

    pub(super) fn put(&mut self, key: &ObjectKey, plan: Arc<LockPlan>) {
        let plan = self.with_abstention(key, plan);
        let plan = self.with_remains(key, plan);
        let Some(quorum) = self.fleet.get_mut(&plan.quorum) else {
            return;
        };
        quorum.put_lock(&plan, &self.cluster);
        if let Some(entry) = self.locks.get_mut(key) {
            entry.put = Some(plan);
            entry.put_since.get_or_insert_with(clock::now);
            if entry.remains.take().is_some() {
                // It did not know how the lock stands.
                entry.warden = None;
            }
        }
    }

    /// What was taken out of the spec and may run still is guarded until it is stopped.
    fn with_remains(&self, key: &ObjectKey, plan: Arc<LockPlan>) -> Arc<LockPlan> {
        let guarded = self
            .locks
            .get(key)
            .is_some_and(|entry| super::targets::has_finalizer(&entry.object));
        if !guarded || plan.guards() {
            return plan;
        }
        Arc::new(LockPlan {
            remains: true,
            ..plan.as_ref().clone()
        })
    }

    /// The targets are stopped, then the lock is released. That takes no longer than stop + lease, whatever the masters
    /// say; after that the lease is left to run out.
    fn take_away(&mut self, key: &ObjectKey) {
        let now = clock::now();
        let Some(departing) = self.departing(key, now) else {
            return;
        };
        let departure = departure(departing);
        if departure == Departure::Wait {
            self.wardens_due.insert(key.clone());
            return;
        }
        // The warden must know whether it may call the end clean before it is ordered to stop.
        self.apply_targets(key);
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let Some(put) = entry.put.as_ref().or(entry.remains.as_ref()) else {
            return;
        };
        let until = now + put.timings.stop + put.timings.lease_duration;
        entry.leaving = Some(Leaving {
            until,
            stopped: false,
        });
        match (departure, &entry.warden) {
            (Departure::Stop, Some(warden)) => {
                let (done, stopped) = tokio::sync::oneshot::channel();
                let halt = StopRequest {
                    by: until,
                    lease: None,
                };
                warden.send(Command::Stop(halt, done));
                let key = key.clone();
                self.jobs.start(Job::Stopped(key.clone(), false), async move {
                    let end = tokio::time::timeout(until.left(now), stopped).await;
                    Job::Stopped(key, matches!(end, Ok(Ok(_))))
                });
            }
            (departure, _) => self.on_stopped(key, departure == Departure::Leave { stopped: true }),
        }
    }

    /// What is known of a lock that is to be taken away; `None` if it is not contended for.
    fn departing(&self, key: &ObjectKey, now: Moment) -> Option<Departing> {
        let entry = self.locks.get(key)?;
        let put = entry.put.as_ref().or(entry.remains.as_ref())?;
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let guarded = super::targets::has_finalizer(&entry.object);
        // The first look at the masters, and the first answers of the siblings, come a moment after the lock is put.
        let looked = entry.put_since.is_none_or(|since| {
            now.since(since) >= UNCONFIRMED
                && self.asked_since(since, now)
                && !self.sibling_is_responsible(key, now)
        });
        let held_by_sibling = self.held_by_us(key, now) && !self.holds(key, now);
        Some(Departing {
            deleted,
            orphan: deleted && entry.object.spec.deletion_policy == DeletionPolicy::Orphan,
            guarded,
            unreadable: self.locks.unreadable.contains_key(key),
            enforced: put.enforcement == Enforcement::Enforce,
            targets: !put.targets.is_empty(),
            runs: entry.warden.as_ref().map(runs),
            for_sibling: put.candidates == Candidates::Operator && (held_by_sibling || (guarded && !looked)),
        })
    }

    pub(super) fn on_stopped(&mut self, key: &ObjectKey, stopped: bool) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let Some(leaving) = &mut entry.leaving else { return };
        leaving.stopped = stopped;
        if !stopped {
            tracing::warn!(object = %format!("LeaderLock {key}"),
                "targets were not stopped; the lock goes, its lease runs out");
        }
        (entry.warden, entry.remains, entry.put_since) = (None, None, None);
        let farewell = if stopped {
            Farewell::Release
        } else {
            Farewell::Abandon
        };
        let put = entry.put.take();
        if entry.object.metadata.deletion_timestamp.is_none() {
            entry.leaving = None;
        }
        // Also for others that wait for its targets.
        self.touched_locks.insert(key.clone());
        if let Some(plan) = put {
            self.withdraw(key, &plan, farewell);
        }
        // An object that stays guards what was not stopped; one that is deleted does not wait for longer.
        let done = |entry: &LockEntry| {
            let deleted = entry.object.metadata.deletion_timestamp.is_some();
            (stopped || deleted) && super::targets::has_finalizer(&entry.object)
        };
        if self.locks.get(key).is_some_and(done) {
            self.set_finalizer(key, false);
        }
    }

    /// The object is gone, whatever kept it.
    pub(super) fn forget_lock(&mut self, key: &ObjectKey) {
        // A name or quorum that another object waits for may be free now.
        self.touched_locks.insert(key.clone());
        let unreadable = self.locks.unreadable.contains_key(key);
        let Some(entry) = self.locks.forget(key) else {
            return;
        };
        // Somebody removed the finalizer while things run: nobody else may begin before the lease has run out.
        let farewell = if unreadable || entry.warden.as_ref().is_some_and(runs) {
            Farewell::Abandon
        } else {
            Farewell::Release
        };
        if let Some(plan) = entry.put {
            self.withdraw(key, &plan, farewell);
        }
    }

    /// Gives up what was contended for on behalf of an object; unless another one has the name by now.
    fn withdraw(&mut self, key: &ObjectKey, plan: &LockPlan, farewell: Farewell) {
        let Some(quorum) = self.fleet.get_mut(&plan.quorum) else {
            return;
        };
        let named = quorum.names.get(&plan.lock_name);
        if named.is_none_or(|(namespace, name)| namespace == key.namespace && name == key.name) {
            quorum.remove_lock(&plan.lock_name, farewell);
        }
    }

    /// Closes quorums that are not declared any more, once no lock needs them.
    pub(super) fn close_quorums(&mut self) {
        let gone: Vec<String> = self
            .fleet
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| self.quorums.get(name).is_none() && !self.locks.any_put(name))
            .collect();
        for name in gone {
            self.fleet.close(&name, "its object was deleted");
            // Its servers may be another quorum's now.
            self.touched_quorums.extend(self.quorums.names());
        }
    }
}

#[cfg(test)]
mod tests;
