//! Targets that are removed from a lock while they run, or moved to another one.

use std::time::Duration;

use serde_json::json;
use tokio::time;

use super::{LATE, SOON, with_running_work, with_slow_work};
use crate::controller::world::{
    cluster::ClusterWorld,
    manifests,
    observer::{has_condition, running_in},
};

fn set_targets(cluster: &ClusterWorld, lock: &str, targets: &[&str]) {
    let targets = &manifests::lock(lock, targets)["spec"]["targets"];
    cluster.change_lock(lock, json!({ "spec": { "targets": targets } }));
}

/// Moves the target to another lock in two clusters: it is added to the one before it is removed from the other.
pub(super) async fn moved_target(seed: u64) -> Result<(), String> {
    let (universe, _) = with_running_work(seed, 2).await?;
    for cluster in &universe.clusters {
        cluster.create_lock(manifests::lock("other", &[]));
    }
    universe
        .wait("the other lock is held", SOON, |universe| {
            let mut clusters = universe.clusters.iter();
            clusters.any(|cluster| has_condition(cluster, "other", "Held"))
        })
        .await?;
    for cluster in &universe.clusters {
        set_targets(cluster, "other", &["web"]);
    }
    time::sleep(Duration::from_millis(fastrand::u64(..3_000))).await;
    for cluster in &universe.clusters {
        set_targets(cluster, "web", &[]);
    }
    universe
        .wait(
            "the other lock runs the target in one cluster",
            LATE,
            |universe| {
                let mut clusters = universe.clusters.iter();
                running_in(universe, "web").len() == 1
                    && clusters.all(|cluster| has_condition(cluster, "other", "Ready"))
            },
        )
        .await?;
    for cluster in &universe.clusters {
        cluster.change_lock(
            "web",
            json!({ "spec": { "state": "SteppedDown", "reason": "a test" } }),
        );
    }
    universe
        .keep("the target runs on", SOON, |universe| {
            running_in(universe, "web").len() == 1
        })
        .await
}

/// Removes the target, whose pods take some time to end, and deletes the lock meanwhile, in half of the worlds during a
/// rollout of the operator: the object stays until the pods have ended.
pub(super) async fn deleted_after_removal(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_slow_work(seed, 12, 20).await?;
    time::sleep(Duration::from_millis(fastrand::u64(..20_000))).await;
    set_targets(&cluster, "web", &[]);
    if seed.is_multiple_of(2) {
        time::sleep(Duration::from_millis(fastrand::u64(100..2_000))).await;
        cluster.roll_out_operator(1);
    }
    let moment = Duration::from_millis(fastrand::u64(..8_000));
    universe
        .keep("the finalizer stands while the pods run", moment, |_| {
            cluster.running_pods("web") == 0 || is_guarded(&cluster)
        })
        .await?;
    cluster.delete_lock("web");
    universe
        .keep("the object stays while the pods run", SOON, |_| {
            cluster.running_pods("web") == 0 || is_guarded(&cluster)
        })
        .await?;
    match cluster.lock("web") {
        None => Ok(()),
        Some(_) => Err("the work is stopped, and the object is not gone".to_owned()),
    }
}

/// Reports whether the lock has a finalizer.
fn is_guarded(cluster: &ClusterWorld) -> bool {
    let lock = cluster.lock("web");
    lock.is_some_and(|lock| lock["metadata"]["finalizers"].is_array())
}
