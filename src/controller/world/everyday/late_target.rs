//! A lock that is created before its target.

use std::time::Duration;

use redlock_world::masters::Reply;
use tokio::time;

use super::{LATE, SOON, has_condition, manifests, running_in};
use crate::controller::world::{observer::has_reason, universe::Universe};

/// The longest delay that the holder may declare: the grace period of the pods, and both margins.
const DECLARED: u64 = 15_000;

/// The lock declares no stop time, and its Deployment is created later: the holder declares the time of the pod template, and
/// not the longest time that is assumed for an unknown one.
pub(super) async fn late_target(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 2, 2);
    let mut lock = manifests::lock("web", &["web"]);
    lock["spec"]["targets"][0]
        .as_object_mut()
        .unwrap()
        .remove("stopSeconds");
    let delays = || -> Vec<u64> {
        let masters = universe.masters.iter();
        let read = masters.map(|master| master.execute(&["HGET", "redlock:meta", "delay:team/web"]));
        let delay = |reply| match reply {
            Reply::Bulk(value) => String::from_utf8(value).ok()?.split_once('|')?.1.parse().ok(),
            _ => None,
        };
        read.filter_map(delay).collect()
    };
    for cluster in &universe.clusters {
        cluster.create_lock(lock.clone());
    }
    universe
        .wait(
            "a cluster holds the lock and misses the target",
            LATE,
            |universe| {
                let mut clusters = universe.clusters.iter();
                clusters.any(|cluster| {
                    has_condition(cluster, "web", "Held") && has_reason(cluster, "web", "TargetNotFound")
                })
            },
        )
        .await?;
    time::sleep(Duration::from_millis(fastrand::u64(..5_000))).await;
    for cluster in &universe.clusters {
        cluster.create_deployment("web", 0);
    }
    universe
        .wait("the work runs", SOON, |universe| {
            running_in(universe, "web").len() == 1
        })
        .await?;
    let found = delays();
    if found.is_empty() || found.iter().any(|delay| *delay > DECLARED) {
        return Err(format!("the holder declared {found:?} ms"));
    }
    Ok(())
}
