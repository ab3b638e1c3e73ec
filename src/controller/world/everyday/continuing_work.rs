//! Work that continues to run without a majority of the masters, across a restart of the operator.

use std::time::Duration;

use tokio::time;

use super::{LATE, manifests, runs_somewhere};
use crate::controller::world::universe::Universe;

/// Longer than the lease of the lock.
const OUTAGE: Duration = Duration::from_secs(60);

/// All masters are down, and a person ends the only replica and starts the next one.
pub(super) async fn continuing_work(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 1, 1);
    let cluster = &universe.clusters[0];
    cluster.create_deployment("web", 0);
    let mut lock = manifests::lock("web", &["web"]);
    lock["spec"]["onQuorumLoss"] = "KeepRunning".into();
    cluster.create_lock(lock);
    runs_somewhere(&universe).await?;
    let masters = universe.masters.iter();
    masters.for_each(redlock_world::masters::Master::kill);
    time::sleep(OUTAGE).await;
    cluster.scale_operator(0);
    time::sleep(OUTAGE / 2).await;
    cluster.scale_operator(1);
    universe
        .keep("the work runs on", LATE, |_| cluster.running_pods("web") == 1)
        .await
}
