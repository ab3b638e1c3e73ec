//! A target that is deleted without its pods.

use std::time::Duration;

use redlock_world::kubernetes::{DeleteOptions, ObjectKey, Propagation, ResourceId};
use tokio::time;

use super::{LATE, SOON, goes, has_condition, manifests, with_running_work};
use crate::controller::world::{
    cluster::{ClusterWorld, USER},
    manifests::NAMESPACE,
    observer::has_reason,
};

/// Deletes a Deployment and keeps its pods, as `kubectl delete --cascade=orphan` does.
fn orphan(cluster: &ClusterWorld, deployment: &str) {
    let options = DeleteOptions {
        propagation: Some(Propagation::Orphan),
        ..DeleteOptions::default()
    };
    let key = manifests::deployment_key(deployment);
    cluster.api.delete(USER, &key, &options).unwrap();
}

fn delete_replica_sets(cluster: &ClusterWorld) {
    for set in cluster.api.all(&ResourceId::REPLICA_SETS) {
        let text = |field: &str| set["metadata"][field].as_str().unwrap_or_default();
        let key = ObjectKey::new(ResourceId::REPLICA_SETS, text("namespace"), text("name"));
        if text("namespace") == NAMESPACE {
            cluster.api.delete(USER, &key, &DeleteOptions::default()).unwrap();
        }
    }
}

/// The Deployment of a lock is orphaned, no replica that knows it is left, and the lock is deleted: it stays, with a report,
/// until a person has ended the pods.
pub(super) async fn orphaned_pods(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    orphan(&cluster, "web");
    universe
        .wait("the Deployment is gone", SOON, |_| {
            cluster.api.read(&manifests::deployment_key("web")).is_none()
        })
        .await?;
    cluster
        .operator_pods()
        .values()
        .for_each(|uid| cluster.crash_pod(uid));
    time::sleep(Duration::from_millis(fastrand::u64(..5_000))).await;
    cluster.delete_lock("web");
    universe
        .keep("the lock stays while the pods run", SOON, |_| {
            cluster.lock("web").is_some() && cluster.running_pods("web") > 0
        })
        .await?;
    universe
        .wait("the lock reports it", SOON, |_| {
            has_reason(&cluster, "web", "TargetNotSafe") && !has_condition(&cluster, "web", "Ready")
        })
        .await?;
    universe
        .wait("an event reports that the lock stays", LATE, |_| {
            cluster.events().iter().any(|event| event == "DepartureBlocked")
        })
        .await
        .map_err(|text| format!("{text}: {:?}", cluster.events()))?;
    delete_replica_sets(&cluster);
    goes(&universe, &cluster).await
}
