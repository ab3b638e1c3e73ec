//! Tests masters that were never used.

use std::time::{Duration, Instant};

use crate::world::{World, condition, lock, message, timed};

/// 20 s × 1.02 + 2 × 2 s, from the first contact with the masters: longer than a busy machine needs to show the states
/// that last as long as the wait.
const WAIT: Duration = Duration::from_millis(24_400);

/// Returns a quorum with the lease of [`WAIT`].
fn quorum(world: &World, name: &str, more: &str) -> String {
    world.quorum(name, more).replace("Seconds: 6", "Seconds: 20")
}

#[tokio::test(flavor = "multi_thread")]
async fn new_masters_wait_unless_the_quorum_declares_that_no_lease_can_be_alive() {
    let world = World::small(3).await;
    let first = world.operator("replica-1").await;
    let second = world.operator("replica-2").await;
    first.wait_ready();
    second.wait_ready();
    world.apply(&quorum(&world, "default", ""));
    let declared_at_once = Instant::now();
    world.apply(&quorum(
        &world,
        "at-once",
        "  firstStart: Immediate\n  keyPrefix: at-once\n",
    ));
    world.apply(&lock("waits", ""));
    let ready = async |name: &str| {
        let (status, _) = timed(&format!("quorum {name} is ready"), async || {
            let status = serde_json::to_value(world.quorums().get(name).await.unwrap().status).unwrap();
            if condition(&status, "Ready").0 == "True" {
                Ok(status)
            } else {
                Err(status)
            }
        })
        .await;
        status
    };
    let status = ready("at-once").await;
    let at_once = declared_at_once.elapsed();
    assert!(at_once < WAIT, "{at_once:?}");
    assert!(status["initializedTime"].is_string(), "{status:#}");
    let id = status["quorumId"].clone();
    assert_eq!(id.as_str().map(str::len), Some(32), "{status:#}");
    let status = world
        .quorum_status("default", "is not sealed", |status| {
            condition(status, "Ready").1 == "SealBlocked"
        })
        .await;
    assert!(message(&status, "Ready").contains("redlock init"), "{status:#}");
    assert!(status["initializedTime"].is_null(), "{status:#}");
    let held = world
        .lock_status("waits", "waits", |status| {
            condition(status, "QuorumAvailable").0 == "False"
        })
        .await;
    println!("{}", message(&held, "QuorumAvailable"));

    // The status records the first start: masters that lose everything wait from now on.
    let lost = Instant::now();
    for master in &world.masters {
        master.restart_empty().unwrap();
    }
    let status = world
        .quorum_status("at-once", "is not ready", |status| {
            condition(status, "Ready").0 == "False"
        })
        .await;
    println!("{}", message(&status, "Ready"));
    let again = ready("at-once").await;
    assert!(lost.elapsed() >= WAIT, "{:?}", lost.elapsed());
    world.redlock(&["init", "--quorum", "default"]).expect(0, &[]);
    let status = ready("default").await;
    assert_eq!(
        again["quorumId"], id,
        "sealed again under the id that is remembered"
    );
    assert!(status["initializedTime"].is_null(), "{status:#}");
    assert_ne!(status["quorumId"], id, "each prefix is a quorum of its own");
    world
        .lock_status("waits", "is held", |status| status["role"] == "Active")
        .await;
    let begun = [&first, &second]
        .iter()
        .filter(|operator| {
            operator
                .child
                .stderr()
                .iter()
                .any(|line| line.contains("initialising the masters"))
        })
        .count();
    assert_eq!(begun, 1, "one of the two replicas initialises them");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_keeps_to_the_quorum_id_in_the_status() {
    let world = World::small(3).await;
    let first = world.operator("replica-1").await;
    first.wait_ready();
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    let ready = |status: &serde_json::Value| condition(status, "Ready").0 == "True";
    world.quorum_status("default", "is ready", ready).await;
    drop(first);
    let other = "a".repeat(32);
    let patch = format!(r#"{{"status": {{"quorumId": "{other}"}}}}"#);
    world.kubectl(&[
        "patch",
        "redisquorum",
        "default",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
    let second = world.operator("replica-2").await;
    second.wait_ready();
    let status = world
        .quorum_status("default", "is of another quorum", |status| {
            condition(status, "Ready") == ("False", "OtherQuorum")
        })
        .await;
    assert_eq!(status["quorumId"], other, "{status:#}");
    assert!(message(&status, "Ready").contains(&other), "{status:#}");
}
