//! Checks the invariants.

mod at_rest;
mod contends;
mod drains;
mod ends;
mod stops;
mod willing;

use std::collections::BTreeSet;

use contends::may_put;
pub(super) use drains::DRAINS;
use drains::{DrainSeen, drains_are_known, nothing_was_put};
use willing::WillingSeen;

use super::outside::{Outside, Owner};
use crate::{
    api::leader_lock::{Candidates, DeletionPolicy},
    controller::{
        index::{
            Effect, ElectorChange, FinalizerEnd, Index, Input, MastersRequest, ObjectRequest, QuorumChange,
            StatusWrite, TargetTaskChange, drain::Purpose, has_finalizer, lock_store::LockEntry,
        },
        object::ObjectKey,
    },
    lease::{FencingToken, LockName, ReleaseMode},
};

/// A lock object by its name and UID.
type Identified = (ObjectKey, Option<String>);

#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The number of effects, except the periodic ones: questions, and heartbeats.
    pub(super) effects: u32,
    /// The number of writes of quorums. The only ones in the steady state are heartbeats.
    pub(super) quorum_writes: u32,
    pub(super) resting: bool,
    last_effect: String,
    /// The lock whose targets were not stopped, according to the present input.
    unstopped: Option<LockName>,
    /// The lock whose targets were just stopped for a hand-over, and whose pods may run.
    unconfirmed: Option<LockName>,
    /// The lock that was given up by the present input: other effects of this input may have been decided
    /// before.
    given_up: Option<LockName>,
    /// The lock whose abstention is in its object, according to the present input.
    abstains: Option<ObjectKey>,
    /// Finalizers that are being written, and those whose write failed.
    finalizers: BTreeSet<Identified>,
    failed: BTreeSet<Identified>,
    /// The observed stages of drains.
    pub(super) drains: BTreeSet<DrainSeen>,
    willing: WillingSeen,
    /// Whether a sibling that reaches the API server and the masters answers, according to the present input.
    sibling_can_replace: bool,
    /// Objects whose targets waited for the finalizer at the last tick, without a write under way.
    waiting: BTreeSet<Identified>,
}

impl Rules {
    /// Resets the rules: the next process does not know the requests of the previous one.
    pub(super) fn start(&mut self) {
        *self = Self {
            drains: std::mem::take(&mut self.drains),
            ..Self::default()
        };
    }

    /// Records the input before the index handles it.
    pub(super) fn see(&mut self, input: &Input, index: &Index, outside: &Outside) -> Result<(), String> {
        self.unstopped = match input {
            Input::Stopped(key, false) => {
                let entry = index.locks.get(key).filter(|entry| entry.phase.is_leaving());
                entry.and_then(|entry| Some(entry.phase.active_plan()?.lock_name.clone()))
            }
            _ => None,
        };
        self.unconfirmed = match input {
            Input::Drained(_, Purpose::Asked(_), drained) if drained.stopped && !drained.is_confirmed() => {
                Some(drained.plan.lock_name.clone())
            }
            _ => None,
        };
        self.given_up = None;
        self.sibling_can_replace = match input {
            Input::SiblingsAnswered(round) => !round.in_contact().seen_by_siblings().is_empty(),
            _ => false,
        };
        self.abstains = match input {
            Input::Abstains(key, _, Ok(_)) => Some(key.clone()),
            _ => None,
        };
        if let Input::Finalizer { key, uid, end } = input {
            let object = (key.clone(), uid.clone());
            self.finalizers.remove(&object);
            if !matches!(end, Ok(FinalizerEnd::Written(_))) {
                self.failed.insert(object);
            }
        }
        self.see_drain(input, index, outside);
        self.willing.see(input);
        match input {
            Input::NotOpened(quorum, _) => nothing_was_put(quorum, index),
            _ => Ok(()),
        }
    }

    /// Checks the state after the index has handled the input. Targets wait for a finalizer only while it is
    /// being written, or after a failure.
    pub(super) fn have_taken(&mut self, tick: bool, index: &Index, outside: &Outside) -> Result<(), String> {
        if index.ready.is_some() && index.synced() && !index.due.locks.is_empty() {
            return Err(format!("decisions do not settle: {:?}", index.due.locks));
        }
        if !tick {
            return Ok(());
        }
        let tasks = outside.tasks.iter().filter(|(_, task)| task.waits());
        let waiting = tasks.filter_map(|(key, _)| {
            let entry = index.locks.get(key)?;
            let metadata = &entry.object.metadata;
            let object = (key.clone(), metadata.uid.clone());
            // A lock that is given up starts nothing.
            let settled = metadata.deletion_timestamp.is_some()
                || entry.phase.is_leaving()
                || has_finalizer(&entry.object)
                || self.finalizers.contains(&object)
                || self.failed.contains(&object);
            (!settled).then_some(object)
        });
        let waiting: BTreeSet<Identified> = waiting.collect();
        let before = std::mem::replace(&mut self.waiting, waiting);
        match before.intersection(&self.waiting).next() {
            Some((key, uid)) => Err(format!(
                "{key} {uid:?}: its targets wait, and no finalizer is added"
            )),
            None => Ok(()),
        }
    }

    /// Checks that nothing is left of objects that are gone.
    pub(super) fn between_steps(&self, index: &Index, outside: &Outside) -> Result<(), String> {
        for key in outside.tasks.keys() {
            if index
                .locks
                .get(key)
                .is_none_or(|entry| entry.phase.task().is_none())
            {
                return Err(format!("{key}: its target task has not ended"));
            }
        }
        drains_are_known(index, outside)?;
        for (key, _) in &outside.templates {
            if index.locks.get(key).is_none() {
                return Err(format!("{key}: its templates are still read"));
            }
        }
        for (name, quorum) in &outside.quorums {
            let put = quorum.locks.iter();
            let put = put.filter(|(lock, stand)| stand.contends.is_some() && !lock.is_internal());
            for (lock, _) in put {
                let names = index.open.get(name).map(|open| &open.names);
                let key = names.and_then(|names| names.get(lock));
                if key.is_none_or(|key| index.locks.get(key).is_none()) {
                    return Err(format!("{name}/{lock}: put without an object"));
                }
            }
        }
        let server = &outside.server;
        let all_seen = server.events.is_empty() && !server.unwatched;
        match server.locks.keys().find(|key| index.locks.get(key).is_none()) {
            Some(key) if all_seen => Err(format!("{key}: it is there, and not known")),
            _ => Ok(()),
        }
    }

    pub(super) fn check(&mut self, effect: &Effect, index: &Index, outside: &Outside) -> Result<(), String> {
        self.count(effect);
        self.see_begin(effect);
        match effect {
            Effect::Object(ObjectRequest::SetFinalizer { key, uid, change }) => {
                if !change.adds() {
                    may_unguard(key, index, outside)?;
                }
                self.failed.remove(&(key.clone(), uid.clone()));
                if !self.finalizers.insert((key.clone(), uid.clone())) {
                    return Err(format!("{key}: its finalizer is being written already"));
                }
                Ok(())
            }
            Effect::Quorum(QuorumChange::ReplaceUrl(change)) if !outside.retired.contains(change) => {
                Err(format!("{change:?}: the old server may still vote"))
            }
            Effect::Targets(TargetTaskChange::Start(start)) => {
                may_start(&start.key, start.hands.guarded, index)?;
                // A task that has panicked is started again: it follows the answers of the siblings on its own.
                let again = outside.tasks.contains_key(&start.key);
                if start.detached && !again && sibling_has(&start.key, index, outside) {
                    return Err(format!(
                        "{}: a sibling has in hand what is stopped as left over",
                        start.key
                    ));
                }
                Ok(())
            }
            Effect::EndProcess if !self.sibling_can_replace => {
                Err("the process ends, and no sibling reaches the API server and the masters".to_owned())
            }
            Effect::Targets(TargetTaskChange::Update { key, hands, .. }) => {
                may_start(key, hands.guarded, index)
            }
            Effect::Object(ObjectRequest::Abstain { key, failover, .. })
                if !self.willing.contains(key, &failover.to, outside.now) =>
            {
                Err(format!(
                    "{key}: passed to a cluster that is not known to be willing"
                ))
            }
            Effect::Elector(ElectorChange::ActivateLock(plan)) => {
                may_put(plan, index, outside, &self.willing)
            }
            Effect::Targets(TargetTaskChange::Stop { key, halt, after }) => {
                self.check_stop(key, *halt, after, index, outside)
            }
            Effect::Elector(ElectorChange::RemoveLock {
                lock, release_mode, ..
            }) => {
                self.given_up = Some(lock.clone());
                if *release_mode == ReleaseMode::Release && self.unstopped.as_ref() == Some(lock) {
                    return Err(format!("{lock}: released, and its targets were not stopped"));
                }
                Ok(())
            }
            Effect::Elector(ElectorChange::HandOver { lock, .. })
                if self.unconfirmed.as_ref() == Some(lock) =>
            {
                Err(format!("{lock}: handed over, and its pods may run"))
            }
            Effect::Elector(ElectorChange::HandOver {
                quorum, lock, token, ..
            }) => may_hand_over(quorum, lock, *token, outside),
            Effect::Status(StatusWrite::Lock { key, status, .. }) => {
                claims_rightly(key, status, index, outside)
            }
            _ => Ok(()),
        }
    }

    /// Reports whether the present input gives up the lock for which this object contends.
    fn gives_up(&self, key: &ObjectKey, index: &Index) -> bool {
        let plan = index.locks.get(key).and_then(|entry| entry.phase.active_plan());
        self.given_up.is_some() && plan.map(|plan| &plan.lock_name) == self.given_up.as_ref()
    }

    fn count(&mut self, effect: &Effect) {
        match effect {
            Effect::Status(StatusWrite::Quorum { .. }) => self.quorum_writes += 1,
            Effect::Siblings(_)
            | Effect::Masters(
                MastersRequest::AskClusters(_)
                | MastersRequest::ForgetEnded(_)
                | MastersRequest::AskWilling { .. },
            )
            | Effect::Object(ObjectRequest::WriteCoordinator(_))
            | Effect::Targets(TargetTaskChange::PublishCoordinator(_)) => {}
            _ => {
                self.effects += 1;
                if self.resting {
                    self.last_effect = format!("{effect:?}");
                }
            }
        }
    }
}

/// Checks that only targets of an object with the finalizer may be started.
fn may_start(key: &ObjectKey, guarded: bool, index: &Index) -> Result<(), String> {
    let entry = index.locks.get(key).ok_or("a target task without an object")?;
    if guarded && !has_finalizer(&entry.object) {
        return Err(format!("{key}: may be started without a finalizer"));
    }
    Ok(())
}

/// Checks that an active lock that is not being deleted keeps its finalizer while a sibling may run or stop its targets.
fn may_unguard(key: &ObjectKey, index: &Index, outside: &Outside) -> Result<(), String> {
    let Some(entry) = index.locks.get(key) else {
        return Ok(());
    };
    let deleted = entry.object.metadata.deletion_timestamp.is_some();
    let plan = entry.phase.active_plan();
    // A lock that was withdrawn and stopped has no report yet.
    let active = plan.is_some_and(|plan| !plan.targets.is_empty()) && entry.phase.report().is_some();
    // The lease of this replica excludes its siblings.
    let at = &super::world(outside);
    let holds = index.holds(key, at);
    let is_holders = plan.is_some_and(|plan| plan.candidates == Candidates::Operator);
    if is_holders && !deleted && !holds && index.held_by_us(key, at) {
        return Err(format!("{key}: loses its finalizer beside the holder"));
    }
    if active && !deleted && !holds && !sees(entry, outside) && index.asking.round.is_silent() {
        return Err(format!(
            "{key}: loses its finalizer, and a sibling did not answer"
        ));
    }
    Ok(())
}

/// Reports whether this replica has a majority of the masters of the lock.
fn sees(entry: &LockEntry, outside: &Outside) -> bool {
    let plan = entry.phase.active_plan();
    plan.is_some_and(|plan| super::world(outside).views.has_majority(&plan.quorum))
}

/// Reports whether a sibling with a majority is responsible for the lock, according to a fresh answer, while
/// this replica has no majority.
fn sibling_has(key: &ObjectKey, index: &Index, outside: &Outside) -> bool {
    let Some(entry) = index.locks.get(key) else {
        return false;
    };
    if entry.object.spec.deletion_policy == DeletionPolicy::Orphan {
        return false;
    }
    !sees(entry, outside) && index.sibling_is_responsible(key, &super::world(outside))
}

/// Checks that a status newly names this replica as the holder only while it has authority.
fn claims_rightly(
    key: &ObjectKey,
    status: &serde_json::Value,
    index: &Index,
    outside: &Outside,
) -> Result<(), String> {
    let before = index
        .locks
        .get(key)
        .and_then(|entry| entry.object.status.as_ref());
    let before = before.and_then(|status| status.holder_identity.as_deref());
    let named = status["holderIdentity"].as_str();
    if named != Some(outside.identity.as_str()) || before == named {
        return Ok(());
    }
    let snapshot = index.snapshot(key, &super::world(outside));
    if snapshot.is_some_and(|snapshot| snapshot.authority.is_some()) {
        return Ok(());
    }
    Err(format!(
        "{key}: its status names this replica, which has no lease"
    ))
}

/// Checks a hand-over. A lease that has ended since is allowed: the elector compares the token, and does
/// nothing.
fn may_hand_over(
    quorum: &str,
    lock: &LockName,
    token: FencingToken,
    outside: &Outside,
) -> Result<(), String> {
    let quorum = outside.quorums.get(quorum);
    let stand = quorum.and_then(|quorum| quorum.locks.get(lock));
    match stand.and_then(|stand| stand.owner) {
        Some((owner, held, _)) if owner != Owner::Me && FencingToken(held) == token => {
            Err(format!("{lock}: a lease of another holder is handed over"))
        }
        _ => Ok(()),
    }
}
