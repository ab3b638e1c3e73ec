//! Tests that no stop deletes the volumes of a StatefulSet.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use redlock_testkit::eventually;

use crate::fixture::BOUND;
use crate::world::{World, condition, lock, message, throughout};

const SET: &str = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Retain}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn stop_that_deletes_volumes_is_refused_until_it_is_accepted() {
    let world = World::small(3).await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    world.grant_targets("apps", "statefulsets").await;
    let sets = Api::<StatefulSet>::namespaced(world.plane.admin(), world.namespace.name());
    let replicas = async || sets.get("db").await.unwrap().spec.unwrap().replicas;
    let _operator = world.operator("replica-1").await;
    world.apply_by_kubectl(SET);
    let target =
        "{name: db, action: Scale, stopSeconds: 1, ref: {apiVersion: apps/v1, kind: StatefulSet, name: db}}";
    let with = |state: &str| lock("report", &format!(", targets: [{target}]{state}"));
    world.apply(&with(""));
    let status = world.lock_status("report", "is not safe", |status| {
        condition(status, "Enforced") == ("False", "TargetNotSafe")
    });
    let text = message(&status.await, "Enforced").to_owned();
    assert!(text.contains("redlock.dev/accept-volume-deletion"), "{text}");
    world.apply(&with(", state: SteppedDown, reason: test"));
    throughout(Duration::from_secs(5), || ()).await;
    assert_eq!(replicas().await, Some(1));
    world.kubectl(&[
        "annotate",
        "statefulset/db",
        "redlock.dev/accept-volume-deletion=true",
    ]);
    eventually(BOUND, "db is stopped", async || match replicas().await {
        Some(0) => Ok(()),
        other => Err(other),
    })
    .await;
}
