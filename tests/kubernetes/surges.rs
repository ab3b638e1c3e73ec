//! Tests that a Deployment of one replica whose rollout starts the new pod before the old one ends is reported.

use serde_json::Value;

use crate::program;
use crate::world::{World, condition, lock, message};

const KIND: &str = "SurgesOnRollout";

fn deployment(strategy: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  \
         selector: {{matchLabels: {{app: web}}}}\n{strategy}  template:\n    metadata: {{labels: {{app: web}}}}\n    \
         spec: {{containers: [{{name: web, image: web}}]}}\n"
    )
}

/// Returns a lock with a stop time, so that the template is read only for the surge.
fn scaled(more: &str) -> String {
    let target = format!(
        ", targets: [{{name: web, action: Scale, stopSeconds: 1{more}, \
         ref: {{apiVersion: apps/v1, kind: Deployment, name: web}}}}]"
    );
    lock("report", &target)
}

async fn until(world: &World, wanted: (&str, &str)) -> Value {
    let what = format!("has {KIND} {wanted:?}");
    let status = world.lock_status("report", &what, |status| {
        condition(status, KIND) == wanted && condition(status, "Ready").0 == "True"
    });
    status.await
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_that_doubles_the_one_replica_is_reported_until_it_is_repaired() {
    let world = World::new(3).await;
    world.grant_targets("apps", "deployments").await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    let _operator = world.operator("replica-1").await;
    world.apply_by_kubectl(&deployment(""));
    world.apply(&scaled(""));
    let status = until(&world, ("True", "SurgingStrategy")).await;
    let text = message(&status, KIND).to_owned();
    assert!(
        text.contains("Deployment web") && text.contains("maxSurge: 0"),
        "{text}"
    );
    assert_eq!(world.event_message("report", KIND).await, text);
    world
        .quorum_status("default", "is reported on", |status| {
            status["reporters"][0].is_object()
        })
        .await;
    let shown = [
        "1 of 1 are ready",
        "! SurgesOnRollout",
        "strategy: {type: Recreate}",
    ];
    program::until(|| world.redlock(&["doctor"]), 0, &shown);

    // Applies each line of the message as printed.
    world.apply_by_kubectl(&deployment("  strategy: {type: Recreate}\n"));
    until(&world, ("False", "NoSurge")).await;
    world.apply_by_kubectl(&deployment(""));
    until(&world, ("True", "SurgingStrategy")).await;
    world.apply_by_kubectl(&deployment(
        "  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}\n",
    ));
    until(&world, ("False", "NoSurge")).await;

    // Two replicas are not doubled.
    let patch = r#"{"spec": {"strategy": {"rollingUpdate": {"maxSurge": "25%"}}}}"#;
    world.kubectl(&["patch", "deployment", "web", "--patch", patch]);
    until(&world, ("True", "SurgingStrategy")).await;
    world.apply(&scaled(", scale: {activeReplicas: 2}"));
    until(&world, ("", "")).await;
}
