//! Tests that a deletion stops the work for good, beside a second replica.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use crate::{
    fixture::{BOUND, number},
    world::{World, lasting, lock, throughout},
};
use redlock_testkit::eventually;

const TARGETS: &str = ", targets: [{name: web, action: Scale, stopSeconds: 2, \
                       ref: {apiVersion: apps/v1, kind: Deployment, name: web}}]";
/// Far longer than a sibling needed to start the work again.
const STAYS: Duration = Duration::from_secs(2);

fn deployment() -> &'static str {
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  \
     template:\n    metadata: {labels: {app: web}}\n    spec: {terminationGracePeriodSeconds: 1, \
     containers: [{name: c, image: none}]}\n"
}

async fn replicas(deployments: &Api<Deployment>) -> Option<i32> {
    deployments.get("web").await.unwrap().spec?.replicas
}

async fn becomes(deployments: &Api<Deployment>, wanted: i32) {
    eventually(BOUND, "the Deployment is switched", async || {
        match replicas(deployments).await {
            Some(found) if found == wanted => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

/// `REDLOCK_DELETIONS=50` repeats the deletion.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_lock_leaves_no_work_running_beside_a_second_replica() {
    let world = World::new(3).await;
    world.grant_targets("apps", "deployments").await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    world.apply(deployment());
    let _replicas = [
        world.operator("replica-1").await,
        world.operator("replica-2").await,
    ];
    let deployments: Api<Deployment> = Api::namespaced(world.plane.admin(), world.namespace.name());
    let mut left = Vec::new();
    for round in 0..number("REDLOCK_DELETIONS", 5) {
        world.apply(&lasting(&lock("web", TARGETS)));
        world
            .lock_status("web", "is held", |status| status["role"] == "Active")
            .await;
        becomes(&deployments, 1).await;
        world.kubectl(&["delete", "leaderlock", "web", "--timeout=60s"]);
        becomes(&deployments, 0).await;
        throughout(STAYS, || {}).await;
        if replicas(&deployments).await != Some(0) {
            left.push(round);
        }
    }
    assert_eq!(left, Vec::<i32>::new(), "the work runs without a lock");
}
