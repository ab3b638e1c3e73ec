//! Tests that the majority of the masters is lost and returns.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::http::wait_alive;
use crate::replicas::settled;
use crate::world::{World, condition, lasting, lock, message, throughout, timed};

const LEASE: Duration = Duration::from_secs(12);

fn active(status: &Value) -> bool {
    status["role"] == "Active"
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_majority_is_reported_in_time_and_its_return_needs_no_restart() {
    let world = World::small(3).await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    world.apply(&lasting(&lock("report", "")));
    let first = world.operator("replica-1").await;
    let before = world.lock_status("report", "is held", active).await;
    let second = world.operator("replica-2").await;
    second.until_holder("report", "replica-1").await;

    for master in &world.masters[..2] {
        master.pause().unwrap();
    }
    let paused = Instant::now();
    // The last promised end is the latest time at which the replica may report that it holds the lock.
    let (mut promised, mut last_active) = (paused, paused);
    throughout(LEASE + Duration::from_secs(2), || {
        let asked = Instant::now();
        let seen = first.lock("report");
        if seen["role"] == "Active" {
            last_active = asked;
            promised = asked + Duration::from_millis(seen["validForMilliseconds"].as_u64().unwrap());
        } else {
            assert_eq!(seen["validForMilliseconds"], 0, "{seen:#}");
        }
        assert_ne!(second.lock("report")["role"], "Active");
    })
    .await;
    println!(
        "lost {:?} after the masters hung; {:?} before the end of the lease",
        last_active - paused,
        promised.saturating_duration_since(last_active)
    );
    assert!(last_active <= promised && last_active - paused < LEASE);
    for operator in [&first, &second] {
        operator.until_role("report", "Unknown").await;
        assert_eq!(operator.get("/readyz").0, 200, "readiness is about the caches");
        wait_alive(operator.port());
    }
    let (status, _) = timed("QuorumAvailable=False", async || {
        let status = serde_json::to_value(world.locks().get("report").await.unwrap().status).unwrap();
        if condition(&status, "QuorumAvailable").0 == "False" && status["role"] == "Unknown" {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    println!(
        "{:?} after the masters hung: {}",
        paused.elapsed(),
        message(&status, "QuorumAvailable")
    );
    assert_eq!(condition(&status, "Ready").0, "False");
    assert_eq!(condition(&status, "Held").0, "Unknown");
    let quorum = world
        .quorum_status("default", "is not ready", |status| {
            condition(status, "Ready").0 == "False"
        })
        .await;
    println!("{:?} {}", condition(&quorum, "Ready"), message(&quorum, "Ready"));
    world.event_message("default", "QuorumLost").await;

    for master in &world.masters[..2] {
        master.resume().unwrap();
    }
    let (status, _) = timed("held again", async || {
        let status = serde_json::to_value(world.locks().get("report").await.unwrap().status).unwrap();
        if active(&status) { Ok(status) } else { Err(status) }
    })
    .await;
    assert!(status["fencingToken"].as_u64() > before["fencingToken"].as_u64());
    let transitions = |status: &Value| status["leaseTransitions"].as_u64().unwrap();
    assert_eq!(transitions(&status), transitions(&before) + 1, "{status:#}");
    world
        .quorum_status("default", "is ready", |status| {
            condition(status, "Ready").0 == "True"
        })
        .await;
    world.event_message("default", "QuorumRestored").await;
    one_that_forgets(&world).await;
}

async fn one_that_forgets(world: &World) {
    let token = world.lock_status("report", "is held", active).await["fencingToken"].clone();
    world.masters[2].restart_empty().unwrap();
    let quorum = world
        .quorum_status("default", "is degraded", |status| {
            condition(status, "Degraded").1 == "Sealing"
        })
        .await;
    assert_eq!(condition(&quorum, "Ready").0, "True");
    println!("{}", message(&quorum, "Degraded"));
    world.event_message("default", "MasterQuarantined").await;
    timed("sealed again", async || {
        let status = serde_json::to_value(world.quorums().get("default").await.unwrap().status).unwrap();
        if condition(&status, "Degraded").0 == "False" {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let status = world.lock_status("report", "is held", active).await;
    assert_eq!(status["fencingToken"], token, "the lease continued");
}

/// Longer than any debounce of a status.
const OUTAGE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn one_master_that_flaps_writes_no_status_of_a_lock() {
    // With one of five paused, a majority remains while another one hangs.
    let world = World::small(5).await;
    // The other masters do not lose their votes if they answer late once.
    let patient = "  firstStart: Immediate\n  commandTimeoutMilliseconds: 2000\n";
    let long = |manifest: &str| manifest.replace("Seconds: 6", "Seconds: 30");
    world.apply(&long(&world.quorum("default", patient)));
    world.apply(&long(&lock("report", "")));
    let _operator = world.operator("replica-1").await;
    world.lock_status("report", "is held", active).await;
    settled(&world).await;
    let before = world.writes("leaderlocks");
    for _ in 0..2 {
        world.masters[0].pause().unwrap();
        tokio::time::sleep(OUTAGE).await;
        let quorum = world
            .quorum_status("default", "is degraded", |status| {
                condition(status, "Degraded").0 == "True"
            })
            .await;
        assert_eq!(condition(&quorum, "Ready").0, "True");
        world.masters[0].resume().unwrap();
        tokio::time::sleep(OUTAGE).await;
    }
    assert_eq!(
        world.writes("leaderlocks") - before,
        0,
        "a majority voted all the time"
    );
}
