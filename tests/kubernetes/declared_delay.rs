//! Tests the delay that the last holder declared, and its use by another cluster.

use std::time::Duration;

use redlock::lease::UNDECLARED_DELAY;
use serde_json::Value;

use crate::targets::{GATE, guarded, replica, world_with};
use crate::versions::register;
use crate::world::{World, condition, lasting, throughout, timed};

/// Simulates a last holder of another cluster that ended uncleanly.
fn ended_uncleanly(world: &World, lock: &str, milliseconds: u64) {
    let token = register(world, "heldFloor") + 1;
    let lock = format!("{}/{lock}", world.namespace.name());
    for master in &world.masters {
        let client = redis::Client::open(master.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut command = redis::cmd("HSET");
        command.arg("redlock:meta").arg(format!("held:{lock}")).arg(token);
        command
            .arg(format!("delay:{lock}"))
            .arg(format!("{token}|{milliseconds}"));
        let () = command.query(&mut connection).unwrap();
    }
}

fn declared(world: &World, lock: &str) -> Option<String> {
    let client = redis::Client::open(world.masters[0].url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let field = format!("delay:{}/{lock}", world.namespace.name());
    let mut command = redis::cmd("HGET");
    command
        .arg("redlock:meta")
        .arg(field)
        .query(&mut connection)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_waits_the_declared_delay_and_at_least_its_own() {
    let world = world_with(lasting).await;
    let _operator = replica(&world, "replica-1").await;
    world
        .quorum_status("default", "is ready", |status| {
            condition(status, "Ready").0 == "True"
        })
        .await;
    let table = [("short", 100), ("long", 600_000), ("explicit", 100)];
    for (name, milliseconds) in table {
        ended_uncleanly(&world, name, milliseconds);
        world.apply(&GATE.replace("name: gate", &format!("name: {name}")));
        let lock = lasting(&guarded(name, name));
        world.apply(&match name {
            "explicit" => lock.replace("spec: {", "spec: {takeoverDelaySeconds: 600, "),
            _ => lock,
        });
    }
    let held = async |name| {
        let held = |status: &Value| status["holderIdentity"] == "replica-1";
        let status = world.lock_status(name, "is held", held).await;
        status["fencingToken"].as_u64().unwrap()
    };
    // Written before the first target starts: the stop time of its target and 5 s, for the next cluster.
    let mine = format!("{}|6000", held("short").await);
    let (_, took) = timed(
        "the delay of the next holder is declared",
        async || match declared(&world, "short") {
            Some(found) if found == mine => Ok(()),
            other => Err(other),
        },
    )
    .await;
    assert!(took < UNDECLARED_DELAY, "{took:?}");
    for (name, _) in &table[1..] {
        held(name).await;
    }
    throughout(Duration::from_secs(3), || {
        for (name, milliseconds) in &table[1..] {
            let found = declared(&world, name).unwrap();
            assert!(found.ends_with(&format!("|{milliseconds}")), "{name}: {found}");
        }
    })
    .await;
}
