//! A target of a kind that no lock can switch.

use serde_json::json;

use super::{LATE, SOON, has_condition, manifests, running_in};
use crate::controller::world::{
    observer::{has_reason, status_text},
    universe::Universe,
};

/// The lock names a kind without a scale. No cluster holds it, and its deletion waits for nothing; once the target is
/// corrected, one cluster runs it.
pub(super) async fn unswitchable(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 2, 2);
    let mut lock = manifests::lock("web", &["web"]);
    lock["spec"]["targets"][0]["ref"] = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "web" });
    for cluster in &universe.clusters {
        cluster.create_deployment("web", 0);
        cluster.create_lock(lock.clone());
    }
    let all = |check: &dyn Fn(&super::ClusterWorld) -> bool| universe.clusters.iter().all(check);
    universe
        .wait(
            "the statuses give the reason, and no cluster holds the lock",
            LATE,
            |_| all(&|cluster| has_reason(cluster, "web", "NoScaleSubresource") && !is_held(cluster)),
        )
        .await
        .map_err(|text| format!("{text}: {}", status_text(&universe.clusters[0], "web")))?;
    universe
        .keep("no cluster holds the lock", LATE, |_| {
            all(&|cluster| !is_held(cluster) && !is_guarded(cluster))
        })
        .await?;
    let corrected = json!({ "spec": { "targets": manifests::lock("web", &["web"])["spec"]["targets"] } });
    for cluster in &universe.clusters {
        cluster.change_lock("web", corrected.clone());
    }
    universe
        .wait("one cluster runs the corrected target", LATE, |universe| {
            running_in(universe, "web").len() == 1 && all(&|cluster| has_condition(cluster, "web", "Ready"))
        })
        .await?;
    // The lock of another namespace of the same kind is deleted without a wait.
    let cluster = &universe.clusters[0];
    lock["metadata"]["name"] = json!("other");
    cluster.create_lock(lock);
    universe
        .wait("the status gives the reason", LATE, |_| {
            has_reason(cluster, "other", "NoScaleSubresource")
        })
        .await?;
    cluster.delete_lock("other");
    universe
        .wait("the object is gone", SOON, |_| cluster.lock("other").is_none())
        .await?;
    Ok(())
}

fn is_held(cluster: &super::ClusterWorld) -> bool {
    has_condition(cluster, "web", "Held")
}

fn is_guarded(cluster: &super::ClusterWorld) -> bool {
    let lock = cluster.lock("web").unwrap_or_default();
    lock["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
}
