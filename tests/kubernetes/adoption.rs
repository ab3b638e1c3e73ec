//! Tests that the sibling of a killed replica adopts running targets.

use std::time::Instant;

use crate::fixture::BOUND;
use crate::targets::{GATE, Gates, guarded, has_every_lock, ready_pod, replica, world_with};
use crate::world::{World, lasting};
use redlock_testkit::eventually;

const LOCKS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_one_of_two_replicas_bounces_nothing() {
    let world = world_with(lasting).await;
    let gates = Gates::of(&world);
    let mut first = replica(&world, "replica-1").await;
    let names: Vec<String> = (0..LOCKS).map(|index| format!("gate-{index}")).collect();
    for name in &names {
        world.apply(&GATE.replace("name: gate", &format!("name: {name}")));
        world.apply(&lasting(&guarded(name, name)));
    }
    let mut before = Vec::new();
    for name in &names {
        gates.until(name, 1).await;
        // A holder that dies before this status is written does not count as a transition.
        world
            .lock_status(name, "is held", |status| status["holderIdentity"] == "replica-1")
            .await;
        before.push(gates.generation(name).await);
    }
    let second = replica(&world, "replica-2").await;
    ready_pod(&world, &first);
    ready_pod(&world, &second);
    second.wait_ready();
    eventually(BOUND, "replica-2 sees every lock", async || {
        let locks = second.locks();
        let seen = locks.iter().filter(|lock| lock["holderIdentity"] == "replica-1");
        if seen.count() == LOCKS { Ok(()) } else { Err(locks) }
    })
    .await;
    first.child.kill();
    let killed = Instant::now();
    has_every_lock(&second, LOCKS).await;
    println!(
        "{LOCKS} locks taken over {:?} after a kill -9, leases of 12 s",
        killed.elapsed()
    );
    for name in &names {
        world
            .lock_status(name, "is adopted", |status| {
                status["role"] == "Active" && status["holderIdentity"] == "replica-2"
            })
            .await;
    }
    // Without a sibling, replica-2 is restarted within its leases, and adopts its own targets.
    drop(second);
    let _third = replica(&world, "replica-2").await;
    for (name, before) in names.iter().zip(before) {
        world
            .lock_status(name, "is adopted again", |status| {
                status["role"] == "Active" && status["leaseTransitions"].as_u64() >= Some(2)
            })
            .await;
        assert_eq!(gates.generation(name).await, before, "{name} was written to");
    }
    stop_is_reported_once(&world, &names).await;
}

/// Asserts that a stop that both replicas see is reported only once.
async fn stop_is_reported_once(world: &World, names: &[String]) {
    let sibling = replica(world, "replica-1").await;
    sibling.wait_ready();
    eventually(BOUND, "replica-1 sees every lock", async || {
        let locks = sibling.locks();
        let seen = locks.iter().filter(|lock| lock["holderIdentity"] == "replica-2");
        if seen.count() == names.len() {
            Ok(())
        } else {
            Err(locks)
        }
    })
    .await;
    for name in names {
        let down = r#"{"spec": {"state": "SteppedDown", "reason": "test"}}"#;
        world.kubectl(&["patch", "leaderlock", name, "--type=merge", "--patch", down]);
    }
    for name in names {
        world.event_message(name, "TargetStopped").await;
    }
    for name in names {
        assert_eq!(world.events(name, "TargetStopped").await.len(), 1, "{name}");
    }
}
