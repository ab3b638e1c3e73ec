//! Tests `redlock drain` with the rights of the chart's hook: the last replica stops the workloads under the locks.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{chart, run_helm};
use crate::fixture::{BOUND, Operator, SERVICE_ACCOUNT};
use crate::program::Ran;
use crate::targets::{self, GATE, Gates, guarded};
use crate::world::{World, redlock_as};
use redlock_testkit::eventually;

const SELECTOR: &str = "app.kubernetes.io/component=operator";
/// Keeps a pod until its process has ended, as a kubelet does.
const PROCESS: &str = r#"{"metadata": {"finalizers": ["test.example/process"]}}"#;
const READY: &str =
    r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#;

/// Applies one rendered template of the chart, without Jobs: the test runs their commands itself.
fn apply(world: &World, template: &str) {
    let (chart, show) = (chart(), format!("--show-only=templates/{template}"));
    let namespace = format!("--namespace={}", world.namespace.name());
    let arguments = [
        "template",
        SERVICE_ACCOUNT,
        chart.to_str().unwrap(),
        &namespace,
        &show,
    ];
    let rendered = run_helm(&world.plane, &arguments).unwrap();
    let documents = rendered
        .split("\n---\n")
        .filter(|text| !text.contains("kind: Job"));
    world.apply(&documents.collect::<Vec<_>>().join("\n---\n"));
}

fn pods(world: &World) -> Vec<Value> {
    let found = world.kubectl(&["get", "pods", "--selector", SELECTOR, "--output=json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    found["items"].as_array().unwrap().clone()
}

fn is_terminating(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn patch(world: &World, pod: &str, more: &[&str], patch: &str) {
    world.kubectl(&[&["patch", "pod", pod, "--type=merge", "--patch", patch], more].concat());
}

/// Starts one replica of the operator behind each pod of its Deployment.
async fn replicas(world: &World) -> Vec<Operator> {
    apply(world, "deployment.yaml");
    let pods = eventually(BOUND, "two pods are there", async || {
        let pods = pods(world);
        if pods.len() == 2 { Ok(pods) } else { Err(pods) }
    });
    let mut operators = Vec::new();
    for pod in pods.await {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let operator = world.operator_with(&name, |command| {
            command.env("REDLOCK_POD_SELECTOR", SELECTOR);
        });
        let operator = operator.await;
        operator.wait_ready();
        patch(world, &name, &[], PROCESS);
        patch(world, &name, &["--subresource=status"], READY);
        operators.push(operator);
    }
    operators
}

async fn drain(world: &World, kubeconfig: &Path) -> tokio::task::JoinHandle<Ran> {
    drain_with(world, kubeconfig, &[])
}

fn drain_with(
    world: &World,
    kubeconfig: &Path,
    more: &'static [&'static str],
) -> tokio::task::JoinHandle<Ran> {
    let (kubeconfig, namespace) = (kubeconfig.to_owned(), world.namespace.name().to_owned());
    spawn_blocking(move || {
        let deployment = ["--deployment", SERVICE_ACCOUNT, "--timeout", "50s"];
        redlock_as(
            &kubeconfig,
            &[&["drain", "-n", &namespace], &deployment[..], more].concat(),
            &[],
        )
    })
}

async fn kubeconfig(world: &World) -> PathBuf {
    apply(world, "drain.yaml");
    let account = format!("{SERVICE_ACCOUNT}-drain");
    world
        .plane
        .service_account_kubeconfig(world.namespace.name(), &account, None)
        .await
}

fn finalizers(world: &World) -> String {
    world.kubectl(&[
        "get",
        "leaderlock",
        "report",
        "--output=jsonpath={.metadata.finalizers}",
    ])
}

fn of_the_quorum(world: &World) -> String {
    let path = "--output=jsonpath={.metadata.finalizers}";
    world.kubectl(&["get", "redisquorum", "default", path])
}

/// Ends the replica behind each pod that is deleted, as a kubelet does, until none is left.
async fn end_deleted(world: &World, gates: &Gates, mut operators: Vec<Operator>) {
    while !operators.is_empty() {
        let terminating = eventually(BOUND, "a pod is deleted", async || {
            let pods = pods(world);
            let terminating = pods
                .iter()
                .find(|pod| is_terminating(pod))
                .map(|pod| pod["metadata"]["name"].clone());
            terminating.ok_or(pods)
        });
        let name = terminating.await.as_str().unwrap().to_owned();
        // On a slow machine, a lease expires before the survivor takes the lock: it starts the gate again.
        eventually(BOUND, "a replica holds the lock", async || {
            let locks: Vec<Value> = operators.iter().map(|one| one.lock("report")).collect();
            let held = locks.iter().any(|lock| lock["role"] == "Active");
            if held { Ok(()) } else { Err(locks) }
        })
        .await;
        gates.until("gate", 1).await;
        let at = operators
            .iter()
            .position(|operator| operator.name == name)
            .unwrap();
        let mut operator = operators.remove(at);
        operator.child.signal(Signal::SIGTERM);
        let (status, _) = operator.child.wait(BOUND);
        assert!(status.success(), "{status}");
        let log = operator.child.stderr();
        let stopped = log
            .iter()
            .any(|line| line.contains("the operator stops the targets first"));
        assert!(
            !stopped || operators.is_empty(),
            "stopped though a sibling was ready"
        );
        patch(world, &name, &[], r#"{"metadata": {"finalizers": null}}"#);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_stops_the_workloads_and_no_finalizer_remains() {
    let world = targets::world().await;
    let gates = Gates::of(&world);
    world.apply(GATE);
    let operators = replicas(&world).await;
    world.apply(&guarded("report", "gate"));
    world
        .lock_status("report", "is active", |status| status["role"] == "Active")
        .await;
    gates.until("gate", 1).await;
    assert!(finalizers(&world).contains("redlock.dev/targets"));
    eventually(BOUND, "the quorum is kept", async || {
        let all = of_the_quorum(&world);
        if all.contains("redlock.dev/in-use-") {
            Ok(())
        } else {
            Err(all)
        }
    })
    .await;

    let kubeconfig = kubeconfig(&world).await;
    let draining = drain(&world, &kubeconfig).await;
    end_deleted(&world, &gates, operators).await;
    draining.await.unwrap().expect(0, &["last replica", "drained"]);
    assert_eq!(gates.replicas("gate").await, 0);
    assert_eq!(finalizers(&world), "");
    assert_eq!(of_the_quorum(&world), "", "no operator would take it off");

    // A second drain without any replica has the same result, at once.
    drain(&world, &kubeconfig)
        .await
        .await
        .unwrap()
        .expect(0, &["drained"]);
    drain_reports_workloads_that_no_replica_stopped(&world, &kubeconfig).await;
}

/// An operator that was killed stopped nothing: the drain reports that, and the object can be deleted nevertheless.
async fn drain_reports_workloads_that_no_replica_stopped(world: &World, kubeconfig: &Path) {
    let mut killed = world.operator("killed").await;
    eventually(BOUND, "it has the lock again", async || {
        let lock = killed.lock("report");
        if lock["role"] == "Active" && !finalizers(world).is_empty() {
            Ok(())
        } else {
            Err(lock)
        }
    })
    .await;
    killed.child.kill();
    let left = format!(
        "LeaderLock {}/report: no replica confirmed",
        world.namespace.name()
    );
    drain(world, kubeconfig).await.await.unwrap().expect(1, &[&left]);
    assert_eq!(finalizers(world), "");
    world.kubectl(&["delete", "deployment", SERVICE_ACCOUNT]);
    let missing = format!("there is no Deployment {SERVICE_ACCOUNT}");
    drain(world, kubeconfig)
        .await
        .await
        .unwrap()
        .expect(78, &[&missing, "--gone"]);
    drain_with(world, kubeconfig, &["--gone"])
        .await
        .unwrap()
        .expect(0, &["drained"]);
}
