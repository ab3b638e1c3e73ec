//! Tests changes around a target: its object is created later, or its declaration changes.

use serde_json::json;

use super::{FLUX, FLUX_FIELD, STANDBY, enforced, operator, role, until, world};
use crate::world::lock;

#[tokio::test(flavor = "multi_thread")]
async fn missing_object_is_switched_once_it_exists() {
    let world = world(&["kustomizations"], &FLUX_FIELD).await;
    let _operator = operator(&world, &FLUX_FIELD).await;
    let target = format!(", targets: [{}]", FLUX.target("stopSeconds: 1"));
    world.apply(&lock("report", &target));
    enforced(&world, "TargetNotFound").await;
    world.apply(&format!("{}  suspend: true\n", FLUX.manifest));
    // `kubectl apply` declares the field, so a start does not overwrite it.
    enforced(&world, "EnforcementConflict").await;
    world.kubectl(&["delete", "kustomization", "it"]);
    enforced(&world, "TargetNotFound").await;
    world.apply(FLUX.manifest);
    role(&world, "Active").await;
    world.apply(&lock("report", &format!("{target}{STANDBY}")));
    role(&world, "Standby").await;
    // The object is created again on standby.
    world.kubectl(&["delete", "kustomization", "it"]);
    world.apply(FLUX.manifest);
    until(&world, "kustomization", "/spec/suspend", Some(&json!(true))).await;
    role(&world, "Standby").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_that_is_removed_from_the_target_gets_its_value_of_standby() {
    let fields = [FLUX.field(), (FLUX.group, "kustomizations", "/spec/force")];
    let world = world(&["kustomizations"], &fields).await;
    let _operator = operator(&world, &fields).await;
    world.apply(FLUX.manifest);
    let suspend = "{path: /spec/suspend, active: false, standby: true}";
    let both = format!("{suspend}, {{path: /spec/force, active: true, standby: false}}");
    let target = FLUX.target("stopSeconds: 1");
    let with = |fields: &str, state: &str| {
        let target = target.replace(suspend, fields);
        lock("report", &format!(", targets: [{target}]{state}"))
    };
    world.apply(&with(&both, ""));
    until(&world, "kustomization", "/spec/force", Some(&json!(true))).await;
    role(&world, "Active").await;
    world.apply(&with(suspend, ""));
    let found = until(&world, "kustomization", "/spec/force", Some(&json!(false))).await;
    assert_eq!(found["spec"]["suspend"], false, "it runs on");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_field_in_an_edit_delays_neither_its_correction_nor_the_end_of_the_lock() {
    let fields = [FLUX.field(), (FLUX.group, "kustomizations", "/spec/suspended")];
    let world = world(&["kustomizations"], &fields).await;
    let _operator = operator(&world, &fields).await;
    world.apply(FLUX.manifest);
    let suspend = "{path: /spec/suspend, active: false, standby: true}";
    let wrong = "{path: /spec/suspended, active: false, standby: true}";
    let target = FLUX.target("stopSeconds: 1");
    let with = |fields: &str| {
        lock(
            "report",
            &format!(", targets: [{}]", target.replace(suspend, fields)),
        )
    };
    world.apply(&with(suspend));
    role(&world, "Active").await;
    world.apply(&with(wrong));
    let text = enforced(&world, "TargetNotSafe").await;
    assert!(text.contains("unknown field"), "{text}");
    world.apply(&with(suspend));
    role(&world, "Active").await;
    world.apply(&with(&format!("{suspend}, {wrong}")));
    enforced(&world, "TargetNotSafe").await;
    world.kubectl(&["delete", "leaderlock", "report"]);
    until(&world, "kustomization", "/spec/suspend", Some(&json!(true))).await;
}
