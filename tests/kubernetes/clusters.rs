//! Tests operators of two clusters, which are two API servers, on the same masters.

use serde_json::Value;

use crate::fixture::Operator;
use crate::world::{World, condition, lasting, lock, message, quorum_of, timed};
use redlock_testkit::RedisServer;

/// One lock name in both clusters, whose namespaces have different names.
const SHARED: &str = ", lockName: shared/report";

fn manifests(first: &World, world: &World) -> [String; 2] {
    let urls: Vec<String> = first.masters.iter().map(RedisServer::url).collect();
    let more = format!(
        "  firstStart: Immediate\n  sharedLockNames:\n  - {{prefix: shared/, namespaces: [{}]}}\n",
        world.namespace.name()
    );
    [quorum_of("default", &urls, &more), lock("report", SHARED)].map(|manifest| lasting(&manifest))
}

async fn held(world: &World, by: &str) -> Value {
    let (status, _) = timed(&format!("held by {by}"), async || {
        let status = serde_json::to_value(world.locks().get("report").await.unwrap().status).unwrap();
        if status["holderIdentity"] == by {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    status
}

fn name_is_taken(status: &Value) -> bool {
    condition(status, "Ready").1 == "ClusterNameNotUnique"
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equal_name_is_refused_and_with_another_one_the_lock_passes_between_clusters() {
    let (first, second) = tokio::join!(World::small(3), World::small(0));
    for manifest in manifests(&first, &first) {
        first.apply(&manifest);
    }
    let mut one = first.operator("one").await;
    let before = held(&first, "one").await;
    for manifest in manifests(&first, &second) {
        second.apply(&manifest);
    }
    let mut other = second.operator("other").await;

    // The second cluster is refused because of its name, on both of its objects.
    let status = second.lock_status("report", "is refused", name_is_taken).await;
    println!("{}", message(&status, "Ready"));
    assert_eq!(status["role"], "Standby");
    second.quorum_status("default", "is refused", name_is_taken).await;
    other.wait_ready();
    one.assert_holds("report", &before["fencingToken"]);
    // Neither cluster mistakes the other for itself.
    let status = held(&first, "one").await;
    assert_eq!(
        (&status["role"], &status["holderCluster"]),
        (&"Active".into(), &"test".into())
    );
    assert_eq!(other.lock("report"), Value::Null, "it does not contend");
    // The refusal stays after both objects change.
    second.kubectl(&["annotate", "redisquorum", "default", "test=1"]);
    second.kubectl(&["annotate", "leaderlock", "report", "redlock.dev/test=1"]);

    // A replaced replica leaves the name unused for a short time; the other cluster does not take it.
    one.child.kill();
    let two = first.operator("two").await;
    let status = held(&first, "two").await;
    assert!(status["fencingToken"].as_u64() > before["fencingToken"].as_u64());
    second
        .lock_status("report", "is refused still", name_is_taken)
        .await;
    second
        .quorum_status("default", "is refused still", name_is_taken)
        .await;

    // With its own name, the cluster stands by, and takes over.
    other.child.kill();
    let third = second.operator_with("third", |command| {
        command.env("REDLOCK_CLUSTER", "another");
    });
    let third = third.await;
    // The reason of the refusal may remain in the status for some time.
    let stands_by = |status: &Value| status["role"] == "Standby" && condition(status, "Ready").0 == "True";
    let standby = second.lock_status("report", "stands by", |status| {
        status["holderIdentity"] == "two" && stands_by(status)
    });
    let standby = standby.await;
    assert_eq!(standby["holderCluster"], "test");
    assert_eq!(standby["fencingToken"], status["fencingToken"]);
    pass_it_on(&first, &second, two, third).await;
}

async fn pass_it_on(first: &World, second: &World, two: Operator, third: Operator) {
    let mut token = held(first, "two").await["fencingToken"].as_u64().unwrap();
    drop(two);
    let (status, _) = timed("the other cluster holds it", async || {
        let status = serde_json::to_value(second.locks().get("report").await.unwrap().status).unwrap();
        if status["role"] == "Active" {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    println!("{}", message(&status, "Held"));
    assert!(status["fencingToken"].as_u64().unwrap() > token);
    token = status["fencingToken"].as_u64().unwrap();
    let again = first.operator("again").await;
    // The cluster stands by now, although it held the lock before.
    let status = held(first, "third").await;
    assert_eq!(
        (&status["role"], &status["holderCluster"]),
        (&"Standby".into(), &"another".into())
    );
    drop(third);
    let status = held(first, "again").await;
    assert!(status["fencingToken"].as_u64().unwrap() > token);
    drop(again);
}
