//! Judges a world from outside of the product: from the objects of the API servers and the pods on the nodes.

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
