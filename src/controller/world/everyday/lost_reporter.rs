//! A replica that writes the statuses of its cluster, and is lost with its node.

use std::time::Duration;

use redlock_world::kubernetes::{ObjectKey, Partition, ResourceId};

use super::{SOON, manifests, number, runs_somewhere};
use crate::controller::world::{cluster::ClusterWorld, universe::Universe};

/// The time for which a status may name a holder that has released the lock: a seat of 3 s, and the time that is left to the
/// coordinator.
const STALE: Duration = Duration::from_secs(4);

fn coordinator(cluster: &ClusterWorld) -> Option<String> {
    let key = ObjectKey::new(
        ResourceId::LEASES,
        manifests::OPERATOR_NAMESPACE,
        manifests::OPERATOR,
    );
    let lease = cluster.api.read(&key)?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let operators = cluster.operators();
    let mut named = operators
        .into_iter()
        .filter(|operator| operator.contains(&format!("/{holder}#")));
    named.next()
}

/// A cluster that is stepped down shows the holder in the other cluster. Its reporter is lost while that cluster deletes the lock.
pub(super) async fn lost_reporter(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 2, 2);
    let (active, other) = (&universe.clusters[0], &universe.clusters[1]);
    for cluster in &universe.clusters {
        cluster.create_deployment("web", 0);
    }
    active.create_lock(manifests::lock("web", &["web"]));
    let mut lock = manifests::lock("web", &["web"]);
    lock["spec"]["state"] = "SteppedDown".into();
    lock["spec"]["reason"] = "a test".into();
    other.create_lock(lock);
    runs_somewhere(&universe).await?;
    let shows_holder = |lock: &str| {
        let lock = other.lock(lock).unwrap();
        lock["status"]["holderCluster"]
            .as_str()
            .is_some_and(|name| !name.is_empty())
    };
    universe
        .wait("the other cluster shows the holder", SOON, |_| {
            shows_holder("web") && coordinator(other).is_some()
        })
        .await?;
    let reporter = coordinator(other).ok_or("no replica coordinates")?;
    other.api.partition(&reporter, Partition::Both);
    universe.cut_operator(&reporter, true);
    active.delete_lock("web");
    universe
        .wait("the object is gone", SOON, |_| active.lock("web").is_none())
        .await?;
    let stale = universe
        .wait("the status names no holder", STALE, |_| !shows_holder("web"))
        .await?;
    if number("REDLOCK_SEED").is_some() {
        println!("the status was old for {stale:?}");
    }
    Ok(())
}
