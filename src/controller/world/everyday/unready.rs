//! Work that does not become ready, with `failoverAfterUnreadySeconds`.

use std::time::Duration;

use serde_json::json;
use tokio::time;

use super::{LATE, SOON, manifests, number, running_in, runs_somewhere, switches};
use crate::controller::world::{
    cluster::{ClusterWorld, now},
    universe::Universe,
};

const AFTER: u64 = 10;
/// The time during which the world is watched, and the number of starts that are permitted in it: the abstentions of each of
/// the two clusters last 60 s, 120 s, 240 s, 480 s and 960 s.
const LONG: Duration = Duration::from_secs(1_800);
const STARTS: usize = 10;
/// The time that a move of the work may take: the stop, and the start in the other cluster.
const MOVE: Duration = Duration::from_secs(20);

pub(super) fn lock_that_fails_over() -> serde_json::Value {
    let mut lock = manifests::lock("web", &["web"]);
    lock["spec"]["failoverAfterUnreadySeconds"] = AFTER.into();
    lock
}

/// Starts two clusters. In the first one, and in the other one if it takes part, the work never becomes ready.
async fn unready_world(seed: u64, other_takes_part: bool) -> Result<(Universe, ClusterWorld), String> {
    let universe = Universe::start(seed, 2, 2);
    for (place, cluster) in universe.clusters.iter().enumerate() {
        cluster.create_deployment("web", 0);
        cluster.set_ready("web", false);
        if place == 0 || other_takes_part {
            cluster.create_lock(lock_that_fails_over());
        }
    }
    let active = runs_somewhere(&universe).await?;
    Ok((universe, active))
}

/// The operator of the other cluster is alive, and the lock does not exist there.
pub(super) async fn unready_alone(seed: u64) -> Result<(), String> {
    let (universe, active) = unready_world(seed, false).await?;
    universe
        .keep("the work stays", LATE, |_| active.running_pods("web") == 1)
        .await
}

/// A dependency of both clusters is away: the work moves at most as often as the abstentions permit, and runs meanwhile.
pub(super) async fn unready_everywhere(seed: u64) -> Result<(), String> {
    let (universe, _) = unready_world(seed, true).await?;
    for cluster in &universe.clusters {
        cluster.api.take_history();
    }
    let mut idle_since = None;
    let watched = universe
        .keep("the work runs, except during a move", LONG, |universe| {
            let now = crate::clock::now();
            match running_in(universe, "web").len() {
                0 => now.since(*idle_since.get_or_insert(now)) < MOVE,
                1 => {
                    idle_since = None;
                    true
                }
                _ => false,
            }
        })
        .await;
    watched?;
    let starts = |cluster: &ClusterWorld| {
        let switches = switches(cluster);
        switches.iter().filter(|text| text.contains("Number(1)")).count()
    };
    let starts: Vec<usize> = universe.clusters.iter().map(starts).collect();
    let all: usize = starts.iter().sum();
    if number("REDLOCK_SEED").is_some() {
        println!("starts: {starts:?}");
    }
    if (1..=STARTS).contains(&all) {
        return Ok(());
    }
    Err(format!("{starts:?} starts within {LONG:?}"))
}

/// The operator hands over on request, and the other cluster is stepped down. The lock fails over, or not.
pub(super) async fn hand_over_to_stepped_down(seed: u64) -> Result<(), String> {
    let fails_over = seed.is_multiple_of(2);
    let universe = Universe::start(seed, 2, 2);
    for (place, cluster) in universe.clusters.iter().enumerate() {
        cluster.create_deployment("web", 0);
        let mut lock = if fails_over {
            lock_that_fails_over()
        } else {
            manifests::lock("web", &["web"])
        };
        if place == 1 {
            lock["spec"]["state"] = "SteppedDown".into();
            lock["spec"]["reason"] = "a test".into();
        }
        cluster.create_lock(lock);
    }
    let active = runs_somewhere(&universe).await?;
    let token = || active.lock("web")?["status"]["fencingToken"].as_u64();
    universe
        .wait("the token is known, and the other cluster alive", SOON, |_| {
            let clusters = active.reporters("default");
            token().is_some() && clusters.contains(&universe.clusters[1].id())
        })
        .await?;
    // A cluster shows within seconds of its start that it declines a lock.
    time::sleep(Duration::from_secs(5)).await;
    let until = now().as_second() + 60;
    let request = json!({
        "id": "1", "to": universe.clusters[1].id(), "token": token(), "notAfter": until,
    });
    active.annotate_lock("web", "redlock.dev/hand-over", Some(&request.to_string()));
    universe
        .wait("the request is refused", SOON, |_| {
            let lock = active.lock("web").unwrap();
            let answer = &lock["metadata"]["annotations"]["redlock.dev/hand-over-answer"];
            answer.as_str().is_some_and(|answer| answer.contains("Refused"))
        })
        .await?;
    universe
        .keep("the work runs on", SOON, |_| active.running_pods("web") == 1)
        .await
}
