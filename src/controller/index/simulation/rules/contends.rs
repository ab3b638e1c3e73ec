//! Checks the plans under which locks are contended for.

use super::{super::world, Outside, WillingSeen};
use crate::{
    api::{
        leader_lock::{Enforcement, LockState},
        plan::LockPlan,
    },
    controller::{
        index::{Index, failover::abstention, target_key::target_keys, targets::paused},
        object::ObjectKey,
    },
};

/// Checks that a lock that becomes active is neither being deleted nor left to the others, and has no target of another
/// lock.
pub(super) fn may_put(
    plan: &LockPlan,
    index: &Index,
    outside: &Outside,
    willing: &WillingSeen,
) -> Result<(), String> {
    let key = ObjectKey {
        namespace: plan.namespace.clone(),
        name: plan.name.clone(),
    };
    let entry = index.locks.get(&key).ok_or("a lock without an object is put")?;
    let deleted = entry.object.metadata.deletion_timestamp.is_some();
    // The lease of a paused lock is kept until the lock is resumed.
    if deleted && plan.state == LockState::Enabled && paused(&entry.object).is_none() {
        return Err(format!("{key}: contended for while it is being deleted"));
    }
    let abstains = abstention(&entry.object).is_some_and(|until| until.holds(world(outside).stamp()));
    let mut others = index.others(&plan.quorum).into_iter();
    let contends = plan.state == LockState::Enabled && !plan.abstains;
    if abstains && contends && others.any(|other| !willing.lacks(&key, &other, outside.now)) {
        return Err(format!("{key}: contended for while this cluster abstains"));
    }
    let wanted = target_keys(plan);
    let shares = |other: &&ObjectKey| {
        let active = index.locks.get(other).and_then(|entry| entry.phase.active_plan());
        // A lock that only observes conflicts with no other lock.
        let switching = active.filter(|active| active.enforcement == Enforcement::Enforce);
        **other != key && switching.is_some_and(|active| !target_keys(active).is_disjoint(&wanted))
    };
    // A later decision of the same batch may have withdrawn the lock.
    let stays = entry.phase.active_plan().is_some_and(|active| **active == *plan);
    match index.locks.known().find(shares) {
        Some(other) if stays && plan.switches() && plan.state == LockState::Enabled => {
            Err(format!("{key}: switches a target of {other}"))
        }
        _ => Ok(()),
    }
}
