//! Measures node fencing: agent and guardian of a node with 50 pods, and the calls of 50 agents to masters.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use redlock::api::LeaderLock;
use redlock_testkit::{ChildGuard, eventually, free_port};
use serde_json::{Value, json};

use crate::common::cgroups::own;
use crate::common::http;
use crate::common::sandbox::start_container;
use crate::fixture::{FENCING, Operator, Options};
use crate::node::{AGENT_ACCOUNT, Node};
use crate::stage::{BOUND, LEASE, MASTERS, Stage, name};
use crate::table;
use crate::usage::{Usage, memory};

const LOCKS: usize = 10;
const PODS: usize = 50;
const AGENTS: usize = 50;
const STEADY: Duration = Duration::from_secs(60);

/// A node with agent and guardian.
struct Fenced {
    agent: ChildGuard,
    guardian: ChildGuard,
    containers: Vec<ChildGuard>,
    node: Node,
}

impl Fenced {
    async fn start(kubeconfig: &Path, own: &Path) -> Self {
        let node = Node::below(own);
        let guardian = node.guardian();
        let port = free_port().unwrap();
        let agent = node.agent("test", kubeconfig, port);
        eventually(BOUND, "the node agent is ready", async || {
            match http::get(port, "/readyz") {
                Ok((200, _)) => Ok(()),
                other => Err(other),
            }
        })
        .await;
        Self {
            agent,
            guardian,
            containers: Vec::new(),
            node,
        }
    }

    /// Creates a pod for each of these numbers, and starts it once the agent permits it.
    async fn run(&mut self, stage: &Stage, numbers: impl Iterator<Item = usize>) {
        let api: Api<Pod> = Api::namespaced(stage.plane.admin(), stage.namespace.name());
        let mut pods = Vec::new();
        for number in numbers {
            let lock = name(number % LOCKS);
            let pod = json!({"metadata": {"name": format!("pod-{number}")}, "spec": pod_spec(&lock)});
            let pod = serde_json::from_value(pod).unwrap();
            let made = api.create(&PostParams::default(), &pod).await.unwrap().metadata;
            let (name, uid) = (made.name.unwrap(), made.uid.unwrap());
            pods.push((self.node.pod(stage.namespace.name(), &name, &uid), lock));
        }
        for started in join_all(pods.iter().map(|(pod, lock)| self.node.publish(pod, lock))).await {
            started.unwrap();
        }
        let program = ["sleep".as_ref(), "100000".as_ref()];
        let start = |(pod, _): &(crate::node::NodePod, String)| {
            start_container(&pod.sandbox.cgroup, "container-0", &program)
        };
        self.containers.extend(pods.iter().map(start));
    }
}

pub async fn run() {
    let own = own().expect("a cgroup of version 2, in which this user may create others");
    let stage = Stage::with(0, Options::default(), Duration::from_secs(60)).await;
    let namespace = stage.namespace.name();
    let rights = [
        FENCING,
        "targetKinds[0].group=apps",
        "targetKinds[0].resource=deployments",
    ];
    stage.plane.install_rbac_with(namespace, &rights).await;
    for index in 0..LOCKS {
        declare(&stage, &name(index)).await;
    }
    let operator = stage.operator("replica-0").await;
    operator.wait_ready();
    wait_active(&operator).await;
    let alone = calls_per_second(&stage).await;

    let kubeconfig = stage
        .plane
        .service_account_kubeconfig(namespace, AGENT_ACCOUNT, None)
        .await;
    let mut first = Fenced::start(&kubeconfig, &own).await;
    first.run(&stage, 0..PODS).await;
    table::begin(&format!(
        "node fencing, {LOCKS} locks of {} s, {MASTERS} masters",
        LEASE.as_secs()
    ));
    let processes = [("agent", first.agent.pid()), ("guardian", first.guardian.pid())];
    let usages = processes.map(|(_, pid)| Usage::begin(pid));
    let calls = calls_per_second(&stage).await - alone;
    for ((name, pid), usage) in processes.into_iter().zip(usages) {
        let (now, most) = memory(pid);
        let text = format!(
            "{:.2} % of a core, {now:.1} MiB (RSS), {most:.1} MiB at most",
            usage.percent()
        );
        table::row(&format!("node {name}, {PODS} pods"), &text, "");
    }
    let row = |what: &str, calls: f64| table::row(what, &format!("{calls:.2} a second"), "");
    row(
        &format!("script calls to each master, 1 agent, {PODS} pods"),
        calls,
    );

    let mut others = Vec::new();
    for number in 1..AGENTS {
        let mut other = Fenced::start(&kubeconfig, &own).await;
        other.run(&stage, std::iter::once(PODS + number)).await;
        others.push(other);
    }
    let server = Usage::begin(stage.servers[0].pid().unwrap());
    let calls = calls_per_second(&stage).await - alone;
    row(&format!("script calls to each master, {AGENTS} agents"), calls);
    row(
        "the same for 500 nodes, by calculation",
        calls / AGENTS as f64 * 500.0,
    );
    let text = format!("{:.2} % of a core", server.percent());
    table::row(
        &format!("one master, {AGENTS} agents and the operator"),
        &text,
        "",
    );
}

fn pod_spec(lock: &str) -> Value {
    json!({
        "containers": [{"name": "web", "image": "web", "volumeMounts": [
            {"name": "redlock", "mountPath": "/run/redlock", "readOnly": true},
        ]}],
        "volumes": [{"name": "redlock", "csi": {
            "driver": "fencing.redlock.dev", "readOnly": true, "volumeAttributes": {"lock": lock},
        }}],
    })
}

/// Creates a fenced lock and the Deployment that it switches.
async fn declare(stage: &Stage, name: &str) {
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(name)},
        },
    }))
    .unwrap();
    let deployments: Api<Deployment> = Api::namespaced(stage.plane.admin(), stage.namespace.name());
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    let lock: LeaderLock = serde_json::from_value(json!({
        "apiVersion": "redlock.dev/v1alpha1",
        "kind": "LeaderLock",
        "metadata": {"name": name},
        "spec": {"quorumRef": {"name": "default"}, "fencing": "Node", "targets": [{
            "name": "web", "action": "Scale", "stopSeconds": 12,
            "ref": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        }]},
    }))
    .unwrap();
    stage.api().create(&PostParams::default(), &lock).await.unwrap();
}

async fn wait_active(operator: &Operator) {
    eventually(BOUND, "every lock is held", async || {
        let held = operator
            .locks()
            .iter()
            .filter(|lock| lock["role"] == "Active")
            .count();
        if held == LOCKS { Ok(()) } else { Err(held) }
    })
    .await;
}

/// Returns the average number of script calls per second to each master, measured over [`STEADY`].
async fn calls_per_second(stage: &Stage) -> f64 {
    let (before, _) = stage.masters.calls().await;
    tokio::time::sleep(STEADY).await;
    let (after, _) = stage.masters.calls().await;
    (after - before) as f64 / STEADY.as_secs_f64() / MASTERS as f64
}
