//! A quorum without a majority, and the status that its replicas write.

use std::time::Duration;

use redlock_world::{kubernetes::Partition, masters::Master};
use tokio::time;

use super::{LATE, SOON, manifests, runs_somewhere, with_running_work};
use crate::controller::world::{
    observer::{is_active, quorum_condition},
    universe::Universe,
};

/// The time for which a status may show the state of a restored backup: the heartbeat of a replica that knows more
/// would follow.
const RESTORED: Duration = Duration::from_secs(75);
/// The longest number of writes of the status of a quorum in a minute.
const WRITES: u64 = 30;

/// The masters lose all data, and one of three replicas does not reach them: the replicas see different reasons.
pub(super) async fn reported_once(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 1, 3);
    let cluster = &universe.clusters[0];
    cluster.create_deployment("web", 0);
    cluster.create_lock(manifests::lock("web", &["web"]));
    runs_somewhere(&universe).await?;
    universe.cut_operator(&cluster.operators()[0], true);
    for master in universe.masters.iter() {
        master.restart_empty().await;
    }
    let is_shown = |_: &Universe| quorum_condition(cluster, "default", "Ready").as_deref() != Some("Ready");
    universe.wait("the quorum is not ready", LATE, is_shown).await?;
    // The heartbeat of the last reporter is missed by then.
    time::sleep(Duration::from_secs(50)).await;
    universe.masters.iter().for_each(Master::kill);
    cluster.api.take_requests();
    time::sleep(Duration::from_secs(60)).await;
    let requests = cluster.api.take_requests();
    let counts = requests.values().flatten();
    let writes = counts.filter(|(target, _)| target.ends_with("redisquorums/default/status"));
    let writes: u64 = writes.map(|(_, count)| count).sum();
    if writes <= WRITES {
        return Ok(());
    }
    Err(format!(
        "the status of the quorum was written {writes} times in a minute"
    ))
}

/// A backup is restored while no majority of the masters votes: it shows a holder whose lease has ended.
pub(super) async fn restored_status(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    let backup = cluster.api.snapshot();
    universe.masters.iter().for_each(Master::kill);
    let is_shown = |_: &Universe| !is_active(&cluster, "web");
    universe
        .wait("the end of the lease is shown", LATE, is_shown)
        .await?;
    let clients = cluster.operators();
    for client in &clients {
        cluster.api.partition(client, Partition::Both);
    }
    cluster.restore(&backup);
    time::sleep(Duration::from_secs(1)).await;
    clients.iter().for_each(|client| cluster.heal_api(client));
    universe
        .wait("the backup is restored", SOON, |_| is_active(&cluster, "web"))
        .await?;
    universe.wait("it is shown again", RESTORED, is_shown).await?;
    Ok(())
}
