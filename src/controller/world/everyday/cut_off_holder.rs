//! A holder that is cut off from the API server alone.

use std::time::Duration;

use redlock_world::kubernetes::Partition;
use tokio::time;

use super::{SOON, goes, switches, with_running_work};

/// Cuts the replica that holds the lock off from the API server. The other replica takes over, without a stop, and repairs
/// and deletes.
pub(super) async fn cut_off_holder(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    let holder = || {
        let lock = cluster.lock("web").unwrap();
        lock["status"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let first = holder();
    let operators = cluster.operators();
    let party = operators
        .iter()
        .find(|operator| operator.contains(&format!("/{first}#")))
        .ok_or("the holder does not run")?;
    cluster.api.take_history();
    cluster.api.partition(party, Partition::Both);
    universe
        .wait("the other replica holds the lock", SOON / 2, |_| {
            !holder().is_empty() && holder() != first
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
