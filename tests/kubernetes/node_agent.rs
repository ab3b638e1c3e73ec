//! Tests `redlock node-agent` and `redlock node-guardian` as processes, with the rights of the chart. The
//! test acts as the kubelet.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::json;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::common::cgroups::own_or_report;
use crate::common::http;
use crate::common::metrics::{documented, scraped};
use crate::common::sandbox::start_container;
use crate::fixture::{BOUND, FENCING};
use crate::node::{AGENT_ACCOUNT, Node, NodePod};
use crate::program::{redlock_with, until};
use crate::world::{World, lock, quorum_of, throughout};
use redlock_testkit::{ChildGuard, Mode, Proxy, eventually, free_port};

/// The node of a test, with its processes.
struct Guarded {
    agent: ChildGuard,
    _guardian: ChildGuard,
    port: u16,
    node: Node,
}

impl Guarded {
    async fn start(world: &World, own: &Path) -> Self {
        let node = Node::below(own);
        let kubeconfig = world
            .plane
            .service_account_kubeconfig(world.namespace.name(), AGENT_ACCOUNT, None)
            .await;
        let guardian = node.guardian();
        let port = free_port().unwrap();
        let mut agent = node.agent("test", &kubeconfig, port);
        agent.wait_for_line(BOUND, "all LeaderLocks are listed");
        Self {
            agent,
            _guardian: guardian,
            port,
            node,
        }
    }

    /// Returns a pod with this UID under the name `report-0`.
    fn pod(&self, world: &World, uid: &str) -> NodePod {
        self.node.pod(world.namespace.name(), "report-0", uid)
    }

    fn publish(&self, pod: &NodePod, lock: &str) -> JoinHandle<Result<(), Status>> {
        tokio::spawn(self.node.publish(pod, lock))
    }

    fn metrics(&self) -> String {
        http::get(self.port, "/metrics").unwrap().1
    }
}

fn events(pod: &NodePod) -> String {
    fs::read_to_string(pod.sandbox.cgroup.join("cgroup.events")).unwrap()
}

/// Creates a pod object, a Deployment, and the lock that switches the Deployment.
fn declare(world: &World) {
    let spec = json!({
        "containers": [{"name": "web", "image": "web", "volumeMounts": [
            {"name": "redlock", "mountPath": "/run/redlock", "readOnly": true},
        ]}],
        "volumes": [{"name": "redlock", "csi": {
            "driver": "fencing.redlock.dev", "readOnly": true, "volumeAttributes": {"lock": "report"},
        }}],
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "report-0"}, "spec": spec});
    world.apply(&pod.to_string());
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    });
    world.apply(&deployment.to_string());
    let target = ", targets: [{name: web, action: Scale, stopSeconds: 12, \
                  ref: {apiVersion: apps/v1, kind: Deployment, name: web}}]";
    world.apply(&lock("report", &format!(", fencing: Node{target}")));
    world.apply(&lock("plain", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_when_its_cluster_holds_the_lock_and_is_frozen_when_the_masters_are_gone() {
    let Some(own) = own_or_report("the node agent with an API server") else {
        return;
    };
    let world = World::new(3).await;
    let rights = [
        FENCING,
        "targetKinds[0].group=apps",
        "targetKinds[0].resource=deployments",
    ];
    world
        .plane
        .install_rbac_with(world.namespace.name(), &rights)
        .await;
    let mut proxies = Vec::new();
    for master in &world.masters {
        proxies.push(Proxy::to_port(master.port()).await);
    }
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let quorum = quorum_of("default", &urls, "  firstStart: Immediate\n");
    // A reservation for the holder's own cluster is longer than the lease.
    world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 10"));
    declare(&world);
    let node = Guarded::start(&world, &own).await;
    eventually(BOUND, "the node agent is ready", async || {
        match http::get(node.port, "/readyz").unwrap() {
            (200, _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(world.plane.admin(), world.namespace.name());
    let uid = pods.get("report-0").await.unwrap().metadata.uid.unwrap();
    let pod = node.pod(&world, &uid);
    for (lock, reason) in [
        ("other", "there is no lock \"other\""),
        ("plain", "its spec.fencing is not Node"),
    ] {
        let refused = node.publish(&pod, lock).await.unwrap().unwrap_err();
        assert!(refused.message().contains(reason), "{refused:?}");
    }
    let starts = node.publish(&pod, "report");
    throughout(Duration::from_secs(2), || {
        assert!(!starts.is_finished(), "no cluster holds the lock")
    })
    .await;
    let _operator = world.operator("replica-1").await;
    starts.await.unwrap().unwrap();
    assert_eq!(
        fs::read_to_string(pod.sandbox.target.join("lock")).unwrap(),
        format!("{}/report", world.namespace.name())
    );
    let program = ["sleep".as_ref(), "1000".as_ref()];
    let _container = start_container(&pod.sandbox.cgroup, "container-0", &program);
    deleted_pod_does_not_start(&world, &node).await;

    proxies.iter().for_each(|proxy| proxy.set(Mode::BlackHole));
    eventually(BOUND, "the pod is frozen", async || {
        let events = events(&pod);
        if events.contains("frozen 1") {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await;
    world.event_message("report-0", "Fenced").await;
    let of_pod = r#"pod="report-0",lock="report",state="frozen"} 1"#;
    let metrics = node.metrics();
    assert!(metrics.contains(of_pod), "{metrics}");
    let mut scraped = scraped(&metrics);
    scraped.retain(|name, _| name.starts_with("redlock_fence_"));
    assert_eq!(scraped, documented("docs/fencing.md"));
    released_by_hand(&world, &node, &pod).await;
    proxies.iter().for_each(Proxy::heal);
    let note = eventually(BOUND, "the pod is thawed or killed", async || {
        let thawed = world.event("report-0", "Thawed").await;
        match thawed.or(world.event("report-0", "FencedKilled").await) {
            Some(note) => Ok(note),
            None => Err(events(&pod)),
        }
    })
    .await;
    println!("{note}");
    ends_in_order(node);
}

/// No master answers, and an administrator lets the pod run.
async fn released_by_hand(world: &World, node: &Guarded, pod: &NodePod) {
    let state = node.node.state_dir();
    let fence = |arguments: &[&str]| {
        let state = ["--state-dir", state.to_str().unwrap()];
        redlock_with(&[&["fence"], arguments, &state].concat(), &[])
    };
    fence(&["list"]).expect(0, &["report-0", &pod.sandbox.uid, "frozen", "node agent: acts"]);
    // An agent on a busy machine may not take the request in time: the command then withdraws it.
    let release = ["release", "report-0", "--yes", "--reason", "INC-42"];
    let shown = [
        "is released",
        "the node agent carried it out",
        "the node guardian acknowledged it",
    ];
    until(|| fence(&release), 0, &shown);
    assert!(events(pod).contains("frozen 0"), "{}", events(pod));
    let note = world.event_message("report-0", "FenceReleased").await;
    assert!(note.contains("released by hand: INC-42"), "{note}");
    let metrics = node.metrics();
    assert!(
        metrics.contains(r#"lock="report",state="released"} 1"#),
        "{metrics}"
    );
}

/// Tests a pod whose object was deleted by force, but which its kubelet still knows.
async fn deleted_pod_does_not_start(world: &World, node: &Guarded) {
    let gone = node.pod(world, "00000000-0000-0000-0000-000000000001");
    let refused = node.publish(&gone, "report").await.unwrap().unwrap_err();
    assert!(refused.message().contains("the pod was deleted"), "{refused:?}");
    assert!(!gone.sandbox.target.exists(), "no volume is published");
}

fn ends_in_order(mut node: Guarded) {
    let sockets = node.node.sockets();
    assert!(sockets.csi_socket.exists() && sockets.registration_socket.exists());
    let pid = nix::unistd::Pid::from_raw(node.agent.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let (status, took) = node.agent.wait(BOUND);
    assert!(status.success(), "{status} after {took:?}");
    assert!(!sockets.csi_socket.exists() && !sockets.registration_socket.exists());
}
