//! Tests the statuses when their writer sees no masters, and when it ends.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::{BOUND, Operator};
use crate::replicas::settled;
use crate::targets::{self, GATE, Gates, guarded, ready_pod, replica};
use crate::world::{World, condition, lasting, lock, message, throughout, timed};

/// Masters whose longest lease is 60 s: a replica that only infers that no other replica reports waits for 120 s.
pub async fn world() -> World {
    let world = World::new(3).await;
    targets::install(&world).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 60"));
    world
}

pub fn active_by(identity: &'static str) -> impl Fn(&Value) -> bool {
    move |status| {
        status["role"] == "Active"
            && status["holderIdentity"] == identity
            && condition(status, "Enforced").0 == "True"
    }
}

/// Starts a replica that holds the lock, and waits until its target runs.
async fn holder(world: &World, gates: &Gates) -> Operator {
    let operator = replica(world, "replica-1").await;
    ready_pod(world, &operator);
    world.apply(GATE);
    world.apply(&lasting(&guarded("report", "gate")));
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;
    world
        .lock_status("report", "is active", active_by("replica-1"))
        .await;
    operator
}

fn assert_unknown(status: &Value) {
    assert_eq!(status["role"], "Unknown", "{status:#}");
    assert_eq!(status["holder"], Value::Null, "{status:#}");
    assert_eq!(condition(status, "Ready"), ("False", "NoMajority"));
    assert_eq!(condition(status, "Held"), ("Unknown", "NoMajority"));
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_that_loses_all_masters_writes_that_its_lease_ended_and_its_targets_are_stopped() {
    let world = world().await;
    let gates = Gates::of(&world);
    let first = holder(&world, &gates).await;
    let second = replica(&world, "replica-2").await;
    ready_pod(&world, &second);
    second.until_holder("report", "replica-1").await;

    for master in &world.masters {
        master.pause().unwrap();
    }
    gates.until("gate", 0).await;
    let (status, _) = timed(
        "the status reports that the target is being stopped",
        async || {
            let status = serde_json::to_value(world.locks().get("report").await.unwrap().status).unwrap();
            if status["role"] == "Stopping" {
                Ok(status)
            } else {
                Err(status)
            }
        },
    )
    .await;
    assert_ne!(condition(&status, "Enforced").0, "True", "{status:#}");
    gates.count("gate", 0).await;
    let (status, _) = timed("the status reports that the target is stopped", async || {
        let status = serde_json::to_value(world.locks().get("report").await.unwrap().status).unwrap();
        if condition(&status, "Enforced").0 == "True" && status["role"] == "Unknown" {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    assert_unknown(&status);
    assert_eq!(status["targets"][0]["observed"], "Standby", "{status:#}");
    world
        .quorum_status("default", "has no majority", |status| {
            condition(status, "Ready").0 == "False"
        })
        .await;

    // Both replicas see the same, and one of them has written it.
    let before = world.writes("leaderlocks");
    throughout(Duration::from_secs(3), || {}).await;
    assert!(world.writes("leaderlocks") - before <= 2);
    for master in &world.masters {
        master.resume().unwrap();
    }
    let held = |status: &Value| condition(status, "Held").0 == "True";
    let status = world.lock_status("report", "is held again", held).await;
    assert_eq!(status["leaseTransitions"], 1, "{status:#}");
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_masters_ends_the_claim_of_one_that_is_gone() {
    let world = world().await;
    let gates = Gates::of(&world);
    let mut first = holder(&world, &gates).await;
    // This is like a rollout with a password that the masters refuse.
    for master in &world.masters {
        master.pause().unwrap();
    }
    first.child.kill();
    world.kubectl(&["delete", "pod", "replica-1", "--force"]);
    let second = replica(&world, "replica-2").await;
    ready_pod(&world, &second);
    let (status, _) = timed("the claim has ended", async || {
        let status = serde_json::to_value(world.locks().get("report").await.unwrap().status).unwrap();
        if status["role"] == "Active" || condition(&status, "Held").0 == "True" {
            Err(status)
        } else {
            Ok(status)
        }
    })
    .await;
    assert_eq!(
        condition(&status, "Held"),
        ("Unknown", "NoMajority"),
        "{status:#}"
    );
    assert_eq!(status["holder"], Value::Null, "{status:#}");
    world
        .quorum_status("default", "has no majority", |status| {
            condition(status, "Ready").0 == "False"
        })
        .await;
    for master in &world.masters {
        master.resume().unwrap();
    }
    world
        .lock_status("report", "is active again", active_by("replica-2"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_replica_that_ends_leaves_no_claim() {
    let world = world().await;
    let gates = Gates::of(&world);
    let mut first = holder(&world, &gates).await;
    world.apply(&lasting(&lock("bare", "")));
    let mut second = replica(&world, "replica-2").await;
    ready_pod(&world, &second);
    second.wait_ready();
    for name in ["bare", "report"] {
        second.until_holder(name, "replica-1").await;
    }
    first.child.signal(Signal::SIGTERM);
    assert!(first.child.wait(BOUND).0.success());
    world.kubectl(&["delete", "pod", "replica-1", "--force"]);
    world
        .lock_status("report", "is left to the sibling", active_by("replica-2"))
        .await;
    assert_eq!(gates.replicas("gate").await, 1);

    // The last status of a quorum is written once, and fails where it meets another write.
    settled(&world).await;
    second.child.signal(Signal::SIGTERM);
    gates.until("gate", 0).await;
    gates.count("gate", 0).await;
    assert!(second.child.wait(BOUND).0.success());
    for name in ["report", "bare"] {
        let status = serde_json::to_value(world.locks().get(name).await.unwrap().status).unwrap();
        assert_eq!(status["role"], "Standby", "{status:#}");
        assert_eq!(status["holder"], Value::Null, "{status:#}");
        assert_eq!(condition(&status, "Ready"), ("False", "OperatorStopped"));
        assert_eq!(condition(&status, "Held"), ("Unknown", "OperatorStopped"));
        assert_eq!(condition(&status, "Enforced"), ("False", "OperatorStopped"));
        println!(
            "{name}: {}; {}",
            message(&status, "Held"),
            message(&status, "Enforced")
        );
    }
    let status = serde_json::to_value(world.quorums().get("default").await.unwrap().status).unwrap();
    assert_eq!(
        condition(&status, "Ready"),
        ("False", "OperatorStopped"),
        "{status:#}"
    );
    assert_eq!(status["reporters"], Value::Null, "{status:#}");

    world.kubectl(&["delete", "pod", "replica-2", "--force"]);
    let _third = replica(&world, "replica-3").await;
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;
    let status = world
        .lock_status("report", "is active again", active_by("replica-3"))
        .await;
    assert_eq!(status["leaseTransitions"], 2, "{status:#}");
}
