//! Tests that locks with missing targets do not delay the start of another lock.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use redlock::api::LeaderLock;
use serde_json::{Value, json};

use crate::fixture::{BOUND, number};
use crate::world::{World, lasting};
use redlock_testkit::eventually;

/// The time within which a lock starts its target. In one queue with the requests of 60 other locks, it takes longer.
const START: Duration = Duration::from_secs(10);

/// Returns a lock of one Deployment.
fn lock(name: &str) -> LeaderLock {
    let lock: Value = json!({
        "apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
        "metadata": {"name": name},
        "spec": {
            "quorumRef": {"name": "default"},
            "targets": [{"name": "work", "action": "Scale", "ref": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": name,
            }}],
        },
    });
    serde_json::from_value(lock).unwrap()
}

fn deployment(name: &str) -> Deployment {
    let labels = json!({"app": name});
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "work", "image": "work"}]},
            },
        },
    });
    serde_json::from_value(deployment).unwrap()
}

/// Set `REDLOCK_BAD_LOCKS` to measure with another number of locks.
#[tokio::test(flavor = "multi_thread")]
async fn locks_with_missing_targets_do_not_delay_a_start_in_another_namespace() {
    let count = number("REDLOCK_BAD_LOCKS", 60);
    let world = World::small(3).await;
    world.grant_targets("apps", "deployments").await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&lasting(&quorum).replace("Seconds: 12", "Seconds: 60"));
    let operator = world.operator("replica-1").await;
    let good = world.plane.namespace("good").await;
    let deployments = Api::<Deployment>::namespaced(world.plane.admin(), good.name());
    let good_locks = Api::<LeaderLock>::namespaced(world.plane.admin(), good.name());
    let new = PostParams::default();
    for round in ["before", "beside"] {
        let names = [1, 2, 3, 4, 5].map(|index| format!("{round}-{index}"));
        for name in &names {
            deployments.create(&new, &deployment(name)).await.unwrap();
            good_locks.create(&new, &lock(name)).await.unwrap();
            let created = Instant::now();
            eventually(START, &format!("{name} is started"), async || {
                let found = deployments.get(name).await.unwrap();
                let replicas = found.spec.and_then(|spec| spec.replicas);
                if replicas == Some(1) {
                    Ok(())
                } else {
                    Err(replicas)
                }
            })
            .await;
            println!("| {name} | {} ms |", created.elapsed().as_millis());
        }
        if round == "before" {
            let bad = world.locks();
            let all = stream::iter(0..count)
                .map(async |index| bad.create(&new, &lock(&format!("bad-{index}"))).await);
            let made = all.buffer_unordered(8).collect::<Vec<_>>().await;
            assert!(made.iter().all(Result::is_ok));
            eventually(BOUND, "all missing targets are reported", async || {
                let bad = bad.list(&kube::api::ListParams::default()).await.unwrap();
                let reported = |lock: &LeaderLock| {
                    let status = serde_json::to_value(&lock.status).unwrap();
                    crate::world::condition(&status, "Ready").1 == "TargetNotFound"
                };
                let reported = bad.iter().filter(|lock| reported(lock)).count();
                if reported == count { Ok(()) } else { Err(reported) }
            })
            .await;
        }
    }
    drop(operator);
}
