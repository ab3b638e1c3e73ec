//! Tests that the operator restores a target that another client changed, or reports why it cannot.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::fixture::{BOUND, Options};
use crate::suspend::RIGHTS;
use crate::targets::{GATE, GATE_KIND, Gates, guarded, install};
use crate::world::{World, condition, lasting, lock, message, throughout};
use redlock_testkit::eventually;

const ENFORCED: &str = "redlock_target_enforced";

async fn world(options: Options) -> World {
    let world = World::with(3, options).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&lasting(&quorum));
    world
}

/// Returns a lock whose cluster stands by.
fn standing_by(name: &str, gate: &str) -> String {
    guarded(name, gate).replace(", targets", ", state: SteppedDown, reason: test, targets")
}

/// Returns the value of a series, if the series exists.
pub fn metric(text: &str, name: &str, label: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(name) && line.contains(label))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Repeats a change until the operator reports a conflict. A change does not count if the API server carries out the
/// operator's write, but answers late.
async fn causes_a_conflict(world: &World, change: impl AsyncFn()) {
    for _ in 0..4 {
        change().await;
        let reported = world.event_message("report", "EnforcementConflict");
        if timeout(Duration::from_secs(5), reported).await.is_ok() {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_that_a_user_starts_is_stopped_at_once_and_a_fight_is_reported() {
    let world = world(World::small_options()).await;
    install(&world).await;
    let gates = Gates::of(&world);
    let operator = world.operator("replica-1").await;
    world.apply(&GATE.replace("replicas: 1", "replicas: 0"));
    world.apply(&standing_by("report", "gate"));
    world
        .lock_status("report", "stands by", |status| {
            status["role"] == "Standby" && condition(status, "Enforced").0 == "True"
        })
        .await;
    eventually(BOUND, "the object was judged", async || {
        match metric(&operator.get("/metrics").1, ENFORCED, "target=\"gate\"") {
            Some(1.0) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let mut took = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        gates.scale("gate", 3, "some-tool").await;
        gates.until("gate", 0).await;
        took.push(started.elapsed());
    }
    println!("stopped again after {took:?}");
    // An event names no manager if the API server does not return the managed fields in time.
    eventually(BOUND, "an event names the manager", async || {
        let notes = world.events("report", "StoppedAgain").await;
        let named = |note: &String| note.contains("scaled to 3 by \"some-tool\"") && note.contains("Gate");
        if notes.iter().any(named) {
            Ok(())
        } else {
            Err(notes)
        }
    })
    .await;
    assert!(world.event("report", "EnforcementConflict").await.is_none());

    // One more change is a conflict; the operator stops the target nevertheless, at growing intervals.
    causes_a_conflict(&world, async || {
        gates.scale("gate", 3, "some-tool").await;
        gates.until("gate", 0).await;
    })
    .await;
    let status = world
        .lock_status("report", "reports a conflict", |status| {
            condition(status, "Enforced") == ("False", "EnforcementConflict")
        })
        .await;
    let text = message(&status, "Enforced");
    assert!(
        text.contains("scaled to 3 by a client of the scale subresource"),
        "{text}"
    );
    eventually(
        BOUND,
        "the metric reports it, for an alert",
        async || match metric(&operator.get("/metrics").1, ENFORCED, "target=\"gate\"") {
            Some(0.0) => Ok(()),
            other => Err(other),
        },
    )
    .await;
    for _ in 0..2 {
        let started = Instant::now();
        gates.scale("gate", 3, "some-tool").await;
        gates.until("gate", 0).await;
        println!("in a conflict after {:?}", started.elapsed());
    }

    // A target that is deleted and created again is another object, and stands by as well.
    world.kubectl(&["delete", "gate", "gate"]);
    world.apply(GATE);
    gates.until("gate", 0).await;
    assert_writes(&world);
}

/// Asserts that every write to a target is for one version or stops it, under a manager of the operator.
pub fn assert_writes(world: &World) {
    let writes: Vec<_> = world
        .requests()
        .into_iter()
        .filter(|event| ["create", "update", "patch", "delete"].contains(&event.verb.as_str()))
        .filter(|event| event.object_ref.as_ref().is_some_and(|o| o.resource != "events"))
        .collect();
    assert!(!writes.is_empty());
    for event in &writes {
        let object = event.object_ref.clone().unwrap();
        let sent = event.request_object.clone().unwrap_or_default();
        let version = |of: &Value| of["metadata"]["resourceVersion"].is_string();
        if event.verb == "delete" {
            assert!(sent["preconditions"]["uid"].is_string(), "{event:?}");
            assert!(sent["gracePeriodSeconds"].as_i64() >= Some(1), "{event:?}");
            continue;
        }
        assert!(event.uri.contains("fieldManager=redlock-operator"), "{event:?}");
        let applied = sent["apiVersion"].is_string() && sent["metadata"]["uid"].is_string();
        let stops = object.subresource == "scale" && sent["spec"]["replicas"] == 0;
        assert!(version(&sent) || applied || stops, "{event:?}");
    }
    println!("{} writes, each with its condition", writes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn target_that_cannot_be_switched_reports_the_reason_and_is_switched_later() {
    // The kind Gate must be unknown at the beginning.
    let world = world(Options {
        own_kinds_only: true,
        ..World::small_options()
    })
    .await;
    let gates = Gates::of(&world);
    let _operator = world.operator("replica-1").await;
    for (name, reference) in [
        ("unknown", "apiVersion: test.example/v1, kind: Gate, name: gate"),
        ("unscaled", "apiVersion: v1, kind: ConfigMap, name: gate"),
        ("forbidden", "apiVersion: apps/v1, kind: Deployment, name: web"),
    ] {
        let targets =
            format!(", targets: [{{name: gate, action: Scale, stopSeconds: 1, ref: {{{reference}}}}}]");
        world.apply(&lock(name, &targets));
    }
    let enforced_message = async |name: &str, reason: &str| {
        let status = world
            .lock_status(name, &format!("has the reason {reason}"), |status| {
                condition(status, "Enforced") == ("False", reason)
            })
            .await;
        let text = message(&status, "Enforced").to_owned();
        println!("{name}: {text}");
        text
    };
    assert!(
        enforced_message("unknown", "KindUnknown")
            .await
            .contains("test.example/v1")
    );
    assert!(
        enforced_message("unscaled", "NoScaleSubresource")
            .await
            .contains("ConfigMap")
    );
    let text = enforced_message("forbidden", "Forbidden").await;
    for line in [
        "targetKinds: [{group: \"apps\", resource: deployments}]",
        "- apiGroups: [\"apps\"]\n  resources: [deployments/scale]\n  verbs: [get, patch]",
        "  resources: [pods]\n  verbs: [list, delete]",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }

    // The condition also names the rights for built-in kinds.
    let mut asked = Vec::new();
    for (name, action, rules) in [
        (
            "cron",
            "action: Suspend, stopSeconds: 1, ref: {apiVersion: batch/v1, kind: CronJob, name: c}",
            &[
                "resource: cronjobs",
                "  resources: [cronjobs/status]\n  verbs: [patch]",
            ][..],
        ),
        (
            "job",
            "action: Suspend, stopSeconds: 1, ref: {apiVersion: batch/v1, kind: Job, name: j}",
            &[
                "resource: jobs",
                "  resources: [jobs]\n  verbs: [get, list, watch, patch]",
            ],
        ),
        (
            "schedule",
            "action: OncePerSchedule, ref: {apiVersion: batch/v1, kind: CronJob, name: d}",
            &[
                "resource: cronjobs",
                "  resources: [jobs]\n  verbs: [list, watch, patch, delete]",
            ],
        ),
    ] {
        let target = format!(", targets: [{{name: t, {action}}}]");
        world.apply(&lock(name, &target));
        let text = enforced_message(name, "Forbidden").await;
        for line in rules {
            assert!(text.contains(line), "{line} in {text}");
        }
        asked.push((name, text));
    }
    for (name, text) in &asked {
        paste(&world, text, name);
        enforced_message(name, "TargetNotFound").await;
    }

    // The missing objects are created one after the other.
    world.define(GATE_KIND).await;
    let text = enforced_message("unknown", "Forbidden").await;
    paste(&world, &text, "pasted");
    enforced_message("unknown", "TargetNotFound").await;
    world.apply(&GATE.replace("replicas: 1", "replicas: 0"));
    gates.scale("gate", 0, "redlock-operator-scale").await;
    world
        .lock_status("unknown", "is in force", |status| {
            condition(status, "Enforced").0 == "True"
                || condition(status, "Enforced").1 == "EnforcementConflict"
        })
        .await;
}

/// Grants the rights that a condition requests.
fn paste(world: &World, text: &str, role: &str) {
    let pasted = text.split_once("in a ClusterRole:\n").unwrap().1;
    world.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {role}}}\nrules:\n{pasted}\n"
    ));
    let account = format!("--serviceaccount={}:redlock-operator", world.namespace.name());
    let clusterrole = format!("--clusterrole={role}");
    world.kubectl(&["create", "clusterrolebinding", role, &clusterrole, &account]);
}

#[tokio::test]
async fn invalid_target_is_refused_with_its_field() {
    let world = World::small(0).await;
    let target = |fields: &str| lock("report", &format!(", targets: [{{name: gate, {fields}}}]"));
    let object = "apiVersion: apps/v1, kind: Deployment, name: web";
    for (fields, expected) in [
        (
            format!("action: Scale, ref: {{{object}, namespace: other}}"),
            "unknown field \"spec.targets[0].ref.namespace\"",
        ),
        (
            format!("action: Restart, ref: {{{object}}}"),
            "Unsupported value: \"Restart\": supported values:",
        ),
        (format!("action: Suspend, ref: {{{object}}}"), "CronJob"),
        ("action: Scale".to_owned(), "ref"),
    ] {
        let (worked, text) = world.try_apply(&target(&fields));
        assert!(!worked && text.contains(expected), "{fields}: {text}");
        println!("{}", text.trim());
    }
}

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
";
const AUTOSCALER: &str = "\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 3
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
";

async fn with_deployments() -> (World, Api<Deployment>) {
    let world = world(World::options()).await;
    world.grant_targets("apps", "deployments").await;
    let deployments = Api::namespaced(world.plane.admin(), world.namespace.name());
    (world, deployments)
}

/// Returns the lock that declares two replicas of `web`.
fn two_replicas(more: &str) -> String {
    let target = "{name: web, action: Scale, stopSeconds: 1, scale: {activeReplicas: 2}, \
                  ref: {apiVersion: apps/v1, kind: Deployment, name: web}}";
    lasting(&lock("report", &format!("{more}, targets: [{target}]")))
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_shared_with_an_autoscaler_and_with_people() {
    let (world, deployments) = with_deployments().await;
    let replicas = async || deployments.get("web").await.unwrap().spec.unwrap().replicas;
    let until = async |wanted: i32| {
        eventually(BOUND, &format!("web has {wanted} replicas"), async || {
            let found = replicas().await;
            if found == Some(wanted) { Ok(()) } else { Err(found) }
        })
        .await;
    };
    let scale = |count: i32| world.kubectl(&["scale", "deployment/web", &format!("--replicas={count}")]);
    let enforced = async |wanted: (&str, &str)| {
        world
            .lock_status("report", &format!("is {wanted:?}"), |status| {
                condition(status, "Enforced") == wanted
            })
            .await
    };
    let _operator = world.operator("replica-1").await;
    // The manifest declares no number: the default is one, which the field manager of the creation owns.
    world.apply_by_kubectl(DEPLOYMENT);
    world.apply(&two_replicas(""));
    until(2).await;
    enforced(("True", "AsDeclared")).await;
    let entries = deployments
        .get("web")
        .await
        .unwrap()
        .metadata
        .managed_fields
        .unwrap();
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().unwrap();
        fields.0["f:spec"].get("f:replicas").is_some()
    };
    let owners: Vec<_> = entries.iter().filter(owns).map(|entry| &entry.manager).collect();
    assert_eq!(owners, [&Some("redlock-operator-scale".to_owned())]);

    world.apply(AUTOSCALER);
    until(3).await;
    scale(4);
    let note = world.event_message("report", "ReplicasLeft").await;
    assert!(note.contains("kubectl"), "{note}");
    enforced(("True", "AsDeclared")).await;
    throughout(Duration::from_secs(2), || ()).await;
    until(4).await;

    // A stop takes over the number from any manager, and the autoscaler leaves a zero unchanged.
    world.apply(&two_replicas(", state: SteppedDown, reason: test"));
    until(0).await;
    enforced(("True", "AsDeclared")).await;
    world.apply(&two_replicas(""));
    until(3).await;

    // The number is set to zero without a manager, and restored; more than five times are a conflict.
    for _ in 0..5 {
        scale(0);
        until(3).await;
    }
    let note = world.event_message("report", "StartedAgain").await;
    assert!(note.contains("scaled to 0"), "{note}");
    causes_a_conflict(&world, async || {
        until(3).await;
        scale(0);
    })
    .await;
    // The event stays, whereas the condition changes again within seconds.
    let text = world.event_message("report", "EnforcementConflict").await;
    assert!(text.contains("redlock.dev/paused"), "{text}");
    // The target recovers without intervention.
    until(3).await;
    enforced(("True", "AsDeclared")).await;

    // A tool that applies the number keeps it.
    world.apply(&two_replicas(", state: SteppedDown, reason: test"));
    until(0).await;
    enforced(("True", "AsDeclared")).await;
    let apply = PatchParams::apply("kustomize-controller").force();
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0}});
    deployments
        .patch("web", &apply, &Patch::Apply(&manifest))
        .await
        .unwrap();
    world.apply(&two_replicas(""));
    let status = enforced(("False", "EnforcementConflict")).await;
    let text = message(&status, "Enforced");
    assert!(
        text.contains("by Flux (field manager \"kustomize-controller\")") && text.contains("replicas:"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_controller_is_left_to_it_and_the_condition_names_it() {
    let world = world(World::small_options()).await;
    let namespace = world.namespace.name().to_owned();
    world.plane.install_rbac_with(&namespace, &RIGHTS).await;
    let _operator = world.operator("replica-1").await;
    let queue = "labels: {kueue.x-k8s.io/queue-name: team}";
    let set = "ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: train, uid: u, controller: true}]";
    for (name, metadata, expected) in [
        ("queued", queue, "decided by Kueue (LocalQueue team)"),
        ("of-a-set", set, "decided by JobSet train"),
    ] {
        world.apply(&format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, {metadata}}}\nspec: {{suspend: true, template: \
             {{spec: {{restartPolicy: Never, containers: [{{name: work, image: work}}]}}}}}}\n"
        ));
        let target = format!(
            ", targets: [{{name: it, action: Suspend, stopSeconds: 1, ref: {{apiVersion: batch/v1, kind: Job, name: {name}}}}}]"
        );
        world.apply(&lock(name, &target));
        let status = world
            .lock_status(name, "is in a conflict", |status| {
                condition(status, "Enforced") == ("False", "EnforcementConflict")
            })
            .await;
        let text = message(&status, "Enforced");
        assert!(text.contains(expected), "{text}");
        assert_eq!(condition(&status, "Stalled"), ("True", "EnforcementConflict"));
        let suspended = world.kubectl(&["get", "job", name, "-o", "jsonpath={.spec.suspend}"]);
        assert_eq!(suspended, "true", "{name}");
    }
}

/// Refuses every write that would add a finalizer.
const REFUSAL: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-finalizers}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [redlock.dev], apiVersions: [v1alpha1], operations: [UPDATE], resources: [leaderlocks]}
  validations:
  - {expression: \"!has(object.metadata.finalizers)\", message: no finalizers in this test}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-finalizers}
spec: {policyName: no-finalizers, validationActions: [Deny]}
";

#[tokio::test(flavor = "multi_thread")]
async fn refused_finalizer_is_retried_with_a_back_off_and_then_added() {
    let world = world(World::small_options()).await;
    install(&world).await;
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), REFUSAL).unwrap();
    let path = file.path().display().to_string();
    let output = world.plane.kubectl(&["apply", "--filename", &path]);
    assert!(output.status.success(), "{output:?}");
    world.apply(&lock("trial", ""));
    eventually(BOUND, "the policy is in force", async || {
        let add = r#"{"metadata": {"finalizers": ["test.example/trial"]}}"#;
        let patch = [
            "patch",
            "ll",
            "trial",
            "--type=merge",
            "--patch",
            add,
            "--dry-run=server",
        ];
        let namespace = ["--namespace", world.namespace.name()];
        let output = world.plane.kubectl(&[&namespace[..], &patch[..]].concat());
        if String::from_utf8_lossy(&output.stderr).contains("no finalizers in this test") {
            Ok(())
        } else {
            Err(output)
        }
    })
    .await;
    world.apply(&GATE.replace("replicas: 1", "replicas: 0"));
    let operator = world.operator("replica-1").await;
    world.apply(&guarded("report", "gate"));
    operator.until_role("report", "Active").await;
    // Counts the tries within this window.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let tries = world.requests().into_iter().filter(|event| {
        let object = event.object_ref.clone().unwrap_or_default();
        event.verb == "patch" && object.resource == "leaderlocks" && object.subresource.is_empty()
    });
    let tries = tries.count();
    println!("{tries} tries in 12 s");
    assert!((2..=12).contains(&tries), "{tries}");
    let output = world.plane.kubectl(&["delete", "--filename", &path]);
    assert!(output.status.success(), "{output:?}");
    eventually(BOUND, "it has its finalizer", async || {
        let lock = world.locks().get("report").await.unwrap();
        lock.metadata.finalizers.map(|_| ()).ok_or(())
    })
    .await;
}

/// No field manager owns the default of a server-side apply.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_raises_the_default_number_of_a_server_side_apply() {
    let (world, deployments) = with_deployments().await;
    let _operator = world.operator("replica-1").await;
    world.apply(DEPLOYMENT);
    world.apply(&two_replicas(""));
    eventually(BOUND, "web has two replicas", async || {
        let spec = deployments.get("web").await.unwrap().spec.unwrap();
        if spec.replicas == Some(2) {
            Ok(())
        } else {
            Err(spec.replicas)
        }
    })
    .await;
}
