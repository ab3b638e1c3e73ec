//! Tests the policies of the chart that keep users from starting workloads that a lock keeps stopped.

use serde_json::Value;

use crate::author_check::{accepted, apply, apply_template, grant, kubectl, refused};
use crate::fixture::BOUND;
use crate::world::{World, lock};
use redlock_testkit::eventually;

const ALICE: &str = "alice";

fn deployment(name: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
         spec: {{containers: [{{name: web, image: web}}]}}\n"
    )
}

fn web(state: &str) -> String {
    let target = "targets: [{name: web, action: Scale, stopSeconds: 1, \
                  ref: {apiVersion: apps/v1, kind: Deployment, name: web}}]";
    lock("report", &format!(", {target}{state}"))
}

const STANDBY: &str = ", state: SteppedDown, reason: test";
const CRON_JOB: &str = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: night}\nspec:\n  \
    schedule: \"0 0 1 1 *\"\n  suspend: true\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, \
    containers: [{name: a, image: a}]}}}}\n";

async fn world() -> World {
    let world = World::new(3).await;
    let namespace = world.namespace.name();
    let rights = [
        "targetKinds[0].group=apps",
        "targetKinds[0].resource=deployments",
        "targetKinds[1].group=batch",
        "targetKinds[1].resource=cronjobs",
    ];
    world.plane.install_rbac_with(namespace, &rights).await;
    let verbs = "get,list,create,update,patch,delete";
    let resources = "deployments.apps,deployments.apps/scale,cronjobs.batch";
    grant(&world, ALICE, "admin", verbs, resources, &[]);
    let version = world.plane.admin().apiserver_version().await.unwrap().git_version;
    let version = format!("--kube-version={version}");
    let enabled = "--set=admission.standbyGuard.enabled=true";
    apply_template(&world, "standby-guard", &[enabled, &version]);
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    world
}

fn replicas(world: &World, namespace: &str, name: &str) -> Value {
    let output = world.plane.kubectl(&[
        "get",
        "deployment",
        name,
        "--namespace",
        namespace,
        "--output=json",
    ]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    found["spec"]["replicas"].clone()
}

fn scale(world: &World, name: &str, replicas: u32) -> (bool, String) {
    let replicas = format!("--replicas={replicas}");
    kubectl(world, ALICE, &["scale", "deployment", name, &replicas])
}

/// Reports whether the API server serves mutating policies, from Kubernetes 1.36 on.
fn mutates(world: &World) -> bool {
    let group = "--api-group=admissionregistration.k8s.io";
    let known = world.kubectl(&["api-resources", group, "--output=name"]);
    known.contains("mutatingadmissionpolicies")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_starts_a_workload_on_standby() {
    let world = world().await;
    let here = world.namespace.name();
    let _operator = world.operator("replica-1").await;
    world.apply(&web(STANDBY));
    let standby = |status: &Value| status["role"] == "Standby";
    world.lock_status("report", "stands by", standby).await;

    if mutates(&world) {
        // A policy takes effect some time after its creation.
        eventually(BOUND, "what is created begins with standbyReplicas", async || {
            kubectl(
                &world,
                ALICE,
                &["delete", "deployment", "web", "--ignore-not-found"],
            );
            accepted(apply(&world, ALICE, &deployment("web", 2)));
            // The number does not come from a later write of the operator, which would be another generation.
            let made = "--output=jsonpath={.metadata.generation} {.spec.replicas}";
            match world.kubectl(&["get", "deployment", "web", made]) {
                found if found == "1 0" => Ok(()),
                found => Err(found),
            }
        })
        .await;
    } else {
        let kind = deployment("web", 0).replace("  replicas: 0\n", "");
        accepted(apply(&world, ALICE, &kind));
        accepted(kubectl(
            &world,
            ALICE,
            &["scale", "deployment", "web", "--replicas=0"],
        ));
    }
    accepted(apply(&world, ALICE, &deployment("other", 1)));
    assert_eq!(replicas(&world, here, "other"), 1);
    eventually(BOUND, "a start is refused", async || {
        match scale(&world, "web", 1) {
            (false, output) if output.contains("LeaderLock report") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let patch = r#"--patch={"spec": {"replicas": 1}}"#;
    let expected = ["LeaderLock report", "this cluster stands by", "redlock hand-over"];
    refused(
        kubectl(&world, ALICE, &["patch", "deployment", "web", patch]),
        &expected,
    );
    // Changes that start nothing are admitted.
    accepted(scale(&world, "web", 0));
    accepted(scale(&world, "other", 2));
    accepted(kubectl(
        &world,
        ALICE,
        &["annotate", "deployment", "web", "note=x"],
    ));
    a_cron_job_is_not_resumed(&world).await;
    another_namespace_is_left_alone(&world).await;

    let policies = world.redlock(&["doctor", "--verbose"]).stdout;
    let shown = policies.lines().find(|line| line.contains("admission"));
    let shown = shown.unwrap_or_else(|| panic!("{policies}"));
    assert!(shown.contains("standby-guard"), "{shown}");
    assert_eq!(shown.contains("on creation"), mutates(&world), "{shown}");

    // The operator starts the workload while the status still shows Standby.
    world.apply(&web(""));
    world
        .lock_status("report", "runs", |status| status["role"] == "Active")
        .await;
    eventually(BOUND, "it was started", async || {
        match replicas(&world, here, "web") {
            found if found == 1 => Ok(()),
            found => Err(found),
        }
    })
    .await;
    // Where the lock is held, every change is allowed.
    eventually(
        BOUND,
        "the status is known to the policies",
        async || match scale(&world, "web", 3) {
            (true, _) => Ok(()),
            (_, output) => Err(output),
        },
    )
    .await;
    // Without its object the lock is Activating, so a new object may begin with zero replicas; it is started.
    accepted(kubectl(&world, ALICE, &["delete", "deployment", "web"]));
    accepted(apply(&world, ALICE, &deployment("web", 2)));
    eventually(BOUND, "it runs again", async || {
        match replicas(&world, here, "web") {
            found if found.as_i64() >= Some(1) => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

async fn a_cron_job_is_not_resumed(world: &World) {
    let target = ", targets: [{name: night, action: Suspend, stopSeconds: 1, \
                  ref: {apiVersion: batch/v1, kind: CronJob, name: night}}]";
    world.apply(&lock("night", &format!("{target}{STANDBY}")));
    world.apply(CRON_JOB);
    let standby = |status: &Value| status["role"] == "Standby";
    world.lock_status("night", "stands by", standby).await;
    let resume = r#"--patch={"spec": {"suspend": false}}"#;
    eventually(BOUND, "it is not resumed", async || {
        match kubectl(world, ALICE, &["patch", "cronjob", "night", resume]) {
            (false, output) if output.contains("LeaderLock night") => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// Tests that a namespace without a lock is not affected.
async fn another_namespace_is_left_alone(world: &World) {
    let other = world.plane.namespace("other").await;
    let run = |arguments: &[&str]| {
        let namespace = ["--namespace", other.name()];
        let output = world.plane.kubectl(&[arguments, &namespace].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    run(&["create", "deployment", "web", "--image=web"]);
    assert_eq!(replicas(world, other.name(), "web"), 1);
    run(&["scale", "deployment", "web", "--replicas=2"]);
}
