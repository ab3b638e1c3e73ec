//! The invariants.

use super::outside::{Outside, Owner};
use crate::{
    api::{
        leader_lock::{DeletionPolicy, LockState},
        plan::LockPlan,
    },
    controller::{
        index::{AfterStop, Effect, Index, Input, has_finalizer},
        object::ObjectKey,
        target_task::StopRequest,
    },
    lease::{FencingToken, LockName, ReleaseMode},
};

/// Of two quorums, one every 30 s, while the rest is watched.
const HEARTBEATS: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) writes: u32,
    /// The only writes in the steady state are heartbeats.
    pub(super) quorum_writes: u32,
    pub(super) resting: bool,
    last_write: String,
    /// The lock whose targets were not stopped, by the present input.
    unstopped: Option<LockName>,
}

impl Rules {
    /// Before the index takes it.
    pub(super) fn see(&mut self, input: &Input, index: &Index) {
        self.unstopped = match input {
            Input::Stopped(key, false) => {
                let entry = index.locks.get(key).filter(|entry| entry.phase.is_leaving());
                entry.and_then(|entry| Some(entry.phase.active_plan()?.lock_name.clone()))
            }
            _ => None,
        };
    }

    pub(super) fn check(&mut self, effect: &Effect, index: &Index, outside: &Outside) -> Result<(), String> {
        if matches!(effect, Effect::WriteQuorum { .. }) {
            self.quorum_writes += 1;
        } else if effect.is_write() {
            self.writes += 1;
            if self.resting {
                self.last_write = format!("{effect:?}");
            }
        }
        match effect {
            Effect::StartTargetTask(start) => {
                may_start(&start.key, start.hands.guarded, index)?;
                if start.detached && sibling_has(&start.key, index, outside) {
                    return Err(format!(
                        "{}: a sibling has in hand what is stopped as left over",
                        start.key
                    ));
                }
                Ok(())
            }
            Effect::UpdateTargetTask { key, hands, .. } => may_start(key, hands.guarded, index),
            Effect::ActivateLock(plan) => may_put(plan, index),
            Effect::StopTargets { key, .. } if outside.tasks.get(key).is_some_and(|task| task.broken) => Err(
                format!("{key}: its target task has panicked, and is ordered to stop"),
            ),
            Effect::StopTargets { key, halt, after } => may_stop(key, *halt, after, index, outside),
            Effect::RemoveLock {
                lock, release_mode, ..
            } => {
                if *release_mode == ReleaseMode::Release && self.unstopped.as_ref() == Some(lock) {
                    return Err(format!("{lock}: released, and its targets were not stopped"));
                }
                Ok(())
            }
            Effect::HandOver {
                quorum, lock, token, ..
            } => may_hand_over(quorum, lock, *token, outside),
            Effect::WriteLock { key, status, .. } => claims_rightly(key, status, index, outside),
            _ => Ok(()),
        }
    }

    pub(super) fn unrest(&self, outside: &Outside) -> String {
        let deleted: Vec<String> = outside.deleted().map(ToString::to_string).collect();
        format!("no rest; deleted: {deleted:?}, last write: {}", self.last_write)
    }

    /// Nothing is written any more: what is deleted must be gone, and what is gone forgotten.
    pub(super) fn at_rest(&self, index: &Index, outside: &Outside) -> Result<(), String> {
        if self.quorum_writes > HEARTBEATS {
            return Err(format!("{} writes of quorums at rest", self.quorum_writes));
        }
        if let Some(key) = outside.deleted().next() {
            let entry = index.locks.get(key);
            return Err(format!("{key}: deleted, and kept by its finalizer: {entry:?}"));
        }
        for key in index.locks.known() {
            if !outside.server.locks.contains_key(key) {
                return Err(format!("{key}: it is gone, and not forgotten"));
            }
        }
        for key in outside.server.locks.keys() {
            if index.locks.get(key).is_none() {
                return Err(format!("{key}: it is there, and not known"));
            }
        }
        for (name, object) in &outside.server.quorums {
            let deleted = object.metadata.deletion_timestamp.is_some();
            let used = index.locks.users_of(name).next().is_some();
            if deleted && !used {
                return Err(format!("RedisQuorum {name}: deleted, unused, and kept"));
            }
            if !deleted && used && object.metadata.finalizers.iter().flatten().next().is_none() {
                return Err(format!("RedisQuorum {name}: used, and without a finalizer"));
            }
        }
        Ok(())
    }
}

/// Only what its finalizer keeps may be started.
fn may_start(key: &ObjectKey, guarded: bool, index: &Index) -> Result<(), String> {
    let entry = index.locks.get(key).ok_or("a target task without an object")?;
    if guarded && !has_finalizer(&entry.object) {
        return Err(format!("{key}: may be started without a finalizer"));
    }
    Ok(())
}

/// By the last answer, which is fresh, a sibling with a majority has the lock in hand; this replica has none.
fn sibling_has(key: &ObjectKey, index: &Index, outside: &Outside) -> bool {
    let Some(entry) = index.locks.get(key) else {
        return false;
    };
    if entry.object.spec.deletion_policy == DeletionPolicy::Orphan {
        return false;
    }
    let at = super::world(outside);
    let plan = entry.phase.active_plan();
    let seen = plan.is_some_and(|plan| at.views.has_majority(&plan.quorum));
    !seen && index.sibling_is_responsible(key, &at)
}

/// Who is named as the holder holds the lock: this replica with authority now, another one as it was seen.
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

/// Nothing that is being deleted is contended for.
fn may_put(plan: &LockPlan, index: &Index) -> Result<(), String> {
    let key = ObjectKey {
        namespace: plan.namespace.clone(),
        name: plan.name.clone(),
    };
    let entry = index.locks.get(&key).ok_or("a lock without an object is put")?;
    let deleted = entry.object.metadata.deletion_timestamp.is_some();
    if deleted && plan.state == LockState::Enabled {
        return Err(format!("{key}: contended for while it is being deleted"));
    }
    Ok(())
}

/// A stop has a bound. One for a hand-over is ordered under the lease; one of a deleted object not despite a sibling.
fn may_stop(
    key: &ObjectKey,
    halt: StopRequest,
    after: &AfterStop,
    index: &Index,
    outside: &Outside,
) -> Result<(), String> {
    let entry = index
        .locks
        .get(key)
        .ok_or("targets without an object are stopped")?;
    let plan = entry.phase.plan().ok_or("what is not put is stopped")?;
    let bound = outside.now + plan.timings.stop + plan.timings.lease_duration;
    if halt.by > bound {
        return Err(format!("{key}: stops until {:?}, not until {bound:?}", halt.by));
    }
    let at = super::world(outside);
    match after {
        AfterStop::TakenAway(until) if *until > bound => {
            Err(format!("{key}: is kept until {until:?}, not until {bound:?}"))
        }
        AfterStop::TakenAway(_) => {
            let deleted = entry.object.metadata.deletion_timestamp.is_some();
            if deleted && sibling_has(key, index, outside) {
                return Err(format!("{key}: stopped, and a sibling has it in hand"));
            }
            Ok(())
        }
        AfterStop::Drained(..) if index.holds(key, &at) => Ok(()),
        AfterStop::Drained(..) => Err(format!("{key}: stopped for a hand-over, without its lease")),
    }
}

/// The elector compares the token: a lease that has ended since is left alone.
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
