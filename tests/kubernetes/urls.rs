//! Tests a change of the url of a master while leases are held.

use crate::world::{World, condition, lasting, lock, message};
use redlock_testkit::{RedisServer, ServerOptions, patient};

fn server() -> RedisServer {
    RedisServer::start(&ServerOptions::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_server_of_a_master_loses_its_vote_before_the_new_one_has_it() {
    let mut world = World::small(3).await;
    let operator = world.operator("replica-1").await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    world.apply(&lasting(&lock("report", "")));
    let before = world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await;
    let old = std::mem::replace(&mut world.masters[2], server());
    let new = world.masters[2].url();
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    for (degraded, what) in [
        ("True", "waits for the new server"),
        ("False", "uses the new server"),
    ] {
        let uses = |status: &serde_json::Value| {
            status["masters"][2]["url"] == new && condition(status, "Degraded").0 == degraded
        };
        world.quorum_status("default", what, uses).await;
    }
    let client = redis::Client::open(old.url()).unwrap();
    let mut connection = patient(&client).await.unwrap();
    let mut question = redis::cmd("HGET");
    question.arg("redlock:meta").arg("fingerprint");
    let fingerprint: String = question.query_async(&mut connection).await.unwrap();
    assert!(fingerprint.contains("retired"), "{fingerprint}");

    // A master that cannot be reached may still vote for other clients.
    let gone = std::mem::replace(&mut world.masters[1], server());
    let (was, new) = (gone.url(), world.masters[1].url());
    gone.kill();
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    let status = world
        .quorum_status("default", "refuses", |status| {
            condition(status, "Ready").1 == "OldMasterStillReachable"
        })
        .await;
    println!("{}", message(&status, "Ready"));
    let stated = format!("redlock.dev/old-master-stopped=m1={was}");
    assert!(message(&status, "Ready").contains(&stated), "{status:#}");
    world.kubectl(&["annotate", "redisquorum", "default", &stated]);
    let uses = |status: &serde_json::Value| {
        status["masters"][1]["url"] == new && condition(status, "Ready").0 == "True"
    };
    world
        .quorum_status("default", "uses the second new server", uses)
        .await;

    // The lease is the same throughout.
    let after = world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await;
    assert_eq!(after["fencingToken"], before["fencingToken"]);
    assert_eq!(after["leaseTransitions"], before["leaseTransitions"]);
    drop(operator);
}
