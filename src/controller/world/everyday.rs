//! Everyday operations of users, each in many worlds.

mod blind_standby;

use std::time::Duration;

use serde_json::json;
use tokio::time;

use super::{
    cluster::ClusterWorld,
    manifests,
    observer::{has_condition, running_in, switches},
    universe::Universe,
};
use blind_standby::blind_standby;

use crate::controller::planted::{WorldMistake, plant};

const SOON: Duration = Duration::from_secs(40);
const LATE: Duration = Duration::from_secs(150);

/// An operation of a user, with its expected results.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Deletion { clusters: usize },
    DeletionAfterRecreation,
    PausedDeletion,
    AnotherQuorum,
    RemovedTarget,
    MovedTarget,
    StepDown,
    TakeoverDelay,
    BlindStandby,
}

impl Scenario {
    async fn run(self, seed: u64) -> Result<(), String> {
        match self {
            Self::Deletion { clusters } => deletion(seed, clusters).await,
            Self::DeletionAfterRecreation => deletion_after_recreation(seed).await,
            Self::PausedDeletion => paused_deletion(seed).await,
            Self::AnotherQuorum => another_quorum(seed).await,
            Self::RemovedTarget => removed_target(seed).await,
            Self::MovedTarget => moved_target(seed).await,
            Self::StepDown => step_down(seed).await,
            Self::TakeoverDelay => takeover_delay(seed).await,
            Self::BlindStandby => blind_standby(seed).await,
        }
    }
}

/// Starts a world in which a lock runs a Deployment in one of the clusters, and returns that cluster.
async fn with_running_work(seed: u64, clusters: usize) -> Result<(Universe, ClusterWorld), String> {
    let universe = Universe::start(seed, clusters, 2);
    for cluster in &universe.clusters {
        cluster.create_deployment("web", 0);
        cluster.create_lock(manifests::lock("web", &["web"]));
    }
    let active = runs_somewhere(&universe).await?;
    universe
        .wait("the statuses show it", SOON, |universe| {
            let mut clusters = universe.clusters.iter();
            clusters.all(|cluster| has_condition(cluster, "web", "Ready"))
        })
        .await?;
    Ok((universe, active))
}

/// Waits until the work runs in one cluster, and returns it.
async fn runs_somewhere(universe: &Universe) -> Result<ClusterWorld, String> {
    universe
        .wait("the work runs", LATE, |universe| {
            running_in(universe, "web").len() == 1
        })
        .await?;
    let active = running_in(universe, "web").remove(0);
    let mut clusters = universe.clusters.iter();
    Ok(clusters.find(|cluster| cluster.name == active).unwrap().clone())
}

/// Waits until the lock and its work are gone, and checks that the work stays stopped.
async fn goes(universe: &Universe, cluster: &ClusterWorld) -> Result<(), String> {
    universe
        .wait("the object is gone", SOON, |_| cluster.lock("web").is_none())
        .await?;
    universe
        .wait("the work is stopped", SOON, |_| cluster.running_pods("web") == 0)
        .await?;
    universe
        .keep("no work runs without a lock", SOON, |_| {
            cluster.running_pods("web") == 0
        })
        .await
}

async fn deletion(seed: u64, clusters: usize) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, clusters).await?;
    active.delete_lock("web");
    if clusters > 1 {
        universe
            .wait(
                "the other cluster runs the work, as after a clean end",
                SOON / 4,
                |universe| {
                    let running = running_in(universe, "web");
                    !running.is_empty() && !running.contains(&active.name)
                },
            )
            .await?;
    }
    goes(&universe, &active).await
}

/// Deletes the lock, creates it again, and deletes it as soon as it is held.
async fn deletion_after_recreation(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    cluster.delete_lock("web");
    universe
        .wait("the object is gone", SOON, |_| cluster.lock("web").is_none())
        .await?;
    cluster.create_lock(manifests::lock("web", &["web"]));
    let moment = Duration::from_millis(fastrand::u64(..2_000));
    universe
        .wait("the new object is held", SOON, |_| {
            has_condition(&cluster, "web", "Held")
        })
        .await?;
    time::sleep(moment).await;
    cluster.delete_lock("web");
    goes(&universe, &cluster).await
}

async fn paused_deletion(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    active.annotate_lock("web", "redlock.dev/paused", Some("a test"));
    time::sleep(Duration::from_secs(2)).await;
    active.delete_lock("web");
    universe
        .keep("the work runs on in the paused cluster alone", SOON, |universe| {
            active.lock("web").is_some() && running_in(universe, "web") == [active.name.clone()]
        })
        .await?;
    active.annotate_lock("web", "redlock.dev/paused", None);
    goes(&universe, &active).await
}

async fn another_quorum(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
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
    let switches = switches(&cluster);
    if switches.len() == 2 {
        return Ok(());
    }
    Err(format!(
        "the Deployment was switched {} times: {switches:?}",
        switches.len()
    ))
}

/// Removes the target from its lock. A person then runs it outside of any lock, and the holder crashes.
async fn removed_target(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    cluster.change_lock("web", json!({ "spec": { "targets": [] } }));
    universe
        .wait("the removed target is stopped", SOON, |_| {
            cluster.running_pods("web") == 0
        })
        .await?;
    time::sleep(Duration::from_secs(2)).await;
    cluster.scale("web", 1);
    cluster.api.take_history();
    for _ in 0..2 {
        for (_, uid) in cluster.operator_pods() {
            cluster.crash_pod(&uid);
            time::sleep(Duration::from_secs(45)).await;
        }
    }
    let switches = switches(&cluster);
    if switches.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no lock names the Deployment, and it was switched: {switches:?}"
    ))
}

/// Moves the target to another lock of the same cluster.
async fn moved_target(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    cluster.create_lock(manifests::lock("other", &[]));
    universe
        .wait("the other lock is held", SOON, |_| {
            has_condition(&cluster, "other", "Held")
        })
        .await?;
    cluster.change_lock(
        "other",
        json!({ "spec": manifests::lock("other", &["web"])["spec"] }),
    );
    time::sleep(Duration::from_millis(fastrand::u64(..3_000))).await;
    cluster.change_lock("web", json!({ "spec": { "targets": [] } }));
    universe
        .wait("the other lock runs the target", LATE, |_| {
            cluster.running_pods("web") == 1 && has_condition(&cluster, "other", "Ready")
        })
        .await?;
    cluster.change_lock(
        "web",
        json!({ "spec": { "state": "SteppedDown", "reason": "a test" } }),
    );
    universe
        .keep("the target runs on", SOON, |_| cluster.running_pods("web") == 1)
        .await
}

async fn step_down(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    active.change_lock(
        "web",
        json!({ "spec": { "state": "SteppedDown", "reason": "a test" } }),
    );
    universe
        .wait(
            "the other cluster runs the work, as after a clean end",
            SOON / 4,
            |universe| {
                let running = running_in(universe, "web");
                !running.is_empty() && !running.contains(&active.name)
            },
        )
        .await?;
    universe
        .keep("the work stays there", SOON, |universe| {
            !running_in(universe, "web").contains(&active.name)
        })
        .await
}

/// Cuts the active cluster off from the masters: the other one waits before it starts the work.
async fn takeover_delay(seed: u64) -> Result<(), String> {
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

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a scenario in worlds of different seeds. Returns the first seed that fails, and why.
fn failure(scenario: Scenario, worlds: u64) -> Option<String> {
    let seeds = number("REDLOCK_SEED").map_or(0..worlds, |seed| seed..seed + 1);
    seeds
        .filter_map(|seed| {
            let end = redlock_world::runtime::run(seed, scenario.run(seed));
            end.err()
                .map(|broken| format!("{scenario:?} REDLOCK_SEED={seed}: {broken}"))
        })
        .next()
}

fn holds(scenario: Scenario) {
    let failure = failure(scenario, number("REDLOCK_WORLDS").unwrap_or(4));
    assert!(failure.is_none(), "{}", failure.unwrap_or_default());
}

#[test]
fn deleted_lock_leaves_no_work_running_in_one_cluster() {
    holds(Scenario::Deletion { clusters: 1 });
}

#[test]
fn deleted_lock_passes_the_work_to_the_other_cluster() {
    holds(Scenario::Deletion { clusters: 2 });
}

#[test]
fn lock_that_was_created_again_is_deleted_with_its_work() {
    holds(Scenario::DeletionAfterRecreation);
}

#[test]
fn paused_lock_that_is_deleted_keeps_its_lease_until_it_is_resumed() {
    holds(Scenario::PausedDeletion);
}

#[test]
fn lock_moves_to_another_quorum_with_one_writer() {
    holds(Scenario::AnotherQuorum);
}

#[test]
fn removed_target_is_left_alone_once_it_was_stopped() {
    holds(Scenario::RemovedTarget);
}

#[test]
fn target_moves_to_another_lock() {
    holds(Scenario::MovedTarget);
}

#[test]
fn cluster_that_steps_down_passes_the_work_on() {
    holds(Scenario::StepDown);
}

#[test]
fn lock_is_guarded_and_not_active_while_its_start_is_postponed() {
    holds(Scenario::TakeoverDelay);
}

#[test]
fn standby_without_masters_and_siblings_leaves_the_work_to_the_coordinator() {
    holds(Scenario::BlindStandby);
}

/// Each mistake, and the scenario that finds it.
const MISTAKES: [(WorldMistake, Scenario); 6] = [
    (
        WorldMistake::DepartsUnrecorded,
        Scenario::Deletion { clusters: 1 },
    ),
    (WorldMistake::DepartsUnrecorded, Scenario::AnotherQuorum),
    (WorldMistake::RemembersRemoved, Scenario::RemovedTarget),
    (WorldMistake::GuardsLate, Scenario::TakeoverDelay),
    (WorldMistake::LeavesPaused, Scenario::PausedDeletion),
    (WorldMistake::StopsUnelected, Scenario::BlindStandby),
];

#[test]
fn every_planted_mistake_is_found() {
    let missed: Vec<_> = MISTAKES
        .into_iter()
        .filter(|(mistake, scenario)| {
            plant(Some(*mistake));
            let found = failure(*scenario, 200);
            plant(None);
            println!("{mistake:?}: {found:?}");
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
