//! Tests the policy of the chart that accepts a LeaderLock only from a user with permission to patch its targets.

use std::fs;

use crate::chart::{chart, run_helm};
use crate::fixture::{BOUND, SERVICE_ACCOUNT};
use crate::targets::{GATE, Gates, guarded, install};
use crate::world::{World, lock};
use redlock_testkit::eventually;

/// Applies the policy, with the kind of the tests in its values.
fn install_policy(world: &World) {
    let resource = r"--set=admission.authorCheck.resources.Gate\.test\.example=gates";
    let enabled = "--set=admission.authorCheck.enabled=true";
    apply_template(world, "author-check", &[enabled, resource]);
}

/// Applies one template of the chart with these flags.
pub fn apply_template(world: &World, template: &str, flags: &[&str]) {
    let (chart, template) = (chart(), format!("--show-only=templates/{template}.yaml"));
    let namespace = ["--namespace", world.namespace.name()];
    let fixed = ["template", SERVICE_ACCOUNT, chart.to_str().unwrap(), &template];
    let rendered = run_helm(&world.plane, &[&fixed[..], &namespace, flags].concat());
    world.apply(&rendered.unwrap());
}

/// Runs `kubectl` as this user; returns whether it succeeded, and its output.
pub fn kubectl(world: &World, user: &str, arguments: &[&str]) -> (bool, String) {
    let user = format!("--as={user}");
    let namespace = ["--namespace", world.namespace.name(), &user];
    let output = world.plane.kubectl(&[&namespace, arguments].concat());
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

pub fn apply(world: &World, user: &str, manifest: &str) -> (bool, String) {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), manifest).unwrap();
    let path = file.path().display().to_string();
    kubectl(world, user, &["apply", "--filename", &path])
}

pub fn grant(world: &World, user: &str, role: &str, verbs: &str, resource: &str, more: &[&str]) {
    let (verbs, resource) = (format!("--verb={verbs}"), format!("--resource={resource}"));
    world.kubectl(&[&["create", "role", role, &verbs, &resource], more].concat());
    let (binding, of) = (format!("{user}-{role}"), format!("--role={role}"));
    let user = format!("--user={user}");
    world.kubectl(&["create", "rolebinding", &binding, &of, &user]);
}

fn targets(name: &str, targets: &[&str]) -> String {
    lock(name, &format!(", targets: [{}]", targets.join(", ")))
}

async fn world() -> World {
    let world = World::small(3).await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    install(&world).await;
    world.apply(GATE);
    install_policy(&world);
    for user in ["alice", "bob"] {
        let role = format!("locks-of-{user}");
        let verbs = "get,list,create,update,patch,delete";
        grant(&world, user, &role, verbs, "leaderlocks.redlock.dev", &[]);
    }
    grant(
        &world,
        "bob",
        "gates",
        "patch",
        "gates.test.example/scale",
        &["--resource-name=gate"],
    );
    eventually(BOUND, "the policy is in effect", async || {
        match apply(&world, "alice", &guarded("probe", "gate")) {
            (false, output) if output.contains("may not do by hand") => Ok(()),
            other => {
                kubectl(
                    &world,
                    "alice",
                    &["delete", "leaderlock", "probe", "--ignore-not-found"],
                );
                Err(other)
            }
        }
    })
    .await;
    world
}

pub fn refused((worked, output): (bool, String), by: &[&str]) {
    println!("{}", output.trim());
    assert!(!worked, "accepted");
    for text in by {
        assert!(output.contains(text), "{text} in {output}");
    }
}

pub fn accepted((worked, output): (bool, String)) {
    assert!(worked, "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_accepted_from_users_that_may_patch_its_targets() {
    let world = world().await;
    let gates = Gates::of(&world);
    let _operator = world.operator("replica-1").await;
    accepted(apply(&world, "alice", &lock("plain", "")));
    let gate = guarded("report", "gate");
    refused(
        apply(&world, "alice", &gate),
        &[
            "alice may not do by hand what this lock does",
            "patch gates/scale.test.example gate",
        ],
    );
    accepted(apply(&world, "bob", &gate));
    // The operator writes its finalizer and the status.
    world
        .lock_status("report", "runs", |status| status["role"] == "Active")
        .await;
    gates.until("gate", 1).await;
    // Changes outside the spec are not checked, and every change of the spec is.
    accepted(kubectl(
        &world,
        "alice",
        &["annotate", "leaderlock", "report", "note=x"],
    ));
    let step_down = r#"--patch={"spec": {"state": "SteppedDown", "reason": "test"}}"#;
    let arguments = ["patch", "leaderlock", "report", "--type=merge", step_down];
    refused(
        kubectl(&world, "alice", &arguments),
        &["patch gates/scale.test.example gate"],
    );
    accepted(kubectl(&world, "bob", &arguments));
    // A right on one object does not cover another.
    refused(
        apply(&world, "bob", &guarded("other", "other")),
        &["gates/scale.test.example other"],
    );
    accepted(kubectl(
        &world,
        "bob",
        &["delete", "leaderlock", "report", "--timeout=60s"],
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_needs_the_right_that_it_uses() {
    let world = world().await;
    let cases = [
        (
            "{name: t, action: Suspend, ref: {apiVersion: batch/v1, kind: CronJob, name: c}}",
            ("suspend", "cronjobs.batch", &["--resource-name=c"][..]),
            "patch cronjobs.batch c",
        ),
        (
            "{name: t, action: Suspend, ref: {apiVersion: batch/v1, kind: Job, name: j}}",
            ("resume", "jobs.batch", &["--resource-name=j"]),
            "patch jobs.batch j",
        ),
        (
            "{name: t, action: OncePerSchedule, ref: {apiVersion: batch/v1, kind: CronJob, name: d}}",
            ("slots", "jobs.batch", &[]),
            "patch jobs.batch",
        ),
        (
            "{name: t, action: LabelPods, labelPods: {selector: {matchLabels: {app: x}}}}",
            ("pods", "pods", &[]),
            "patch pods",
        ),
        (
            "{name: t, action: Scale, ref: {apiVersion: apps/v1, kind: Deployment, name: w}}",
            ("deployments", "deployments.apps/scale", &["--resource-name=w"]),
            "patch deployments/scale.apps w",
        ),
    ];
    for (target, (role, resource, more), expected) in cases {
        let lock = targets(role, &[target]);
        refused(apply(&world, "alice", &lock), &[expected]);
        grant(&world, "alice", role, "patch", resource, more);
        eventually(BOUND, "the right is in effect", async || {
            match apply(&world, "alice", &lock) {
                (true, _) => Ok(()),
                (_, output) => Err(output),
            }
        })
        .await;
    }
    // A kind whose plural is not known cannot be checked.
    let widget = "{name: t, action: Scale, ref: {apiVersion: test.example/v1, kind: Widget, name: w}}";
    let known = "admission.authorCheck.resources";
    refused(
        apply(&world, "bob", &targets("widget", &[widget])),
        &["Widget.test.example", known],
    );
    // The budget of the API server allows 28 objects, and all 32 targets that need a right in the namespace.
    let many = |count: usize, target: &dyn Fn(usize) -> String| -> String {
        let all: Vec<String> = (0..count).map(target).collect();
        targets("many", &all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let pods = |i| {
        format!("{{name: t{i}, action: LabelPods, labelPods: {{selector: {{matchLabels: {{app: x{i}}}}}}}}}")
    };
    accepted(apply(&world, "alice", &many(32, &pods)));
    let job =
        |i| format!("{{name: t{i}, action: Suspend, ref: {{apiVersion: batch/v1, kind: Job, name: j{i}}}}}");
    accepted(apply(&world, "alice", &many(28, &job)));
    refused(
        apply(&world, "alice", &many(29, &job)),
        &["more than 28 objects cannot be checked"],
    );
}
