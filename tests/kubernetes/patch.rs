//! Tests the action Patch: fields of objects of other projects follow the lock.

#[path = "patch/declared.rs"]
mod declared;
#[path = "patch/kinds.rs"]
pub mod kinds;
#[path = "patch/locks.rs"]
mod locks;

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::fixture::{BOUND, Operator};
use crate::leader_lease::enforced_target;
use crate::world::{World, condition, lock, message, throughout};
use kinds::{FLINK, Kind};
use redlock_testkit::eventually;

const STANDBY: &str = ", state: SteppedDown, reason: test";
const CRDS: &str = "tests/corpus/crds";

/// Installs definitions of `tests/corpus/crds`, by plural, and waits until they are served.
pub async fn install_crds(world: &World, plurals: &[&str]) {
    for plural in plurals {
        let text = fs::read_to_string(format!("{CRDS}/{plural}.yaml")).unwrap();
        world.define(&text).await;
    }
}

/// Returns a world with these definitions, in which the chart allows these fields: group, plural, path.
async fn world(plurals: &[&str], fields: &[(&str, &str, &str)]) -> World {
    let world = World::small(3).await;
    install_crds(&world, plurals).await;
    grant(&world, fields).await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    world
}

async fn grant(world: &World, fields: &[(&str, &str, &str)]) {
    let value = |(index, (group, resource, path)): (usize, &(&str, &str, &str))| {
        let field = format!("targetFields[{index}]");
        [
            format!("{field}.group={group}"),
            format!("{field}.resource={resource}"),
            format!("{field}.path={path}"),
        ]
    };
    let values: Vec<String> = fields.iter().enumerate().flat_map(value).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    world
        .plane
        .install_rbac_with(world.namespace.name(), &values)
        .await;
}

/// Returns the variable that the chart sets for these fields.
pub fn allowed(fields: &[(&str, &str, &str)]) -> String {
    let text = |(group, resource, path): &(&str, &str, &str)| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("{resource}{dot}{group}:{path}")
    };
    fields.iter().map(text).collect::<Vec<_>>().join(",")
}

async fn operator(world: &World, fields: &[(&str, &str, &str)]) -> Operator {
    let fields = allowed(fields);
    world
        .operator_with("replica-1", |command| {
            if !fields.is_empty() {
                command.env("REDLOCK_TARGET_FIELDS", &fields);
            }
        })
        .await
}

/// Returns the object as it is stored.
fn stored(world: &World, resource: &str, name: &str) -> Value {
    let text = world.kubectl(&["get", resource, name, "--show-managed-fields", "--output=json"]);
    serde_json::from_str(&text).unwrap()
}

/// Waits for a value; returns the object.
async fn until(world: &World, resource: &str, path: &str, wanted: Option<&Value>) -> Value {
    let what = format!("{path} of {resource} is {wanted:?}");
    eventually(BOUND, &what, async || {
        let found = stored(world, resource, "it");
        if found.pointer(path) == wanted {
            Ok(found)
        } else {
            Err(found["spec"].clone())
        }
    })
    .await
}

async fn role(world: &World, role: &str) -> Value {
    let in_role = |status: &Value| status["role"] == role && condition(status, "Enforced").0 == "True";
    world.lock_status("report", role, in_role).await
}

async fn enforced(world: &World, reason: &str) -> String {
    let has = |status: &Value| condition(status, "Enforced").1 == reason;
    let status = world.lock_status("report", reason, has).await;
    let text = message(&status, "Enforced").to_owned();
    println!("{reason}: {text}");
    text
}

const FLUX: Kind = kinds::KINDS[0];
const FLUX_FIELD: [(&str, &str, &str); 1] = [FLUX.field()];

#[tokio::test(flavor = "multi_thread")]
async fn documented_fields_follow_the_lock() {
    let fields = kinds::KINDS.map(|kind| kind.field());
    let world = world(&kinds::DEFINITIONS, &fields).await;
    let operator = operator(&world, &fields).await;
    let mut bare = Vec::new();
    for kind in &kinds::KINDS {
        world.apply(kind.manifest);
        bare.push(stored(&world, &kind.resource(), "it"));
    }
    let targets: Vec<String> = kinds::KINDS
        .iter()
        .map(|kind| kind.target("stopSeconds: 1"))
        .collect();
    let targets = format!(", targets: [{}]", targets.join(", "));
    for state in [STANDBY, "", STANDBY] {
        world.apply(&lock("report", &format!("{targets}{state}")));
        let wanted = if state.is_empty() { "Active" } else { "Standby" };
        for kind in &kinds::KINDS {
            let value = if state.is_empty() {
                kind.active()
            } else {
                kind.standby()
            };
            until(&world, &kind.resource(), &kind.pointer(), value.as_ref()).await;
        }
        role(&world, wanted).await;
        for (kind, bare) in kinds::KINDS.iter().zip(&bare) {
            let found = stored(&world, &kind.resource(), "it");
            let value = if state.is_empty() {
                kind.active()
            } else {
                kind.standby()
            };
            assert_eq!(
                found.pointer(&kind.pointer()),
                value.as_ref(),
                "{wanted}: {found}"
            );
            // Nothing else is changed.
            let rest =
                |object: &Value| kind.without_field(&object["spec"], &object["metadata"]["annotations"]);
            assert_eq!(rest(&found), rest(bare), "{wanted}");
        }
        println!("{wanted}: {} kinds", kinds::KINDS.len());
    }
    enforced_target(&operator, "kustomization", "Patch");
    // A write to an annotation leaves the generation as it is, and is noticed nevertheless.
    let annotation = "/metadata/annotations/autoscaling.keda.sh~1paused-replicas";
    world.kubectl(&[
        "annotate",
        "scaledobject",
        "it",
        "autoscaling.keda.sh/paused-replicas-",
    ]);
    until(&world, "scaledobject", annotation, Some(&json!("0"))).await;
    role(&world, "Standby").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_overwrites_another_manager_and_a_start_does_not() {
    let world = world(&["kustomizations"], &FLUX_FIELD).await;
    let _operator = operator(&world, &FLUX_FIELD).await;
    let apply = |suspend: bool| {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        let manifest = format!("{}  suspend: {suspend}\n", FLUX.manifest);
        fs::write(file.path(), manifest).unwrap();
        let path = file.path().display().to_string();
        let manager = "--field-manager=kustomize-controller";
        world.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            manager,
            "--filename",
            &path,
        ]);
    };
    let target = format!(", targets: [{}]", FLUX.target("stopSeconds: 1"));
    apply(false);
    world.apply(&lock("report", &format!("{target}{STANDBY}")));
    until(&world, "kustomization", "/spec/suspend", Some(&json!(true))).await;
    role(&world, "Standby").await;
    // Another writer starts the workload on standby. No event names the writer if the stop is carried out, but answered late.
    for _ in 0..4 {
        apply(false);
        let reported = world.event_message("report", "StoppedAgain");
        if timeout(Duration::from_secs(5), reported).await.is_ok() {
            break;
        }
    }
    let event = world.event_message("report", "StoppedAgain").await;
    assert!(
        event.contains("/spec/suspend of Kustomization") && event.contains("by Flux"),
        "{event}"
    );
    until(&world, "kustomization", "/spec/suspend", Some(&json!(true))).await;
    role(&world, "Standby").await;
    // The manifest declares that it is stopped.
    apply(true);
    world.apply(&lock("report", &target));
    let text = enforced(&world, "EnforcementConflict").await;
    assert!(text.contains("/spec/suspend has true by Flux"), "{text}");
    assert_eq!(stored(&world, "kustomization", "it")["spec"]["suspend"], true);
    // The manifest leaves the field to the lock.
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), FLUX.manifest).unwrap();
    let path = file.path().display().to_string();
    let manager = "--field-manager=kustomize-controller";
    world.kubectl(&["apply", "--server-side", manager, "--filename", &path]);
    role(&world, "Active").await;
    until(&world, "kustomization", "/spec/suspend", Some(&json!(false))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_is_not_stored_is_reported() {
    let group = FLUX.group;
    let typo = (group, "kustomizations", "/spec/suspended");
    let fields = [FLUX.field(), typo];
    let world = world(&["kustomizations"], &fields).await;
    let _operator = operator(&world, &fields).await;
    world.apply(FLUX.manifest);
    let before = stored(&world, "kustomization", "it");
    // A field that the schema does not have: without strict validation, the API server drops it and answers 200.
    let wrong = |field: &str| {
        let target = FLUX.target("stopSeconds: 1");
        let target = target.replace("{path: /spec/suspend, active: false, standby: true}", field);
        assert!(target.contains(field), "{target}");
        lock("report", &format!(", targets: [{target}]{STANDBY}"))
    };
    world.apply(&wrong("{path: /spec/suspended, active: false, standby: true}"));
    let text = enforced(&world, "TargetNotSafe").await;
    assert!(text.contains("unknown field \"spec.suspended\""), "{text}");
    // A value of another type.
    world.apply(&wrong("{path: /spec/suspend, active: false, standby: \"yes\"}"));
    let status = world.lock_status("report", "names the type", |status| {
        message(status, "Enforced").contains("spec.suspend: Invalid value")
    });
    assert_eq!(condition(&status.await, "Enforced").1, "TargetNotSafe");
    let after = stored(&world, "kustomization", "it");
    assert_eq!(
        before["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );

    let known = world.kubectl(&[
        "api-resources",
        "--api-group=admissionregistration.k8s.io",
        "--output=name",
    ]);
    if !known.contains("mutatingadmissionpolicies") {
        println!("NOT TESTED: a policy that resets the field; MutatingAdmissionPolicy needs Kubernetes 1.36");
        return;
    }
    world.apply(&kinds::resetting_policy(group));
    eventually(BOUND, "the policy is in effect", async || {
        let suspend = r#"--patch={"spec": {"suspend": true}}"#;
        world.kubectl(&["patch", "kustomization", "it", "--type=merge", suspend]);
        match stored(&world, "kustomization", "it")["spec"]["suspend"].clone() {
            Value::Bool(false) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    world.apply(&wrong("{path: /spec/suspend, active: false, standby: true}"));
    let status = world.lock_status("report", "names the value", |status| {
        message(status, "Enforced").contains("/spec/suspend has false")
    });
    let status = status.await;
    println!("{}", message(&status, "Enforced"));
    assert_eq!(condition(&status, "Enforced").1, "TargetNotSafe");
    assert_ne!(status["role"], "Standby");
}

fn flink_lock(more: &str, state: &str) -> String {
    let target = format!(
        "{{name: it, action: Patch, ref: {{apiVersion: flink.apache.org/v1beta1, kind: FlinkDeployment, name: it}}, \
         stopSeconds: 3, patch: {{fields: [{{path: /spec/job/state, active: running, standby: suspended}}], \
         stoppedWhen: [{{path: /status/lifecycleState, equals: SUSPENDED}}]{more}}}}}"
    );
    lock("report", &format!(", targets: [{target}]{state}"))
}

fn shows(world: &World, status: &Value) {
    let patch = format!("--patch={}", json!({ "status": status }));
    world.kubectl(&[
        "patch",
        "flinkdeployment",
        "it",
        "--subresource=status",
        "--type=merge",
        &patch,
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_from_before_the_write_does_not_confirm_a_stop() {
    let field = [("flink.apache.org", "flinkdeployments", "/spec/job/state")];
    let world = world(&["flinkdeployments"], &field).await;
    let _operator = operator(&world, &field).await;
    world.apply(FLINK);
    shows(
        &world,
        &json!({"observedGeneration": 1, "lifecycleState": "SUSPENDED"}),
    );
    world.apply(&flink_lock("", STANDBY));
    let found = until(
        &world,
        "flinkdeployment",
        "/spec/job/state",
        Some(&json!("suspended")),
    )
    .await;
    assert_eq!(found["metadata"]["generation"], 2);
    let stands_by = |world: &World| {
        let text = world.kubectl(&["get", "leaderlock", "report", "--output=jsonpath={.status.role}"]);
        text == "Standby"
    };
    // The status shows the wanted state, but for an earlier generation.
    throughout(Duration::from_secs(5), || assert!(!stands_by(&world))).await;
    shows(
        &world,
        &json!({"observedGeneration": 2, "lifecycleState": "STABLE"}),
    );
    throughout(Duration::from_secs(2), || assert!(!stands_by(&world))).await;
    shows(
        &world,
        &json!({"observedGeneration": 2, "lifecycleState": "SUSPENDED"}),
    );
    role(&world, "Standby").await;

    // Without a generation, the status counts only if it is trusted.
    shows(
        &world,
        &json!({"observedGeneration": null, "lifecycleState": "SUSPENDED"}),
    );
    world.apply(&flink_lock("", ""));
    role(&world, "Active").await;
    world.apply(&flink_lock("", STANDBY));
    let text = enforced(&world, "TargetNotSafe").await;
    assert!(text.contains("trustStatusWithoutGeneration: true"), "{text}");
    world.apply(&flink_lock(", trustStatusWithoutGeneration: true", STANDBY));
    role(&world, "Standby").await;
}
