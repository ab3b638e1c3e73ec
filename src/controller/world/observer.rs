//! Judges a world from outside of the product: from the objects of the API servers and the pods on the nodes.

use std::sync::Arc;

use redlock_world::kubernetes::{CommittedWrite, ResourceId};
use serde_json::Value;

use super::{cluster::ClusterWorld, universe::Universe, workloads::Workload};

/// Returns the clusters in which pods of a workload run.
pub(super) fn running_in(universe: &Universe, workload: &str) -> Vec<String> {
    let clusters = universe.clusters.iter();
    let running = clusters.filter(|cluster| cluster.running_pods(workload) > 0);
    running.map(|cluster| cluster.name.clone()).collect()
}

/// Returns the clusters in which a workload of a random world works.
pub(super) fn works_in(universe: &Universe, workload: Workload) -> Vec<&str> {
    let clusters = universe.clusters.iter();
    let working = clusters.filter(|cluster| cluster.works(workload));
    working.map(|cluster| &*cluster.name).collect()
}

/// Returns the conditions in the status of an object.
fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// Reports whether this is a true condition of the kind.
fn is_true(condition: &Value, kind: &str) -> bool {
    condition["type"] == kind && condition["status"] == "True"
}

/// Reports whether the status of an object shows this condition as true.
pub(super) fn is_condition_true(object: &Value, kind: &str) -> bool {
    conditions(object).any(|condition| is_true(condition, kind))
}

/// Reports whether the status of a lock shows this condition as true.
pub(super) fn has_condition(cluster: &ClusterWorld, lock: &str, kind: &str) -> bool {
    let lock = cluster.lock(lock);
    lock.is_some_and(|lock| is_condition_true(&lock, kind))
}

/// Reports whether the status of a lock shows this condition as true, for the present generation.
pub(super) fn is_current(cluster: &ClusterWorld, lock: &str, kind: &str) -> bool {
    cluster.lock(lock).is_some_and(|lock| {
        conditions(&lock).any(|condition| {
            is_true(condition, kind) && condition["observedGeneration"] == lock["metadata"]["generation"]
        })
    })
}

/// Reports whether the status of a lock shows this cluster as its holder.
pub(super) fn is_active(cluster: &ClusterWorld, lock: &str) -> bool {
    shows_role(cluster, lock, "Active")
}

/// Reports whether an annotation forbids to switch the targets of a lock.
pub(super) fn is_paused(cluster: &ClusterWorld, lock: &str) -> bool {
    let lock = cluster.lock(lock);
    lock.is_some_and(|lock| !lock["metadata"]["annotations"]["redlock.dev/paused"].is_null())
}

/// Reports whether the status of a lock shows this role.
pub(super) fn shows_role(cluster: &ClusterWorld, lock: &str, role: &str) -> bool {
    let lock = cluster.lock(lock);
    lock.is_some_and(|lock| lock["status"]["role"] == role)
}

/// Returns the changes of the replicas of the Deployment `web` since the last call of `take_history`.
pub(super) fn switches(cluster: &ClusterWorld) -> Vec<String> {
    let replicas =
        |object: &Option<Arc<Value>>| object.as_ref().map(|object| object["spec"]["replicas"].clone());
    let is_switch = |write: &&CommittedWrite| {
        write.key.resource == ResourceId::DEPLOYMENTS
            && write.key.name == "web"
            && replicas(&write.before) != replicas(&write.after)
    };
    let (history, _) = cluster.api.take_history();
    let switches = history.iter().filter(is_switch);
    switches
        .map(|write| format!("{} {:?} by {}", write.time, replicas(&write.after), write.caller))
        .collect()
}

/// Reports whether a condition of the lock has this reason.
pub(super) fn has_reason(cluster: &ClusterWorld, lock: &str, reason: &str) -> bool {
    let lock = cluster.lock(lock);
    lock.is_some_and(|lock| conditions(&lock).any(|condition| condition["reason"] == reason))
}

/// Reports whether the message of this condition of a lock contains the text.
pub(super) fn condition_contains(cluster: &ClusterWorld, lock: &str, kind: &str, text: &str) -> bool {
    let contains = |condition: &Value| {
        condition["message"]
            .as_str()
            .is_some_and(|message| message.contains(text))
    };
    let lock = cluster.lock(lock);
    lock.is_some_and(|lock| {
        conditions(&lock).any(|condition| condition["type"] == kind && contains(condition))
    })
}

/// Returns the status of a lock, for the message of a failure.
pub(super) fn status_text(cluster: &ClusterWorld, lock: &str) -> String {
    let lock = cluster.lock(lock);
    lock.map_or_else(|| "no such lock".to_owned(), |lock| lock["status"].to_string())
}

/// Returns the reason of a condition of a quorum.
pub(super) fn quorum_condition(cluster: &ClusterWorld, quorum: &str, kind: &str) -> Option<String> {
    let quorum = cluster.quorum(quorum)?;
    let condition = conditions(&quorum).find(|condition| condition["type"] == kind)?;
    Some(condition["reason"].as_str()?.to_owned())
}
