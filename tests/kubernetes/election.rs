//! Tests that a lock is declared with kubectl, and that kubectl shows its holder.

use nix::sys::signal::Signal;

use crate::world::{World, condition, lasting, lock, message};

const IMMEDIATE: &str = "  firstStart: Immediate\n";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_the_holder_of_a_lock() {
    let world = World::new(3).await;
    let operator = world.operator("replica-1").await;
    world.apply(&lasting(&world.quorum("default", IMMEDIATE)));
    world.apply(&lasting(&lock("report", "")));
    let status = world
        .lock_status("report", "is held", |status| {
            condition(status, "Held").0 == "True"
        })
        .await;
    assert_eq!(status["role"], "Active");
    assert_eq!(status["holderIdentity"], "replica-1");
    assert_eq!(status["holderCluster"], "test");
    assert_eq!(status["leaseTransitions"], 0);
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["timings"]["leaseDurationMilliseconds"], 12000);
    for (kind, wanted) in [
        ("Ready", "True"),
        ("QuorumAvailable", "True"),
        ("Enforced", "True"),
        ("Reconciling", "False"),
        ("Stalled", "False"),
    ] {
        assert_eq!(condition(&status, kind).0, wanted, "{kind} in {status:#}");
    }
    println!("{}", world.kubectl(&["get", "leaderlocks,redisquorums"]));
    println!("{}", message(&status, "Held"));
    let quorum = world
        .quorum_status("default", "is ready", |status| {
            condition(status, "Ready").0 == "True"
        })
        .await;
    assert!(quorum["initializedTime"].is_string(), "{quorum:#}");
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sibling_takes_over_and_the_status_follows() {
    let world = World::new(3).await;
    world.apply(&lasting(&world.quorum("default", IMMEDIATE)));
    world.apply(&lasting(&lock("report", "")));
    let mut first = world.operator("replica-1").await;
    let held = |by: &'static str| move |status: &serde_json::Value| status["holderIdentity"] == by;
    let before = world.lock_status("report", "is held", held("replica-1")).await;
    let second = world.operator("replica-2").await;
    second.wait_ready();
    first.child.kill();
    let after = world
        .lock_status("report", "is taken over", held("replica-2"))
        .await;
    assert!(after["fencingToken"].as_u64() > before["fencingToken"].as_u64());
    assert_eq!(after["leaseTransitions"], 1);
    println!("{}", message(&after, "Held"));
    let mut third = world.operator("replica-3").await;
    third.wait_ready();
    second.child.signal(Signal::SIGTERM);
    let last = world
        .lock_status("report", "is passed on", held("replica-3"))
        .await;
    assert!(last["fencingToken"].as_u64() > after["fencingToken"].as_u64());
    println!("{}", message(&last, "Held"));
    println!("{}", world.kubectl(&["get", "events.events.k8s.io"]));
    let _ = &mut third;
}
