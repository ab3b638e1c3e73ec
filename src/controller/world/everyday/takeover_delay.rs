//! A lock that is taken over by another cluster.

use std::time::Duration;

use tokio::time;

use super::{ClusterWorld, LATE, SOON, with_running_work};

/// Cuts the active cluster off from the masters: the other one waits before it starts the work.
pub(super) async fn takeover_delay(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    let other = universe
        .clusters
        .iter()
        .find(|cluster| cluster.name != active.name)
        .unwrap();
    universe.cut_from_masters(&active, true);
    universe
        .wait("the other cluster holds the lock", LATE, |_| {
            is_active_holder(other)
        })
        .await?;
    time::sleep(Duration::from_millis(700)).await;
    let object = other.lock("web").unwrap();
    if object["metadata"]["finalizers"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        return Err(format!(
            "the lock is held without a finalizer\n{}",
            universe.story()
        ));
    }
    if other.running_pods("web") == 0 && object["status"]["role"] == "Active" {
        return Err("a lock whose start is postponed is Active".to_owned());
    }
    other.delete_lock("web");
    universe
        .keep("no work runs without a lock", SOON, |_| {
            other.running_pods("web") == 0
        })
        .await
}

/// Reports whether the status of the lock names a holder of this cluster.
fn is_active_holder(cluster: &ClusterWorld) -> bool {
    let lock = cluster.lock("web");
    lock.is_some_and(|lock| lock["status"]["holderCluster"] == cluster.name.as_str())
}
