//! Judges a world from outside of the product: from the objects of the API servers and the pods on the nodes.

use std::sync::Arc;

use redlock_world::kubernetes::{CommittedWrite, ResourceId};
use serde_json::Value;

use super::{cluster::ClusterWorld, universe::Universe};

/// Returns the clusters in which pods of a workload run.
pub(super) fn running_in(universe: &Universe, workload: &str) -> Vec<String> {
    let clusters = universe.clusters.iter();
    let running = clusters.filter(|cluster| cluster.running_pods(workload) > 0);
    running.map(|cluster| cluster.name.clone()).collect()
}

/// Reports whether the status of a lock shows this condition as true.
pub(super) fn has_condition(cluster: &ClusterWorld, lock: &str, kind: &str) -> bool {
    let Some(object) = cluster.lock(lock) else {
        return false;
    };
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
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
