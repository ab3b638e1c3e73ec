//! Tests the action Lease: the operator holds the Lease of a leader election where the lock is not held, and frees it
//! where it is.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::author_check::{accepted, apply_template, grant, kubectl, refused};
use crate::common::metrics::assert_documented;
use crate::fixture::{BOUND, Operator, SERVICE_ACCOUNT};
use crate::world::{World, condition, lock, message};
use redlock_testkit::eventually;

/// The values of the chart that grant the rights.
pub const RIGHTS: [&str; 2] = [
    "targetKinds[0].group=coordination.k8s.io",
    "targetKinds[0].resource=leases",
];
const STANDBY: &str = ", state: SteppedDown, reason: test";
const STOP: Duration = Duration::from_secs(2);
/// Longer than [`STOP`] and the time until the status shows its end.
const STATUS: Duration = Duration::from_secs(15);
/// The lease duration in seconds that no candidate waits out.
const FOR_GOOD: i64 = 2_147_483_647;

async fn world() -> World {
    let world = World::small(3).await;
    let namespace = world.namespace.name();
    world.plane.install_rbac_with(namespace, &RIGHTS).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 15"));
    world
}

fn target(more: &str) -> String {
    let target = "targets: [{name: controller, action: Lease, stopSeconds: 2, \
                  ref: {apiVersion: coordination.k8s.io/v1, kind: Lease, name: controller}}]";
    lock("report", &format!(", {target}{more}")).replace("Seconds: 6", "Seconds: 15")
}

/// Returns the Lease of a candidate of client-go.
fn held_by(holder: &str) -> String {
    format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: controller}}\nspec:\n  \
         {{holderIdentity: {holder:?}, leaseDurationSeconds: 15, leaseTransitions: 3, \
         acquireTime: \"2026-01-01T12:00:00.000000Z\", renewTime: \"2026-01-01T12:00:00.000000Z\"}}\n"
    )
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.plane.admin(), world.namespace.name())
}

/// Waits for this holder of the Lease `controller`; returns the Lease.
async fn held(world: &World, holder: &str) -> Value {
    lease_held(world, "controller", holder).await
}

/// Waits for this holder; returns the Lease.
pub async fn lease_held(world: &World, lease: &str, holder: &str) -> Value {
    let leases = leases(world);
    eventually(BOUND, &format!("{lease} is held by {holder:?}"), async || {
        let found = leases.get_opt(lease).await.unwrap();
        let found = serde_json::to_value(found).unwrap();
        let is = found["spec"]["holderIdentity"].as_str().unwrap_or_default() == holder;
        if is && found.is_object() {
            Ok(found)
        } else {
            Err(found)
        }
    })
    .await
}

fn is_stopped(status: &Value) -> bool {
    status["role"] == "Standby" && condition(status, "Enforced").0 == "True"
}

async fn stopped(world: &World) -> Value {
    world
        .lock_status("report", "stands by, and no leader runs", is_stopped)
        .await
}

/// Asserts that the metrics show the target in its desired state.
pub fn enforced_target(operator: &Operator, target: &str, action: &str) {
    let (_, metrics) = operator.get("/metrics");
    let labels = format!("lock=\"report\",target=\"{target}\",action=\"{action}\"}} 1");
    assert!(metrics.contains(&labels), "{metrics}");
    assert_documented(&metrics, "docs/monitoring.md");
}

async fn take_over(world: &World, holder: &str) {
    let change = json!({"spec": {"holderIdentity": holder, "acquireTime": "2026-01-01T13:00:00.000000Z"}});
    let leases = leases(world);
    let patch = Patch::Merge(&change);
    leases
        .patch("controller", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Takes the Lease over, and waits until the status shows a stop that began once the operator had taken it again.
/// Returns false if no status shows it: one that is written only after the stop equals the one before.
async fn stops_again(world: &World) -> bool {
    let asked = (Instant::now(), Timestamp::now());
    take_over(world, "web-1_b").await;
    let again = held(world, "redlock.dev/test").await;
    println!("taken again after {:?}", asked.0.elapsed());
    let acquired: Timestamp = again["spec"]["acquireTime"].as_str().unwrap().parse().unwrap();
    assert!(acquired > asked.1, "a new hold: {again:#}");
    // The time of a transition has no fractions of a second.
    let earliest = acquired + STOP - Duration::from_secs(1);
    let anew = world.lock_status("report", "has waited again", |status| {
        is_stopped(status) && enforced_since(status) > earliest
    });
    let has_waited = timeout(STATUS, anew).await.is_ok();
    assert!(!has_waited || asked.0.elapsed() >= STOP, "the wait begins anew");
    has_waited
}

/// Returns the time of the last transition of the condition Enforced.
fn enforced_since(status: &Value) -> Timestamp {
    let conditions = status["conditions"].as_array().unwrap();
    let enforced = conditions
        .iter()
        .find(|condition| condition["type"] == "Enforced");
    let since = &enforced.unwrap()["lastTransitionTime"];
    since.as_str().unwrap().parse().unwrap()
}

/// Returns the name of the release, as the chart gives it to the operator.
fn release(world: &World) -> String {
    format!("{}.{SERVICE_ACCOUNT}", world.namespace.name())
}

/// Returns the holder identity of an operator that knows its release.
fn own(world: &World) -> String {
    format!("redlock.dev/test/{}", release(world))
}

async fn fenced(world: &World) -> Operator {
    apply_template(world, "lease-fence", &["--set=admission.leaseFence.enabled=true"]);
    world
        .operator_with("replica-1", |command| {
            command
                .env("REDLOCK_LEASE_FENCE", "true")
                .env("REDLOCK_RELEASE", release(world));
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_holds_the_lease_on_standby_and_frees_it_where_the_lock_is_held() {
    let world = world().await;
    world.apply(&held_by("web-0_a"));
    let operator = fenced(&world).await;
    let asked = Instant::now();
    world.apply(&target(STANDBY));
    let taken = held(&world, &own(&world)).await;
    println!("taken {:?} after the lock was applied", asked.elapsed());
    let spec = &taken["spec"];
    assert_eq!(
        (&spec["leaseDurationSeconds"], &spec["leaseTransitions"]),
        (&json!(FOR_GOOD), &json!(4))
    );
    let annotations = &taken["metadata"]["annotations"];
    assert_eq!(annotations["redlock.dev/former-lease-duration-seconds"], "15");
    assert_eq!(annotations["redlock.dev/former-holder"], "web-0_a");
    let status = stopped(&world).await;
    let since: Timestamp = spec["acquireTime"].as_str().unwrap().parse().unwrap();
    let passed = Timestamp::now().duration_since(since);
    println!("{} after {passed:#}", message(&status, "Enforced"));
    assert!(
        passed.unsigned_abs() >= STOP,
        "a leader may lead for the stop time after the operator took its Lease"
    );

    enforced_target(&operator, "controller", "Lease");

    // The lock is held here: candidates may lead.
    let asked = Instant::now();
    world.apply(&target(""));
    let free = held(&world, "").await;
    println!("free {:?} after the lock was applied", asked.elapsed());
    assert_eq!(free["spec"]["leaseDurationSeconds"], 1);
    assert!(free["metadata"]["annotations"]["redlock.dev/former-holder"].is_null());
    take_over(&world, "web-1_b").await;
    world
        .lock_status("report", "runs", |status| {
            status["role"] == "Active" && condition(status, "Enforced").0 == "True"
        })
        .await;
    held(&world, "web-1_b").await;

    // If the Lease does not exist, the operator creates and holds it.
    world.kubectl(&["delete", "lease", "controller"]);
    world.apply(&target(STANDBY));
    held(&world, &own(&world)).await;
    stopped(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_that_another_writer_takes_is_taken_again_and_the_wait_begins_anew() {
    let world = world().await;
    // Without the policy, the operator warns and renews its record.
    let _operator = world.operator("replica-1").await;
    world.apply(&held_by("web-0_a"));
    world.apply(&target(STANDBY));
    stopped(&world).await;
    let warning = world.event_message("report", "TargetNotSafe").await;
    assert!(
        warning.contains("admission.leaseFence.enabled: true"),
        "{warning}"
    );
    let first = held(&world, "redlock.dev/test").await;
    eventually(BOUND, "the record is renewed", async || {
        let now = held(&world, "redlock.dev/test").await;
        let spec = &now["spec"];
        assert_eq!(spec["acquireTime"], first["spec"]["acquireTime"]);
        if spec["renewTime"] == first["spec"]["renewTime"] {
            Err(now)
        } else {
            Ok(())
        }
    })
    .await;

    let mut repeats = 0..2;
    while !stops_again(&world).await {
        assert!(repeats.next().is_some(), "no status shows the wait");
    }
    let event = world.event_message("report", "StoppedAgain").await;
    assert!(event.contains("was taken by \"web-1_b\""), "{event}");

    let leases = leases(&world);
    leases
        .delete("controller", &DeleteParams::default())
        .await
        .unwrap();
    held(&world, "redlock.dev/test").await;
    stopped(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_the_terminating_pod_of_the_former_leader() {
    let world = world().await;
    world.kubectl(&["create", "serviceaccount", "default"]);
    let pods: Api<Pod> = Api::namespaced(world.plane.admin(), world.namespace.name());
    world.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, finalizers: [test.example/stays]}\nspec: {containers: [{name: a, image: a}]}\n",
    );
    pods.delete("web-0", &DeleteParams::default()).await.unwrap();
    world.apply(&held_by("web-0_a"));
    let _operator = fenced(&world).await;
    world.apply(&target(STANDBY));
    held(&world, &own(&world)).await;
    let status = world
        .lock_status("report", "names the pod", |status| {
            condition(status, "Enforced").1 == "StopLate"
        })
        .await;
    let text = message(&status, "Enforced");
    assert!(
        text.contains("pod web-0, the former leader, terminates"),
        "{text}"
    );
    assert_ne!(status["role"], "Standby");
    let change = json!({"metadata": {"finalizers": null}});
    pods.patch("web-0", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    stopped(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_refuses_all_but_the_operator_to_free_a_lease_on_standby() {
    let world = world().await;
    let verbs = "get,list,create,update,patch,delete";
    grant(
        &world,
        "alice",
        "leases",
        verbs,
        "leases.coordination.k8s.io",
        &[],
    );
    world.apply(&held_by("web-0_a"));
    let _operator = fenced(&world).await;
    world.apply(&target(STANDBY));
    stopped(&world).await;
    let patched = |change: &str| {
        kubectl(
            &world,
            "alice",
            &["patch", "lease", "controller", "--type=merge", "--patch", change],
        )
    };
    let reason = ["only the operator may free it"];
    eventually(BOUND, "the policy is in effect", async || {
        let (worked, output) = patched(r#"{"spec": {"leaseDurationSeconds": 7}}"#);
        if worked { Err(output) } else { Ok(()) }
    })
    .await;
    stopped(&world).await;
    for change in [
        r#"{"spec": {"holderIdentity": ""}}"#,
        r#"{"spec": {"leaseDurationSeconds": 1}}"#,
        r#"{"spec": {"renewTime": "2026-01-01T12:00:00.000000Z"}}"#,
        r#"{"spec": null}"#,
    ] {
        refused(patched(change), &reason);
    }
    refused(
        kubectl(&world, "alice", &["delete", "lease", "controller"]),
        &reason,
    );
    accepted(patched(r#"{"metadata": {"labels": {"team": "a"}}}"#));
    world.apply(&target(""));
    held(&world, "").await;
    accepted(patched(
        r#"{"spec": {"holderIdentity": "web-1_b", "leaseDurationSeconds": 15}}"#,
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_on_leases_are_named() {
    let world = World::small(3).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 15"));
    let _operator = world.operator("replica-1").await;
    world.apply(&target(STANDBY));
    let status = world
        .lock_status("report", "is forbidden", |status| {
            condition(status, "Enforced").1 == "Forbidden"
        })
        .await;
    let text = message(&status, "Enforced");
    assert!(
        text.contains("targetKinds: [{group: \"coordination.k8s.io\", resource: leases}]"),
        "{text}"
    );
}
