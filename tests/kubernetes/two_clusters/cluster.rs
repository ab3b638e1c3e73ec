//! One of the two clusters: a control plane, its kubelet, two replicas of the operator, and the networks between them.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use nix::sys::signal::Signal;
use redlock::api::LeaderLock;
use redlock_testkit::RedisServers;
use serde_json::{Value, json};

use super::fenced_node::FencedNode;
use super::work::Work;
use crate::fixture::kubelet::Recorder;
use crate::fixture::{BOUND, Kubelet, Operator, PooledPlane, SERVICE_ACCOUNT};
use redlock_testkit::{Mode, Proxy, eventually, free_port};

/// The namespace of the operator; its pods belong to another node, and are these processes.
const OPERATOR: &str = "redlock";
/// The namespace of the lock and its target, the same in both clusters, so that it is one lock.
pub const NAMESPACE: &str = "billing";
pub const LOCK: &str = "report";
const REPLICAS: usize = 2;

/// A replica of the operator, and its connection to the API server.
pub struct Replica {
    pub name: String,
    pub api: Proxy,
    /// The port of all its processes, which its pod shows to its sibling.
    port: u16,
    cluster: &'static str,
    kubeconfig: PathBuf,
    running: Option<Operator>,
    /// The logs of its processes that have ended.
    log: Vec<String>,
}

impl Replica {
    pub fn is_ready(&self) -> bool {
        let ready = |operator: &Operator| operator.get("/readyz").0 == 200;
        self.running.as_ref().is_some_and(ready)
    }

    /// Returns the lock as the replica sees it; null if the replica does not run.
    pub fn lock(&self) -> Value {
        let running = self.running.as_ref();
        running.map_or(Value::Null, |operator| operator.lock(LOCK))
    }

    /// Returns all log lines of the replica, including those of processes that have ended.
    pub fn log(&self) -> Vec<String> {
        let running = self.running.as_ref().map(|operator| operator.child.stderr());
        [self.log.clone(), running.unwrap_or_default()].concat()
    }

    pub fn start(&mut self) {
        let cluster = self.cluster;
        let started = Operator::start_at(self.port, &self.kubeconfig, OPERATOR, &self.name, |command| {
            command
                .env("REDLOCK_CLUSTER", cluster)
                .args(["--pod-selector", "app=redlock"]);
        });
        self.running = Some(started);
    }

    pub fn kill(&mut self) {
        let Some(mut operator) = self.running.take() else {
            return;
        };
        operator.child.kill();
        self.log.append(&mut operator.child.stderr());
    }

    /// Returns the process id of the replica.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").child.pid()
    }

    pub fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().expect("it runs");
        running.child.signal(signal);
    }

    /// Waits until the replica has ended after SIGTERM.
    pub fn wait(&mut self) {
        let mut operator = self.running.take().expect("it runs");
        let (exit, took) = operator.child.wait(BOUND);
        assert!(exit.success(), "{}: {exit} after {took:?}", self.name);
        self.log.append(&mut operator.child.stderr());
    }
}

pub struct Cluster {
    pub name: &'static str,
    pub client: Client,
    /// One proxy in front of each master.
    pub masters: Vec<Proxy>,
    pub replicas: Vec<Replica>,
    /// The node whose pods are processes. `None` if pods have no processes.
    pub node: Option<FencedNode>,
    _kubelet: Option<Kubelet>,
    // Dropped last: it returns the control plane to the pool.
    pub plane: PooledPlane,
}

impl Cluster {
    /// Creates the work and its lock, without a running replica.
    pub async fn new(
        name: &'static str,
        plane: PooledPlane,
        servers: &RedisServers,
        work: Work,
        seed: u64,
        recorder: &Recorder,
    ) -> Self {
        let kubelet = (!work.has_processes()).then(|| Kubelet::start(&plane, name, seed, recorder));
        let mut masters = Vec::new();
        for server in servers.iter() {
            masters.push(Proxy::to_port(server.port()).await);
        }
        let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let mut cluster = Self {
            name,
            client: plane.admin(),
            plane,
            masters,
            replicas: Vec::new(),
            node: None,
            _kubelet: kubelet,
        };
        for name in [OPERATOR, NAMESPACE] {
            cluster.apply(&namespace(name));
        }
        cluster.plane.install_rbac_with(OPERATOR, work.rights()).await;
        if work.has_processes() {
            let plane = &cluster.plane;
            let started = FencedNode::start(cluster.name, plane, seed, OPERATOR, work.is_fenced()).await;
            cluster.node = Some(started);
        }
        for index in 0..REPLICAS {
            cluster.add_replica(index).await;
        }
        cluster
    }

    async fn add_replica(&mut self, index: usize) {
        let name = format!("{}-{index}", self.name);
        let (api, port) = (Proxy::to(self.plane.address()).await, free_port().unwrap());
        let server = format!("https://127.0.0.1:{}", api.port());
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(OPERATOR, SERVICE_ACCOUNT, Some(server))
            .await;
        self.apply(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": OPERATOR, "labels": {"app": "redlock"}},
            "spec": {
                "nodeName": "elsewhere",
                "serviceAccountName": SERVICE_ACCOUNT,
                "containers": [{
                    "name": "operator",
                    "image": "redlock",
                    "ports": [{"name": "http", "containerPort": port}],
                }],
            },
        }));
        self.replicas.push(Replica {
            name,
            api,
            port,
            cluster: self.name,
            kubeconfig,
            running: None,
            log: Vec::new(),
        });
    }

    /// Returns the quorum with the urls by which this cluster reaches it.
    pub fn quorum(&self, longest: u64) -> Value {
        let masters = self.masters.iter().enumerate();
        let masters: Vec<Value> = masters
            .map(|(index, proxy)| json!({"name": format!("m{index}"), "url": proxy.url()}))
            .collect();
        json!({
            "apiVersion": "redlock.dev/v1alpha1",
            "kind": "RedisQuorum",
            "metadata": {"name": "default"},
            "spec": {"masters": masters, "maxLeaseDurationSeconds": longest},
        })
    }

    pub fn apply(&self, object: &Value) {
        let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let path = file.path().display().to_string();
        let output = self.plane.kubectl(&["apply", "--filename", &path]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {error}\n{object:#}", self.name);
    }

    pub fn locks(&self) -> Api<LeaderLock> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn status(&self) -> Value {
        let lock = self.locks().get(LOCK).await;
        lock.ok()
            .and_then(|lock| serde_json::to_value(lock.status).ok())
            .unwrap_or_default()
    }

    /// Changes the lock like a user, and retries until the API server accepts it.
    pub async fn set_lock(&self, spec: &Value) {
        let (locks, patch) = (self.locks(), Patch::Merge(json!({"spec": spec})));
        eventually(BOUND, "the lock is changed", async || {
            locks.patch(LOCK, &PatchParams::default(), &patch).await
        })
        .await;
    }

    /// Sets the status of a replica's pod, which the kubelet would report if it reached the API server.
    pub async fn set_pod_status(&self, replica: usize, ready: bool) {
        let pods = Api::<Pod>::namespaced(self.client.clone(), OPERATOR);
        let status = if ready { "True" } else { "False" };
        let patch = json!({"status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": status}],
        }});
        let name = &self.replicas[replica].name;
        let parameters = PatchParams::default();
        let _ = pods.patch_status(name, &parameters, &Patch::Merge(&patch)).await;
    }

    pub async fn start(&mut self, replica: usize) {
        self.replicas[replica].start();
        self.set_pod_status(replica, true).await;
    }

    /// Sets the mode of both directions between this cluster and the masters.
    pub fn set_masters(&self, mode: Mode) {
        for proxy in &self.masters {
            proxy.set(mode);
        }
    }

    /// Sets the mode between one of its replicas and the masters.
    pub fn set_masters_of(&self, replica: usize, mode: Mode) {
        let process = self.replicas[replica].pid();
        for proxy in &self.masters {
            proxy.set_for(process, mode);
        }
    }

    /// Restores the mode of all processes.
    pub fn set_masters_alike(&self) {
        for proxy in &self.masters {
            proxy.set_alike();
        }
    }

    /// Sets the mode between this cluster and everything outside of its API server: the masters for all
    /// programs, and the API server for all programs except its own controllers.
    pub fn set_all(&self, mode: Mode) {
        self.set_masters(mode);
        self.set_api(mode);
        if let Some(node) = &self.node {
            node.api.set(mode);
            node.kubelet_api.set(mode);
        }
    }

    /// Sets the mode between the replicas and their API server.
    pub fn set_api(&self, mode: Mode) {
        for replica in &self.replicas {
            replica.api.set(mode);
        }
    }
}
