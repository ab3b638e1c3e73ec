//! A standby replica that sees neither the masters nor its sibling.

use std::time::Duration;

use redlock_world::{kubernetes::Partition, network::Cut};
use tokio::time;

use super::{LATE, Universe, switches, with_running_work};
use crate::controller::world::observer::quorum_condition;

/// Cuts the standby replica off from the masters, while a network policy forbids the path between the replicas. Later the
/// API server does not answer for a while.
pub(super) async fn blind_standby(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    let operators = cluster.operators();
    for one in &operators {
        operators
            .iter()
            .for_each(|other| universe.network.cut(one, other, Cut::Hang));
    }
    universe
        .wait("the quorum reports that the path is closed", LATE, |_| {
            quorum_condition(&cluster, "default", "SiblingsUnreachable").as_deref() == Some("SiblingsSilent")
        })
        .await?;
    // The coordinator may be either of them.
    time::sleep(Duration::from_secs(12)).await;
    let lock = cluster.lock("web").unwrap();
    let holder = lock["status"]["holderIdentity"].as_str().unwrap_or_default();
    let is_standby = |operator: &&String| !operator.contains(&format!("/{holder}#"));
    let standby = operators.iter().find(is_standby).unwrap();
    cluster.api.take_history();
    universe.cut_operator(standby, true);
    let runs = |_: &Universe| cluster.running_pods("web") == 1;
    universe
        .keep("the work of the healthy holder runs on", LATE / 2, runs)
        .await?;
    for operator in &operators {
        cluster.api.partition(operator, Partition::Both);
    }
    time::sleep(Duration::from_secs(20)).await;
    operators.iter().for_each(|operator| cluster.heal_api(operator));
    universe.keep("it still runs on", LATE / 2, runs).await?;
    let switches = switches(&cluster);
    if switches.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the holder is healthy, and its work was switched: {switches:?}"
    ))
}
