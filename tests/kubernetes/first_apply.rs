//! Tests the first apply of a workload in a cluster that stands by, as in docs/targets.md: no pod is started.

use std::fs;

use serde_json::Value;

use crate::world::{World, condition, lock};

fn deployment(replicas: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n{replicas}  strategy: {{type: Recreate}}\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
         spec: {{containers: [{{name: web, image: web}}]}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_created_with_zero_replicas_is_started_by_the_lock_alone() {
    let world = World::new(3).await;
    world.grant_targets("apps", "deployments").await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    let _operator = world.operator("replica-1").await;
    let target = ", targets: [{name: web, action: Scale, stopSeconds: 1, \
                  ref: {apiVersion: apps/v1, kind: Deployment, name: web}}]";
    world.apply(&lock(
        "report",
        &format!("{target}, state: SteppedDown, reason: test"),
    ));
    let standby = |status: &Value| status["role"] == "Standby" && condition(status, "Ready").0 == "True";
    world.lock_status("report", "stands by", standby).await;

    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), deployment("  replicas: 0\n")).unwrap();
    world.kubectl(&["create", "--filename", &file.path().display().to_string()]);
    world.kubectl(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.observedGeneration}=1",
        "--timeout=60s",
    ]);
    // From now on, the manifest is applied without the line.
    world.apply(&deployment(""));
    let replicas = || world.kubectl(&["get", "deployment", "web", "--output=jsonpath={.spec.replicas}"]);
    assert_eq!(replicas(), "0");
    assert_eq!(
        world.kubectl(&["get", "pods", "--output=name"]),
        "",
        "none was made"
    );

    world.apply(&lock("report", target));
    let runs = |status: &Value| status["role"] == "Active" && condition(status, "Enforced").0 == "True";
    world.lock_status("report", "runs", runs).await;
    assert_eq!(replicas(), "1");
}
