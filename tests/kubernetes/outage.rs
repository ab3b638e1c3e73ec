//! Tests an API server that is down or slow: leases do not depend on it.

use std::time::{Duration, Instant};

use crate::fixture::Operator;
use crate::world::{World, condition, lasting, lock, throughout, timed};
use redlock_testkit::{Mode, Proxy};

/// Longer than a lease.
const OUTAGE: Duration = Duration::from_secs(14);

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_is_away_no_lease_is_lost_and_then_the_status_catches_up() {
    let world = World::small(3).await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    world.apply(&lasting(&lock("report", "")));
    let mut first = world.operator("replica-1").await;
    let held = |by: &'static str| move |status: &serde_json::Value| status["holderIdentity"] == by;
    let before = world.lock_status("report", "is held", held("replica-1")).await;
    let token = before["fencingToken"].clone();
    let second = world.operator("replica-2").await;
    second.wait_ready();

    world.plane.pause_api_server();
    let least = least_validity(&first, &token).await;
    world.plane.resume_api_server();
    println!("API server stopped for {OUTAGE:?}: at least {least} ms of the lease were left");
    assert!(least > 500, "{least} ms");
    let status = world
        .lock_status("report", "is as it was", held("replica-1"))
        .await;
    assert_eq!(status["leaseTransitions"], 0);

    world.plane.stop_api_server();
    let least = least_validity(&first, &token).await;
    println!("API server gone for {OUTAGE:?}: at least {least} ms of the lease were left");
    assert!(least > 500, "{least} ms");
    assert_eq!(second.get("/readyz").0, 200);
    // The lock is taken over during the outage; the status names the holder when the API server is back.
    let killed = Instant::now();
    first.child.kill();
    second.until_role("report", "Active").await;
    println!("taken over {:?} after the holder was killed", killed.elapsed());
    world.plane.start_api_server();
    timed("the status catches up", async || {
        let lock = world
            .locks()
            .get("report")
            .await
            .map_err(|error| error.to_string())?;
        let status = lock.status.unwrap_or_default();
        if status.holder_identity.as_deref() == Some("replica-2") && status.lease_transitions == Some(1) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
    world.event_message("report", "TakenOver").await;

    a_slow_one(&world, second).await;
}

async fn least_validity(operator: &Operator, token: &serde_json::Value) -> u64 {
    let mut least = u64::MAX;
    throughout(OUTAGE, || {
        least = least.min(operator.assert_holds("report", token))
    })
    .await;
    least
}

/// Delays each request by a second, and the start of a connection by more.
async fn a_slow_one(world: &World, before: Operator) {
    let proxy = Proxy::to(world.plane.address()).await;
    proxy.set(Mode::Delay(Duration::from_millis(500)));
    let server = format!("https://127.0.0.1:{}", proxy.port());
    let kubeconfig = world.kubeconfig(Some(server)).await;
    let slow = Operator::start_with(&kubeconfig, world.namespace.name(), "replica-slow", |_| {});
    slow.wait_ready();
    drop(before);
    let (status, _) = timed(
        "the slow replica holds it, and the status reports it",
        async || {
            let status = world
                .locks()
                .get("report")
                .await
                .unwrap()
                .status
                .unwrap_or_default();
            if status.holder_identity.as_deref() == Some("replica-slow") {
                Ok(status)
            } else {
                Err(status)
            }
        },
    )
    .await;
    let token = serde_json::to_value(status.fencing_token).unwrap();
    let least = least_validity(&slow, &token).await;
    println!("a second a request: at least {least} ms of the lease were left");
    assert!(least > 500, "{least} ms");
    world.apply(&lock("new", ""));
    let status = world
        .lock_status("new", "is held", |status| condition(status, "Held").0 == "True")
        .await;
    assert_eq!(status["holderIdentity"], "replica-slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_of_etcd_replaces_the_state_of_the_operator() {
    let world = World::small(3).await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    world.apply(&lock("report", ""));
    let backup = world.plane.back_up();
    let operator = world.operator("replica-1").await;
    operator.until_role("report", "Active").await;
    world.kubectl(&[
        "patch",
        "leaderlock",
        "report",
        "--type=merge",
        "--patch",
        r#"{"spec": {"state": "SteppedDown", "reason": "a test"}}"#,
    ]);
    operator.until_role("report", "Standby").await;

    world.plane.restore(&backup);
    operator.until_role("report", "Active").await;
    let status = world
        .lock_status("report", "is held again", |status| {
            condition(status, "Held").0 == "True"
        })
        .await;
    assert_eq!(status["holderIdentity"], "replica-1");
}
