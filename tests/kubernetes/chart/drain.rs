//! Tests `redlock drain` with the rights of the chart's hook: the last replica stops the workloads under the locks.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{chart, may_drain, run_helm};
use crate::fixture::{BOUND, Operator, SERVICE_ACCOUNT};
use crate::program::Ran;
use crate::targets::{self, GATE, Gates, guarded};
use crate::world::{World, lasting, redlock_as};
use redlock_testkit::{eventually, free_port};

const SELECTOR: &str = "app.kubernetes.io/component=operator";
/// Keeps a pod until its process has ended, as a kubelet does.
const PROCESS: &str = r#"{"metadata": {"finalizers": ["test.example/process"]}}"#;
const DELETED_FIRST: &str = r#"{"metadata": {"finalizers": ["test.example/process"],
    "annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}"#;
const READY: &str =
    r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#;
const REACHABLE: &str = r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}"#;
/// The time for which a replica that ends waits for the answers of its siblings.
const PATIENCE: SignedDuration = SignedDuration::from_secs(1);

/// Applies one rendered template of the chart, without Jobs: the test runs their commands itself.
fn apply(world: &World, template: &str, change: impl Fn(&str) -> String) {
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
    world.apply(&change(&documents.collect::<Vec<_>>().join("\n---\n")));
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

/// Starts one replica of the operator behind each pod of its Deployment. The first one holds the lock and is deleted
/// first, and the second one can be asked at the address of its pod.
async fn replicas(world: &World) -> Vec<Operator> {
    let port = free_port().unwrap();
    apply(world, "deployment.yaml", |text| {
        text.replace("containerPort: 8080", &format!("containerPort: {port}"))
    });
    let pods = eventually(BOUND, "two pods are there", async || {
        let pods = pods(world);
        if pods.len() == 2 { Ok(pods) } else { Err(pods) }
    });
    let pods = pods.await;
    let start = async |pod: &Value, port: u16, metadata: &str, status: &str| {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let kubeconfig = world.kubeconfig(None).await;
        let operator = Operator::start_at(port, &kubeconfig, world.namespace.name(), name, |command| {
            command.env("REDLOCK_POD_SELECTOR", SELECTOR);
        });
        operator.wait_ready();
        patch(world, name, &[], metadata);
        patch(world, name, &["--subresource=status"], status);
        operator
    };
    let holder = start(&pods[0], free_port().unwrap(), DELETED_FIRST, READY).await;
    world.apply(&lasting(&guarded("report", "gate")));
    holder.until_role("report", "Active").await;
    let sibling = start(&pods[1], port, PROCESS, REACHABLE).await;
    sibling.until_holder("report", &holder.name).await;
    vec![holder, sibling]
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
    apply(world, "drain.yaml", str::to_owned);
    may_drain(&world.plane, world.namespace.name()).await;
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

/// Returns the time that the replica waited for its siblings if it stopped the targets at its end. A sibling on a busy
/// machine may not answer in time.
fn waited_before_a_stop(ended: &Operator) -> Option<SignedDuration> {
    let at = |message: &str| -> Option<Timestamp> {
        let mut lines = ended.child.stderr().into_iter();
        let line = lines.find(|line| line.contains(message))?;
        let line: Value = serde_json::from_str(&line).unwrap();
        Some(line["timestamp"].as_str().unwrap().parse().unwrap())
    };
    let asked = at("the operator stops and releases every lock")?;
    Some(at("the operator stops the targets first")?.duration_since(asked))
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
        // On a slow machine, a lease expires before the other replica takes the lock; that replica then starts the
        // gate again.
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
        let waited = waited_before_a_stop(&operator);
        assert!(
            operators.is_empty() || waited.is_none_or(|waited| waited >= PATIENCE),
            "stopped though a sibling was ready, after {waited:?}"
        );
        patch(world, &name, &[], r#"{"metadata": {"finalizers": null}}"#);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_stops_the_workloads_and_no_finalizer_remains() {
    let world = targets::world_with(lasting).await;
    let gates = Gates::of(&world);
    world.apply(GATE);
    let operators = replicas(&world).await;
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
