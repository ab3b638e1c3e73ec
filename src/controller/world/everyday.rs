//! Everyday operations of users, each in many worlds.

mod blind_standby;
mod continuing_work;
mod copied_cluster;
mod cut_off_holder;
mod denied_start;
mod denied_stop;
mod last_replica;
mod late_target;
mod lost_quorum;
mod lost_reporter;
mod missing_quorum;
mod moved_target;
mod neighbours;
mod orphaned_pods;
mod refused_writes;
mod stepped_clock;
mod takeover_delay;
mod tests;
mod unready;
mod unswitchable;

use std::time::Duration;

use serde_json::json;
use tokio::time;

use super::{
    cluster::ClusterWorld,
    manifests, number,
    observer::{has_condition, running_in, switches},
    universe::Universe,
};
use blind_standby::blind_standby;
use continuing_work::continuing_work;
use copied_cluster::copied_cluster;
use cut_off_holder::{cut_off_holder, deleted_while_cut_off};
use denied_start::denied_start;
use denied_stop::{denied_deletion, denied_removal, denied_step_down, unconfirmed_stop};
use last_replica::{last_replica, shown_last_stop};
use late_target::late_target;
use lost_quorum::{reported_once, restored_status};
use lost_reporter::lost_reporter;
use missing_quorum::missing_quorum;
use moved_target::{deleted_after_removal, moved_target};
use neighbours::bad_neighbours;
use orphaned_pods::orphaned_pods;
use refused_writes::refused_writes;
use stepped_clock::stepped_clock;
use takeover_delay::takeover_delay;
pub(super) use tests::mistakes;
use unready::{hand_over_to_stepped_down, unready_alone, unready_everywhere};
use unswitchable::unswitchable;

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
    CutOffHolder,
    DeletedWhileCutOff,
    DeletedAfterRemoval,
    CopiedCluster,
    DeniedStart,
    UnreadyAlone,
    UnreadyEverywhere,
    HandOverToSteppedDown,
    BadNeighbours,
    RefusedWrites,
    SteppedClock,
    DeniedDeletion,
    MissingQuorum,
    DeniedRemoval,
    DeniedStepDown,
    UnconfirmedStop,
    Unswitchable,
    LateTarget,
    LostReporter,
    QuorumReportedOnce,
    RestoredStatus,
    OrphanedPods,
    LastReplica,
    ShownLastStop,
    ContinuingWork,
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
            Self::CutOffHolder => cut_off_holder(seed).await,
            Self::DeletedWhileCutOff => deleted_while_cut_off(seed).await,
            Self::DeletedAfterRemoval => deleted_after_removal(seed).await,
            Self::CopiedCluster => copied_cluster(seed).await,
            Self::DeniedStart => denied_start(seed).await,
            Self::UnreadyAlone => unready_alone(seed).await,
            Self::UnreadyEverywhere => unready_everywhere(seed).await,
            Self::HandOverToSteppedDown => hand_over_to_stepped_down(seed).await,
            Self::BadNeighbours => bad_neighbours(seed).await,
            Self::SteppedClock => stepped_clock(seed).await,
            Self::RefusedWrites => refused_writes(seed).await,
            Self::DeniedDeletion => denied_deletion(seed).await,
            Self::MissingQuorum => missing_quorum(seed).await,
            Self::DeniedRemoval => denied_removal(seed).await,
            Self::DeniedStepDown => denied_step_down(seed).await,
            Self::UnconfirmedStop => unconfirmed_stop(seed).await,
            Self::Unswitchable => unswitchable(seed).await,
            Self::LateTarget => late_target(seed).await,
            Self::LostReporter => lost_reporter(seed).await,
            Self::QuorumReportedOnce => reported_once(seed).await,
            Self::RestoredStatus => restored_status(seed).await,
            Self::OrphanedPods => orphaned_pods(seed).await,
            Self::LastReplica => last_replica(seed).await,
            Self::ShownLastStop => shown_last_stop(seed).await,
            Self::ContinuingWork => continuing_work(seed).await,
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

/// Starts a world of one cluster in which a lock runs a Deployment whose pods take some seconds to end, within a longer grace
/// period.
async fn with_slow_work(
    seed: u64,
    stop_seconds: u32,
    grace: u32,
) -> Result<(Universe, ClusterWorld), String> {
    let universe = Universe::start(seed, 1, 2);
    let cluster = universe.clusters[0].clone();
    cluster.create_slow_deployment("web", stop_seconds, grace);
    let mut lock = manifests::lock("web", &["web"]);
    lock["spec"]["targets"][0]["stopSeconds"] = json!(grace + 5);
    cluster.create_lock(lock);
    runs_somewhere(&universe).await?;
    Ok((universe, cluster))
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

/// Reports whether the work runs in other clusters alone.
fn runs_elsewhere(universe: &Universe, former: &ClusterWorld) -> bool {
    let running = running_in(universe, "web");
    !running.is_empty() && !running.contains(&former.name)
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
                |universe| runs_elsewhere(universe, &active),
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
    if switches.len() != 2 {
        return Err(format!(
            "the Deployment was switched {} times: {switches:?}",
            switches.len()
        ));
    }
    let warned = cluster.events().iter().any(|event| event == "TokenImplausible");
    if warned || !has_condition(&cluster, "web", "Ready") {
        return Err(format!("the status after the move: {:?}", cluster.events()));
    }
    Ok(())
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
            |universe| runs_elsewhere(universe, &active),
        )
        .await?;
    universe
        .keep("the work stays there", SOON, |universe| {
            !running_in(universe, "web").contains(&active.name)
        })
        .await
}
