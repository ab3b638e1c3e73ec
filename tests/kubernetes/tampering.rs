//! Tests statuses that a user edits by hand.

use serde_json::Value;

use crate::fixture::BOUND;
use crate::world::{World, lasting, lock, timed};
use redlock_testkit::{RedisServer, eventually, patient};

const ABSURD: u64 = 9_000_000_000_000_000_000;

fn patch(world: &World, name: &str, status: &str) {
    let patch = format!("{{\"status\": {status}}}");
    world.kubectl(&[
        "patch",
        "leaderlock",
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ]);
}

async fn counter(server: &RedisServer) -> u64 {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = patient(&client).await.unwrap();
    let mut command = redis::cmd("HGET");
    command.arg("redlock:meta").arg("counter");
    command.query_async(&mut connection).await.unwrap()
}

async fn repaired(world: &World, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let (status, _) = timed(&format!("the status of {name} is right again"), async || {
        let status = serde_json::to_value(world.locks().get(name).await.unwrap().status).unwrap();
        if wanted(&status) { Ok(status) } else { Err(status) }
    })
    .await;
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn implausible_token_is_overwritten_and_reported_and_reaches_no_master() {
    let world = World::small(3).await;
    // A lease that is lost in a pause of a busy machine would be followed by another token.
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    world.apply(&lasting(&lock("held", "")));
    world.apply(&lasting(&lock("idle", ", state: SteppedDown, reason: test")));
    let mut operator = world.operator("replica-1").await;
    let token = world
        .lock_status("held", "is held", |status| status["role"] == "Active")
        .await["fencingToken"]
        .clone();
    world
        .lock_status("idle", "is known", |status| status["role"] == "Standby")
        .await;

    let absurd = format!("{{\"fencingToken\": {ABSURD}}}");
    patch(&world, "held", &absurd);
    repaired(&world, "held", |status| status["fencingToken"] == token).await;
    world.event_message("held", "TokenImplausible").await;
    operator.assert_holds("held", &token);

    // The lock is not held.
    patch(&world, "idle", &absurd);
    repaired(&world, "idle", |status| status["fencingToken"] != ABSURD).await;
    world.event_message("idle", "TokenImplausible").await;

    // Changes other fields, and fields that must be empty. The writers do not fight over them.
    let before = world.writes("leaderlocks");
    patch(
        &world,
        "idle",
        "{\"holderIdentity\": \"nobody\", \"holderCluster\": \"nowhere\", \"role\": \"Active\"}",
    );
    patch(
        &world,
        "held",
        "{\"holderIdentity\": \"nobody\", \"leaseTransitions\": 7}",
    );
    repaired(&world, "idle", |status| {
        status["role"] == "Standby" && status["holderIdentity"].is_null()
    })
    .await;
    repaired(&world, "held", |status| status["holderIdentity"] == "replica-1").await;
    let conditions = "{\"conditions\": [{\"type\": \"Mine\", \"status\": \"True\", \"reason\": \"X\", \"message\": \"\", \
                      \"lastTransitionTime\": \"2026-01-01T00:00:00Z\"}]}";
    patch(&world, "held", conditions);
    // The operator's conditions are restored, and the foreign one stays: the list is a map by type.
    repaired(&world, "held", |status| {
        status["conditions"].as_array().is_some_and(|all| all.len() == 7)
    })
    .await;
    let writes = world.writes("leaderlocks") - before;
    println!("{writes} writes of the operator");
    assert!(writes <= 16, "{writes} writes");

    // The status is edited while no operator runs.
    operator.child.kill();
    patch(&world, "held", &absurd);
    patch(&world, "idle", &absurd);
    let next = world.operator("replica-2").await;
    let status = repaired(&world, "held", |status| {
        status["holderIdentity"] == "replica-2" && status["fencingToken"] != ABSURD
    })
    .await;
    assert!(status["fencingToken"].as_u64() > token.as_u64());
    repaired(&world, "idle", |status| status["fencingToken"] != ABSURD).await;
    world.kubectl(&[
        "patch",
        "leaderlock",
        "idle",
        "--type=merge",
        "--patch",
        "{\"spec\": {\"state\": \"Enabled\"}}",
    ]);
    let status = world
        .lock_status("idle", "is held", |status| status["role"] == "Active")
        .await;
    for master in &world.masters {
        // A majority has had the counter since the grant, and each master has it after the next renewal.
        let counter = eventually(BOUND, "a counter not below the token", async || {
            let counter = counter(master).await;
            if status["fencingToken"].as_u64() <= Some(counter) {
                Ok(counter)
            } else {
                Err(counter)
            }
        });
        let counter = counter.await;
        assert!(counter < ABSURD / 1_000_000, "{counter}");
    }
    drop(next);
}
