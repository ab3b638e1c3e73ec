//! Locks of one tenant whose targets are missing, beside a lock of another tenant.

use std::time::Duration;

use tokio::time;

use super::{LATE, number, runs_somewhere};
use crate::controller::world::{
    manifests::{self, OTHER_NAMESPACE},
    universe::Universe,
};

/// The locks of the other tenant, and the missing targets of each.
const LOCKS: usize = 100;
const MISSING: usize = 2;
/// The time within which the work of the good lock has to be started.
const BOUND: Duration = Duration::from_millis(1_500);

pub(super) async fn bad_neighbours(seed: u64) -> Result<(), String> {
    let universe = Universe::start(seed, 1, 2);
    let cluster = &universe.clusters[0];
    cluster.create_deployment("web", 0);
    // The first lock waits until the masters are sealed, and the reporter is elected.
    cluster.create_lock(manifests::lock("web", &["web"]));
    runs_somewhere(&universe).await?;
    for lock in 0..LOCKS {
        let missing: Vec<String> = (0..MISSING)
            .map(|target| format!("missing-{lock}-{target}"))
            .collect();
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let mut lock = manifests::lock(&format!("bad-{lock}"), &missing);
        lock["metadata"]["namespace"] = OTHER_NAMESPACE.into();
        cluster.create_lock(lock);
    }
    time::sleep(Duration::from_millis(fastrand::u64(..6_000))).await;
    cluster.create_deployment("good", 0);
    cluster.create_lock(manifests::lock("good", &["good"]));
    let took = universe
        .wait("the work of the good lock is started", LATE, |_| {
            cluster.replicas("good") == Some(1)
        })
        .await?;
    if number("REDLOCK_SEED").is_some() {
        println!("the good lock started after {took:?}");
    }
    if took <= BOUND {
        return Ok(());
    }
    Err(format!(
        "the good lock started after {took:?}\n{}",
        universe.story()
    ))
}
