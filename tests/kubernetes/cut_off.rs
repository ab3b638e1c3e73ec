//! Tests a replica that reaches the API server and not the masters.

use std::process::Command;
use std::time::Duration;

use crate::world::{World, condition, lasting, lock, throughout};
use redlock_testkit::patient;

/// Longer than the replica takes to infer that no reporter exists, which is twice the longest lease.
const INFERRED: Duration = Duration::from_secs(27);

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_cut_off_from_the_masters_does_not_fight_over_statuses() {
    let world = World::small(3).await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    for name in ["a", "b"] {
        world.apply(&lasting(&lock(name, "")));
    }
    // The replica that is cut off has written all statuses so far: it reaches the API server.
    let cut_off = world.operator("replica-1").await;
    for name in ["a", "b"] {
        world
            .lock_status(name, "is held", |status| status["role"] == "Active")
            .await;
    }
    let other = world.operator("replica-2").await;
    for name in ["a", "b"] {
        other.until_holder(name, "replica-1").await;
    }
    // The process can open no further file, and all connections to the masters are closed.
    let pid = cut_off.child.pid();
    let limit = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), "--nofile=3:3"])
        .status();
    assert!(limit.expect("prlimit, of util-linux, runs").success());
    for server in &world.masters {
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = patient(&client).await.unwrap();
        for kind in ["pubsub", "normal"] {
            let mut command = redis::cmd("CLIENT");
            command.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
            let _: redis::Value = command.query_async(&mut connection).await.unwrap();
        }
    }
    for name in ["a", "b"] {
        world
            .lock_status(name, "is taken over", |status| {
                status["holderIdentity"] == "replica-2"
                    && condition(status, "Ready").0 == "True"
                    && condition(status, "Enforced").0 == "True"
            })
            .await;
    }
    let before = (world.writes("leaderlocks"), world.writes("redisquorums"));
    throughout(INFERRED, || {}).await;
    let (locks, quorums) = (world.writes("leaderlocks"), world.writes("redisquorums"));
    let (locks, quorums) = (locks - before.0, quorums - before.1);
    println!("in {INFERRED:?}: {locks} writes of locks, {quorums} of the quorum");
    assert!(locks <= 8 && quorums <= 8, "{locks} and {quorums} writes");
    for name in ["a", "b"] {
        world
            .lock_status(name, "is reported by its holder", |status| {
                status["holderIdentity"] == "replica-2" && condition(status, "Ready").0 == "True"
            })
            .await;
    }
    world
        .quorum_status("default", "is reported as ready", |status| {
            condition(status, "Ready").0 == "True"
        })
        .await;
    drop((cut_off, other));
}
