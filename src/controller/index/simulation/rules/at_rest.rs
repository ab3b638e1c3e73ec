//! Checks the invariants of the steady state.

use super::Rules;
use crate::controller::index::{Index, Views, simulation::outside::Outside};

/// The number of heartbeats of two quorums, one every 30 s each, while the state of rest is watched.
const HEARTBEATS: u32 = 4;

impl Rules {
    pub(in crate::controller::index::simulation) fn unrest(&self, outside: &Outside) -> String {
        let deleted: Vec<String> = outside.deleted().map(ToString::to_string).collect();
        format!("no rest; deleted: {deleted:?}, last effect: {}", self.last_effect)
    }

    /// Checks the state after the last decision: deleted objects are gone, objects that are gone are forgotten, and all
    /// others are in their desired state.
    pub(in crate::controller::index::simulation) fn at_rest(
        &self,
        index: &Index,
        outside: &Outside,
    ) -> Result<(), String> {
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
            let entry = index.locks.get(key);
            if let Some(purpose) = entry.and_then(|entry| entry.phase.draining()) {
                return Err(format!("{key}: its drain has not ended: {purpose:?}"));
            }
        }
        self.between_steps(index, outside)?;
        quorums_are_guarded(index, outside)?;
        quorums_are_used(outside)?;
        if outside.blind {
            return Ok(());
        }
        statuses_are_current(outside)?;
        targets_run(outside)
    }
}

fn quorums_are_guarded(index: &Index, outside: &Outside) -> Result<(), String> {
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

/// Checks that a quorum is open, with the URLs of its object, unless its servers belong to another one.
fn quorums_are_used(outside: &Outside) -> Result<(), String> {
    for (name, object) in &outside.server.quorums {
        let ready = outside.server.ready_of(name);
        if ready
            .as_ref()
            .is_some_and(|(reason, _)| reason == "MastersShared")
        {
            continue;
        }
        let Some(open) = outside.quorums.get(name) else {
            return Err(format!("RedisQuorum {name}: not open: {ready:?}"));
        };
        let wanted = object.spec.masters.iter();
        let wanted: Vec<(String, String)> = wanted.map(|m| (m.name.clone(), m.url.clone())).collect();
        if open.masters != wanted {
            return Err(format!("RedisQuorum {name}: uses {:?}: {ready:?}", open.masters));
        }
    }
    Ok(())
}

/// Checks that every status is about the present object.
fn statuses_are_current(outside: &Outside) -> Result<(), String> {
    for (key, object) in &outside.server.locks {
        let status = object.status.as_ref();
        let observed = status.and_then(|status| status.observed_generation);
        if observed != object.metadata.generation {
            return Err(format!("{key}: its status is about generation {observed:?}"));
        }
    }
    Ok(())
}

/// Checks that the targets of a lock run while this replica holds it.
fn targets_run(outside: &Outside) -> Result<(), String> {
    for (key, task) in &outside.tasks {
        let plan = &task.plan;
        let seen = outside.lock(&plan.quorum, &plan.lock_name, outside.now);
        let held = seen.is_some_and(|seen| seen.authority.is_some());
        if held && plan.switches() && !outside.running.contains(key) {
            return Err(format!("{key}: held, and its targets do not run"));
        }
    }
    Ok(())
}
