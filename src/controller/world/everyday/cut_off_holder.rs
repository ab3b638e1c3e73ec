//! A holder that is cut off from the API server alone.

use std::time::Duration;

use redlock_world::kubernetes::Partition;
use tokio::time;

use super::{SOON, goes, switches, with_running_work};
use crate::controller::world::cluster::ClusterWorld;

/// Returns the replica that holds the lock, as the status shows it.
fn holder(cluster: &ClusterWorld) -> String {
    let lock = cluster.lock("web").unwrap();
    let holder = lock["status"]["holderIdentity"].as_str();
    holder.unwrap_or_default().to_owned()
}

/// Cuts the replica that holds the lock off from the API server. Returns it.
fn cut_holder_off(cluster: &ClusterWorld) -> Result<String, String> {
    let holder = holder(cluster);
    let operators = cluster.operators();
    let party = operators
        .iter()
        .find(|operator| operator.contains(&format!("/{holder}#")))
        .ok_or("the holder does not run")?;
    cluster.api.take_history();
    cluster.api.partition(party, Partition::Both);
    Ok(holder)
}

/// Deletes the lock shortly after its holder is cut off from the API server: the holder does not see that, and the other
/// replica does not contend for a lock that is deleted.
pub(super) async fn deleted_while_cut_off(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    cut_holder_off(&cluster)?;
    time::sleep(Duration::from_millis(fastrand::u64(..4_000))).await;
    cluster.delete_lock("web");
    goes(&universe, &cluster).await
}

/// Cuts the replica that holds the lock off from the API server. The other replica takes over, without a stop, and repairs
/// and deletes.
pub(super) async fn cut_off_holder(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    let first = cut_holder_off(&cluster)?;
    universe
        .wait("the other replica holds the lock", SOON / 2, |_| {
            let present = holder(&cluster);
            !present.is_empty() && present != first
        })
        .await?;
    time::sleep(Duration::from_secs(5)).await;
    let switches = switches(&cluster);
    if !switches.is_empty() {
        return Err(format!("the work was switched: {switches:?}"));
    }
    cluster.scale("web", 0);
    universe
        .wait("the work is repaired", SOON, |_| cluster.running_pods("web") == 1)
        .await?;
    cluster.delete_lock("web");
    goes(&universe, &cluster).await
}
