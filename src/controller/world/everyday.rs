//! Everyday operations of users, each in many worlds.

use std::time::Duration;

use serde_json::json;

use super::{
    manifests,
    observer::{has_condition, running_in},
    universe::Universe,
};

const SOON: Duration = Duration::from_secs(30);
const LATE: Duration = Duration::from_secs(120);

/// Starts a world in which a lock runs a Deployment in one of the clusters.
async fn with_running_work(seed: u64, clusters: usize, replicas: u32) -> Result<Universe, String> {
    let universe = Universe::start(seed, clusters, replicas);
    for cluster in &universe.clusters {
        cluster.create_deployment("web", 0);
        cluster.create_lock(manifests::lock("web", &["web"]));
    }
    universe
        .wait("the work runs", LATE, |universe| {
            running_in(universe, "web").len() == 1
        })
        .await?;
    universe
        .wait("the status shows it", SOON, |universe| {
            universe
                .clusters
                .iter()
                .all(|cluster| has_condition(cluster, "web", "Ready"))
        })
        .await?;
    Ok(universe)
}

/// Deletes the lock in the active cluster.
async fn deletion_stops_the_work(seed: u64, clusters: usize, replicas: u32) -> Result<(), String> {
    let universe = with_running_work(seed, clusters, replicas).await?;
    let active = running_in(&universe, "web").remove(0);
    let cluster = universe
        .clusters
        .iter()
        .find(|cluster| cluster.name == active)
        .unwrap();
    cluster.delete_lock("web");
    universe
        .wait("the object is gone", SOON, |_| cluster.lock("web").is_none())
        .await?;
    universe
        .wait("the work is stopped", SOON, |_| cluster.running_pods("web") == 0)
        .await?;
    if clusters > 1 {
        universe
            .wait(
                "the other cluster runs the work",
                Duration::from_secs(5),
                |universe| !running_in(universe, "web").is_empty(),
            )
            .await?;
    }
    universe
        .keep("no work runs without a lock", SOON, |_| {
            cluster.running_pods("web") == 0
        })
        .await
}

/// Moves the lock to another quorum in a single cluster.
async fn another_quorum_keeps_one_writer(seed: u64, replicas: u32) -> Result<(), String> {
    let universe = with_running_work(seed, 1, replicas).await?;
    let cluster = &universe.clusters[0];
    cluster.api.take_history();
    cluster.change_lock("web", json!({ "spec": { "quorumRef": { "name": "second" } } }));
    universe
        .wait("the work is stopped", SOON, |_| cluster.running_pods("web") == 0)
        .await?;
    universe
        .wait("the work runs again", LATE, |_| cluster.running_pods("web") == 1)
        .await?;
    universe
        .keep("the work runs on", SOON, |_| cluster.running_pods("web") == 1)
        .await?;
    let (history, _) = cluster.api.take_history();
    let key = manifests::deployment_key("web");
    let replicas = |value: &Option<std::sync::Arc<serde_json::Value>>| {
        value.as_ref().map(|object| object["spec"]["replicas"].clone())
    };
    let writes: Vec<String> = history
        .iter()
        .filter(|write| write.key == key && replicas(&write.before) != replicas(&write.after))
        .map(|write| format!("{} {:?} by {}", write.time, replicas(&write.after), write.caller))
        .collect();
    if writes.len() == 2 {
        Ok(())
    } else {
        Err(format!(
            "the Deployment was switched {} times: {writes:?}",
            writes.len()
        ))
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// Runs a scenario in worlds of different seeds.
fn in_worlds<F>(worlds: u64, scenario: impl Fn(u64) -> F)
where
    F: Future<Output = Result<(), String>>,
{
    let seed = std::env::var("REDLOCK_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seeds = seed.map_or(0..number("REDLOCK_WORLDS", worlds), |seed: u64| seed..seed + 1);
    let failures: Vec<String> = seeds
        .filter_map(|seed| {
            let end = redlock_world::runtime::run(seed, scenario(seed));
            end.err().map(|broken| format!("REDLOCK_SEED={seed}: {broken}"))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} worlds failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn deleted_lock_leaves_no_work_running_in_one_cluster() {
    in_worlds(8, |seed| deletion_stops_the_work(seed, 1, 2));
}

#[test]
fn deleted_lock_passes_the_work_to_the_other_cluster() {
    in_worlds(8, |seed| deletion_stops_the_work(seed, 2, 2));
}

#[test]
fn lock_moves_to_another_quorum_without_two_writers() {
    in_worlds(8, |seed| another_quorum_keeps_one_writer(seed, 2));
}
