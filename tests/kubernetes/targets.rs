//! Tests the targets of a lock: a kind of the tests with a scale subresource, and no pods behind it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::blind_replica::answering_sibling;
use crate::fixture::{BOUND, Operator};
use crate::world::{World, condition, lasting, lock, throughout};
use redlock_testkit::eventually;

pub const GATE_KIND: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gates.test.example}
spec:
  group: test.example
  scope: Namespaced
  names: {plural: gates, kind: Gate}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
";
pub const GATE: &str =
    "apiVersion: test.example/v1\nkind: Gate\nmetadata: {name: gate}\nspec: {replicas: 1}\n";
const TARGET: &str = ", targets: [{name: gate, action: Scale, stopSeconds: 1, \
                      ref: {apiVersion: test.example/v1, kind: Gate, name: gate}}]";

/// Permits locks to switch gates in this world.
pub async fn install(world: &World) {
    world.grant_targets("test.example", "gates").await;
    world.define(GATE_KIND).await;
}

pub async fn world() -> World {
    world_with(str::to_owned).await
}

/// The same after `change` has changed the manifest of the quorum.
pub async fn world_with(change: impl FnOnce(&str) -> String) -> World {
    let world = World::new(3).await;
    install(&world).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&change(&quorum));
    world
}

pub fn guarded(name: &str, gate: &str) -> String {
    lock(name, &TARGET.replace("name: gate}", &format!("name: {gate}}}")))
}

pub struct Gates(Api<DynamicObject>);

impl Gates {
    pub fn of(world: &World) -> Self {
        Self::at(world, "v1")
    }

    /// Returns the gates in another version of the kind.
    pub fn at(world: &World, version: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("test.example", version, "Gate"));
        Self(Api::namespaced_with(
            world.plane.admin(),
            world.namespace.name(),
            &resource,
        ))
    }

    pub async fn replicas(&self, name: &str) -> i64 {
        let gate = self.0.get(name).await.unwrap();
        gate.data["spec"]["replicas"].as_i64().unwrap_or(0)
    }

    /// Returns the generation, which grows with every write of the spec.
    pub async fn generation(&self, name: &str) -> i64 {
        let gate = self.0.get(name).await.unwrap();
        gate.metadata.generation.unwrap()
    }

    pub async fn until(&self, name: &str, wanted: i64) {
        eventually(BOUND, &format!("{name} has {wanted} replicas"), async || {
            let found = self.replicas(name).await;
            if found == wanted { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Sets the selector of its pods, as its controller would.
    pub async fn select(&self, name: &str, selector: &str) {
        let status = json!({"status": {"selector": selector}});
        self.0
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    /// Scales like a user of `kubectl scale`, or a tool, under this manager.
    pub async fn scale(&self, name: &str, replicas: i64, manager: &str) {
        let parameters = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let scale = json!({"spec": {"replicas": replicas}});
        let patch = Patch::Merge(&scale);
        self.0.patch_scale(name, &parameters, &patch).await.unwrap();
    }

    /// Sets the number of pods, as its controller would report it.
    pub async fn count(&self, name: &str, replicas: i64) {
        let status = json!({"status": {"replicas": replicas}});
        self.0
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
}

pub fn siblings(command: &mut std::process::Command) {
    command.args(["--pod-selector", "app=redlock"]);
}

/// Creates a ready pod of this replica, as the kubelet would report it.
pub fn ready_pod(world: &World, replica: &Operator) {
    ready_pod_at(world, &replica.name, replica.port());
}

/// The same for a replica that listens on this port.
pub fn ready_pod_at(world: &World, name: &str, port: u16) {
    running_pod(world, name, port, true);
}

/// Creates a pod of a replica that listens on this port, with its readiness as the kubelet reports it.
pub fn running_pod(world: &World, name: &str, port: u16, ready: bool) {
    world.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: redlock}}}}\n\
         spec: {{nodeName: elsewhere, containers: [{{name: operator, image: redlock, ports: [{{name: http, containerPort: {port}}}]}}]}}\n"
    ));
    let ready = if ready { "True" } else { "False" };
    let patch = json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": ready}]}});
    let patch = patch.to_string();
    world.kubectl(&[
        "patch",
        "pod",
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ]);
}

pub async fn replica(world: &World, name: &str) -> Operator {
    let kubeconfig = world.kubeconfig(None).await;
    Operator::start_with(&kubeconfig, world.namespace.name(), name, |command| {
        siblings(command);
        command.env("REDLOCK_TARGET_FIELDS", "gates.test.example:/spec/replicas");
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_runs_while_the_lock_is_held_and_is_stopped_before_it_is_released() {
    let world = world_with(lasting).await;
    let gates = Gates::of(&world);
    let mut operator = replica(&world, "replica-1").await;
    world.apply(GATE);
    let report = lasting(&guarded("report", "gate"));
    world.apply(&report);
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;
    let status = world
        .lock_status("report", "is active", |status| {
            status["role"] == "Active" && condition(status, "Enforced").0 == "True"
        })
        .await;
    assert_eq!(
        status["targets"],
        json!([{"name": "gate", "desired": "Active", "observed": "Active"}])
    );
    assert!(
        world
            .kubectl(&["get", "ll", "report", "-o", "jsonpath={.metadata.finalizers}"])
            .contains("redlock.dev/targets")
    );

    // A target that is no longer declared is stopped, since another cluster may still declare it. It is
    // started when it is declared again.
    world.apply(&report.replace(TARGET, ""));
    gates.until("gate", 0).await;
    gates.count("gate", 0).await;
    eventually(BOUND, "the finalizer goes", async || {
        let finalizers = world.kubectl(&["get", "ll", "report", "-o", "jsonpath={.metadata.finalizers}"]);
        if finalizers.contains("redlock.dev") {
            Err(finalizers)
        } else {
            Ok(())
        }
    })
    .await;
    world.apply(&report);
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;

    // On deletion, the target is stopped, and the lock is released and removed only when no pod runs.
    world.kubectl(&["delete", "ll", "report", "--wait=false"]);
    gates.until("gate", 0).await;
    let held = operator.locks().iter().any(|lock| lock["role"] == "Active");
    assert!(
        held,
        "released before its target was stopped: {:?}",
        operator.locks()
    );
    gates.count("gate", 0).await;
    world.kubectl(&["wait", "--for=delete", "ll/report", "--timeout=60s"]);
    eventually(BOUND, "the lock is released", async || {
        if operator.locks().is_empty() {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;

    // While no master answers, the lock is also deleted within stop + lease.
    world.apply(&report);
    gates.until("gate", 1).await;
    for master in &world.masters {
        master.pause().unwrap();
    }
    let asked = Instant::now();
    world.kubectl(&["delete", "ll", "report", "--wait=false"]);
    world.kubectl(&["wait", "--for=delete", "ll/report", "--timeout=60s"]);
    println!("deleted without any master within {:?}", asked.elapsed());
    assert_eq!(gates.replicas("gate").await, 0);
    for master in &world.masters {
        master.resume().unwrap();
    }

    // A replica without siblings stops its workloads before it ends.
    world.apply(&report);
    gates.until("gate", 1).await;
    operator.child.signal(Signal::SIGTERM);
    let (exit, _) = operator.child.wait(BOUND);
    assert!(exit.success(), "{exit}");
    assert_eq!(gates.replicas("gate").await, 0);
    let finalizers = world.kubectl(&["get", "ll", "report", "-o", "jsonpath={.metadata.finalizers}"]);
    assert!(!finalizers.contains("redlock.dev"), "{finalizers}");
}

/// Returns, for each lock, the time of the last log line of a replica with this message.
fn logged(replica: &Operator, message: &str) -> HashMap<String, Timestamp> {
    let lines = replica.child.stderr().into_iter();
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    events
        .filter(|event| event["message"] == message)
        .map(|event| {
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            (text("lock"), text("timestamp").parse().unwrap())
        })
        .collect()
}

/// Waits until the replica is active for this number of locks.
pub async fn has_every_lock(replica: &Operator, locks: usize) {
    eventually(BOUND, "the replica has every lock", async || {
        let all = replica.locks();
        let held = all.iter().filter(|lock| lock["role"] == "Active").count();
        if held == locks { Ok(()) } else { Err(held) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_passes_every_lock_to_a_sibling_and_no_target_notices() {
    // More locks to measure, as in docs/kubernetes.md.
    let locks: usize = std::env::var("REDLOCK_LOCKS").map_or(20, |count| count.parse().unwrap());
    let world = world_with(lasting).await;
    let gates = Gates::of(&world);
    let mut first = replica(&world, "replica-1").await;
    for index in 0..locks {
        world.apply(&GATE.replace("name: gate", &format!("name: gate-{index}")));
        let lock = guarded(&format!("lock-{index}"), &format!("gate-{index}"));
        world.apply(&lasting(&lock));
    }
    has_every_lock(&first, locks).await;
    let second = replica(&world, "replica-2").await;
    ready_pod(&world, &first);
    ready_pod(&world, &second);
    second.wait_ready();
    let tokens = |operator: &Operator| -> Vec<u64> {
        let mut locks = operator.locks();
        locks.sort_by_key(|lock| lock["name"].as_str().unwrap().to_owned());
        locks
            .iter()
            .map(|lock| lock["fencingToken"].as_u64().unwrap_or(0))
            .collect()
    };
    let before = tokens(&first);
    let version = |name: String| {
        let gates = &gates;
        async move { gates.0.get(&name).await.unwrap().metadata.generation }
    };
    let mut generations = Vec::new();
    for index in 0..locks {
        generations.push(version(format!("gate-{index}")).await);
    }
    // The first replica learns by its watch that its sibling is ready. Nothing shows when.
    throughout(Duration::from_secs(3), || ()).await;
    let started = Instant::now();
    first.child.signal(Signal::SIGTERM);
    has_every_lock(&second, locks).await;
    println!(
        "{locks} locks passed on within {:?} of SIGTERM, the read included",
        started.elapsed()
    );
    let (exit, took) = first.child.wait(BOUND);
    assert!(exit.success(), "{exit} after {took:?}");
    let given_up = logged(&first, "lease given up");
    let gap = |(lock, acquired): (String, Timestamp)| {
        Some(acquired.duration_since(*given_up.get(&lock)?).as_secs_f64() * 1e3)
    };
    let gaps = eventually(BOUND, "replica-2 has reported every lock", async || {
        let acquired = logged(&second, "lease acquired").into_iter();
        let gaps: Vec<f64> = acquired.filter_map(gap).collect();
        if gaps.len() >= locks {
            Ok(gaps)
        } else {
            Err(gaps.len())
        }
    });
    let mut gaps = gaps.await;
    gaps.sort_by(f64::total_cmp);
    let (p50, p99) = (gaps[gaps.len() / 2], gaps[gaps.len() * 99 / 100]);
    println!(
        "unheld: p50 {p50:.1} ms, p99 {p99:.1} ms, max {:.1} ms (n = {})",
        gaps[gaps.len() - 1],
        gaps.len()
    );
    for (before, after) in before.iter().zip(tokens(&second)) {
        assert!(*before < after, "{before} then {after}");
    }
    // No replica wrote to a target: neither stopped nor started.
    for (index, before) in generations.into_iter().enumerate() {
        assert_eq!(version(format!("gate-{index}")).await, before, "gate-{index}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_wins_as_soon_as_it_starts_does_not_wait_for_its_own_cluster() {
    let world = world().await;
    let gates = Gates::of(&world);
    let mut first = replica(&world, "replica-1").await;
    world.apply(GATE);
    // Longer than any wait of this test.
    let lock = guarded("report", "gate").replace("spec: {", "spec: {takeoverDelaySeconds: 600, ");
    world.apply(&lock);
    world
        .lock_status("report", "is active", |status| {
            status["role"] == "Active" && status["holderIdentity"] == "replica-1"
        })
        .await;
    // A sibling answers but ends before it can take the lock: the lock is reserved for its cluster, and free when a
    // replica starts. It shows a majority, which no replica has before the masters are initialised.
    let sibling = answering_sibling("replica-2").await;
    ready_pod_at(&world, "replica-2", sibling);
    first.child.signal(Signal::SIGTERM);
    first.child.wait(BOUND);
    assert_eq!(gates.replicas("gate").await, 1, "left to the sibling");
    let _second = replica(&world, "replica-2").await;
    world
        .lock_status("report", "is active again", |status| {
            status["role"] == "Active" && status["holderIdentity"] == "replica-2"
        })
        .await;
}
