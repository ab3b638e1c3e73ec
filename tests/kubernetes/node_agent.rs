//! Tests `redlock node-agent` and `redlock node-guardian` as processes, with the rights of the chart. The test is the kubelet.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use redlock_csi::messages::{AccessType, Empty, MountVolume, NodePublishVolumeRequest, VolumeCapability};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::{Request, Status, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::common::cgroups::{Made, own_or_report};
use crate::common::sandbox::{Sandbox, remove_pods, start_container};
use crate::common::metrics::{documented, scraped};
use crate::common::{forget_variables, http};
use crate::fixture::{BOUND, FENCING};
use crate::program::redlock_with;
use crate::world::{World, lock, quorum_of, throughout};
use redlock_testkit::{ChildGuard, Mode, Proxy, eventually, free_port};

/// A node agent holds a call for 90 s.
const CALL: Duration = Duration::from_secs(120);

/// The node of a test: its processes, and its cgroups below one of the test.
struct Node {
    agent: ChildGuard,
    _guardian: ChildGuard,
    port: u16,
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
    root: Made,
}

impl Node {
    async fn start(world: &World, own: &Path) -> Self {
        let root = Made::below(own, "node").unwrap();
        let folder = tempfile::tempdir().unwrap();
        // On tmpfs: a disk may hang for seconds.
        let state = tempfile::tempdir_in("/dev/shm").unwrap();
        for name in ["pods", "plugins_registry"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let account = "redlock-operator-node-agent";
        let kubeconfig = world
            .plane
            .service_account_kubeconfig(world.namespace.name(), account, None)
            .await;
        let command = |name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
            forget_variables(&mut command);
            command
                .arg(name)
                .arg("--state-dir")
                .arg(state.path().join("state"))
                .arg("--cgroup-root")
                .arg(&root.0)
                .arg("--kubelet-dir")
                .arg(folder.path());
            command
        };
        let guardian = ChildGuard::spawn("node-guardian", &mut command("node-guardian"));
        let port = free_port().unwrap();
        let mut agent = command("node-agent");
        agent
            .args(["--node-name", "node-1", "--cluster", "test"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .env("KUBECONFIG", kubeconfig);
        let mut agent = ChildGuard::spawn("node-agent", &mut agent);
        agent.wait_for_line(BOUND, "all LeaderLocks are listed");
        Self {
            agent,
            _guardian: guardian,
            port,
            folder,
            state,
            root,
        }
    }

    fn sandbox(&self, uid: &str) -> Sandbox {
        Sandbox::make(&self.root.0, self.folder.path(), uid)
    }

    /// A call of the kubelet for the pod `report-0`.
    fn publish(&self, world: &World, pod: &Sandbox, lock: &str) -> JoinHandle<Result<(), Status>> {
        let attributes = [
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.namespace", world.namespace.name()),
            ("csi.storage.k8s.io/pod.name", "report-0"),
            ("csi.storage.k8s.io/pod.uid", &pod.uid),
            ("lock", lock),
        ];
        let request = NodePublishVolumeRequest {
            volume_id: format!("csi-{}", pod.uid),
            target_path: pod.target.display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: true,
            secrets: HashMap::new(),
            volume_context: attributes.map(|(name, value)| (name.into(), value.into())).into(),
        };
        let socket = redlock_csi::Options::new("node-1", self.folder.path()).csi_socket;
        tokio::spawn(async move { timeout(CALL, call(socket, request)).await.unwrap() })
    }

    fn metrics(&self) -> String {
        http::get(self.port, "/metrics").unwrap().1
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        remove_pods(&self.root.0);
    }
}

async fn call(socket: PathBuf, request: NodePublishVolumeRequest) -> Result<(), Status> {
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let endpoint = endpoint.origin("http://localhost".parse().unwrap());
    let mut client = Grpc::new(endpoint.connect().await.map_err(unavailable)?);
    client.ready().await.map_err(unavailable)?;
    let path = "/csi.v1.Node/NodePublishVolume".parse().unwrap();
    let codec = ProstCodec::<NodePublishVolumeRequest, Empty>::default();
    client.unary(Request::new(request), path, codec).await.map(drop)
}

fn events(pod: &Sandbox) -> String {
    fs::read_to_string(pod.cgroup.join("cgroup.events")).unwrap()
}

/// A pod object and a Deployment that the lock switches.
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
    // A reservation of the own cluster is longer than the lease.
    world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 10"));
    declare(&world);
    let node = Node::start(&world, &own).await;
    eventually(BOUND, "the node agent is ready", async || {
        match http::get(node.port, "/readyz").unwrap() {
            (200, _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(world.plane.admin(), world.namespace.name());
    let uid = pods.get("report-0").await.unwrap().metadata.uid.unwrap();
    let pod = node.sandbox(&uid);
    for (lock, reason) in [
        ("other", "there is no lock \"other\""),
        ("plain", "its spec.fencing is not Node"),
    ] {
        let refused = node.publish(&world, &pod, lock).await.unwrap().unwrap_err();
        assert!(refused.message().contains(reason), "{refused:?}");
    }
    let starts = node.publish(&world, &pod, "report");
    throughout(Duration::from_secs(2), || {
        assert!(!starts.is_finished(), "no cluster holds the lock")
    })
    .await;
    let _operator = world.operator("replica-1").await;
    starts.await.unwrap().unwrap();
    assert_eq!(
        fs::read_to_string(pod.target.join("lock")).unwrap(),
        format!("{}/report", world.namespace.name())
    );
    let program = ["sleep".as_ref(), "1000".as_ref()];
    let _container = start_container(&pod.cgroup, "container-0", &program);
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
    world.told("report-0", "Fenced").await;
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
async fn released_by_hand(world: &World, node: &Node, pod: &Sandbox) {
    let state = node.state.path().join("state");
    let fence = |arguments: &[&str]| {
        let state = ["--state-dir", state.to_str().unwrap()];
        redlock_with(&[&["fence"], arguments, &state].concat(), &[])
    };
    fence(&["list"]).expect(0, &["report-0", &pod.uid, "frozen", "node agent: acts"]);
    let released = fence(&["release", "report-0", "--yes", "--reason", "INC-42"]);
    released.expect(
        0,
        &[
            "is released",
            "the node agent carried it out",
            "the node guardian acknowledged it",
        ],
    );
    assert!(events(pod).contains("frozen 0"), "{}", events(pod));
    let note = world.told("report-0", "FenceReleased").await;
    assert!(note.contains("released by hand: INC-42"), "{note}");
    let metrics = node.metrics();
    assert!(
        metrics.contains(r#"lock="report",state="released"} 1"#),
        "{metrics}"
    );
}

/// A pod whose object was deleted by force, which its kubelet still knows.
async fn deleted_pod_does_not_start(world: &World, node: &Node) {
    let gone = node.sandbox("00000000-0000-0000-0000-000000000001");
    let refused = node.publish(world, &gone, "report").await.unwrap().unwrap_err();
    assert!(refused.message().contains("the pod was deleted"), "{refused:?}");
    assert!(!gone.target.exists(), "no volume is published");
}

fn ends_in_order(mut node: Node) {
    let sockets = redlock_csi::Options::new("node-1", node.folder.path());
    assert!(sockets.csi_socket.exists() && sockets.registration_socket.exists());
    let pid = nix::unistd::Pid::from_raw(node.agent.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let (status, took) = node.agent.wait(BOUND);
    assert!(status.success(), "{status} after {took:?}");
    assert!(!sockets.csi_socket.exists() && !sockets.registration_socket.exists());
}
