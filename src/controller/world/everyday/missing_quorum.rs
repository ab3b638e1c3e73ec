//! A lock that is edited to name a RedisQuorum that does not exist.

use std::time::Duration;

use serde_json::json;
use tokio::time;

use super::{ClusterWorld, LATE, SOON, has_condition, manifests, running_in, with_running_work};
use crate::controller::world::{
    observer::{has_reason, shows_role, status_text},
    universe::Universe,
};

/// The lock of the active cluster names a quorum that does not exist. The last valid spec stays in force, no status claims a
/// standby beside running work, and the corrected lock is ready without a switch.
pub(super) async fn missing_quorum(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    let holder = active.lock("web").unwrap_or_default()["status"]["holder"].clone();
    active.change_lock("web", json!({ "spec": { "quorumRef": { "name": "missing" } } }));
    universe
        .wait("the status gives the reason", SOON, |_| {
            has_reason(&active, "web", "QuorumNotFound")
        })
        .await?;
    active.api.take_history();
    universe
        .keep(
            "the work runs on, and the status shows the holder and no standby",
            LATE,
            |universe| {
                running_in(universe, "web") == [active.name.clone()]
                    && !shows_role(&active, "web", "Standby")
                    && !has_condition(&active, "web", "Ready")
                    && active.lock("web").unwrap_or_default()["status"]["holder"] == holder
            },
        )
        .await
        .map_err(|text| format!("{text}: {}", status_text(&active, "web")))?;
    let writes = status_writes(&active);
    if writes > 10 {
        return Err(format!("the status was written {writes} times"));
    }
    restarted_standby(&universe, &active, seed).await?;
    active.change_lock("web", json!({ "spec": { "quorumRef": { "name": "default" } } }));
    universe
        .wait("the corrected lock is ready", SOON, |_| {
            has_condition(&active, "web", "Ready")
        })
        .await?;
    universe
        .keep("the work ran on", SOON, |universe| {
            running_in(universe, "web") == [active.name.clone()]
        })
        .await
}

/// The lock of the other cluster names the missing quorum, too, and one of its operators restarts: it does not know the last
/// valid spec, and the two do not replace each other's status.
async fn restarted_standby(universe: &Universe, active: &ClusterWorld, seed: u64) -> Result<(), String> {
    let mut clusters = universe.clusters.iter();
    let standby = clusters.find(|cluster| cluster.name != active.name).unwrap();
    standby.change_lock("web", json!({ "spec": { "quorumRef": { "name": "missing" } } }));
    time::sleep(Duration::from_secs(2)).await;
    let restarted = usize::from(seed.is_multiple_of(2));
    let pods = standby.operator_pods();
    let (_, uid) = pods.iter().nth(restarted).ok_or("no second operator")?;
    standby.crash_pod(uid);
    standby.api.take_history();
    time::sleep(LATE).await;
    let writes = status_writes(standby);
    standby.change_lock("web", json!({ "spec": { "quorumRef": { "name": "default" } } }));
    if writes > 10 {
        return Err(format!("the status of the standby was written {writes} times"));
    }
    Ok(())
}

/// Returns the number of writes of the lock since the last call of `take_history`.
fn status_writes(cluster: &ClusterWorld) -> usize {
    let (history, _) = cluster.api.take_history();
    let key = manifests::lock_key("web");
    history.iter().filter(|write| write.key == key).count()
}
