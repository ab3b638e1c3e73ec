//! The stage of a scenario: a control plane, five sealed masters, locks with default timings, and replicas.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kube::api::{Api, Patch, PatchParams, PostParams};
use redlock::api::{LeaderLock, RedisQuorum};
use redlock_testkit::{RedisServers, ServerOptions};
use serde_json::json;

use crate::fixture::{ControlPlane, Operator, Options, SERVICE_ACCOUNT, TestNamespace};
use crate::masters::Masters;

pub const MASTERS: usize = 5;
/// The derived lease duration of a lock without timings.
pub const LEASE: Duration = Duration::from_secs(15);
/// An upper bound for every wait of a scenario.
pub const BOUND: Duration = Duration::from_secs(120);
/// Number of concurrent requests while objects are created.
const AT_ONCE: usize = 64;

pub struct Stage {
    pub plane: ControlPlane,
    pub servers: RedisServers,
    pub masters: Masters,
    pub namespace: TestNamespace,
    pub locks: usize,
    /// The time that the creation of the locks took.
    pub creating: Duration,
}

impl Stage {
    pub async fn new(locks: usize) -> Self {
        Self::with(locks, Options::default(), Duration::from_secs(60)).await
    }

    /// Creates the stage. `longest` is the longest lease of the quorum, which decides how long an empty master has no
    /// vote.
    pub async fn with(locks: usize, options: Options, longest: Duration) -> Self {
        let plane = ControlPlane::start(options);
        plane.install_crds().await;
        let namespace = plane.namespace("redlock").await;
        plane.install_rbac(namespace.name()).await;
        let servers = RedisServers::start(MASTERS, &ServerOptions::default()).unwrap();
        let init = Command::new(env!("CARGO_BIN_EXE_redlock"))
            .args(["init", "--masters", &servers.urls().join(",")])
            .args(["--max-lease-duration", &format!("{}s", longest.as_secs())])
            .output()
            .unwrap();
        assert!(init.status.success(), "{init:?}");
        let masters = Masters::of(&servers);
        let mut stage = Self {
            plane,
            servers,
            masters,
            namespace,
            locks,
            creating: Duration::ZERO,
        };
        create_quorum(&stage.plane, &stage.servers, longest).await;
        let began = Instant::now();
        stage.create_locks().await;
        stage.creating = began.elapsed();
        stage
    }

    async fn create_locks(&self) {
        let locks = self.api();
        stream::iter(0..self.locks)
            .for_each_concurrent(AT_ONCE, |index| {
                let locks = locks.clone();
                async move {
                    let lock: LeaderLock = serde_json::from_value(json!({
                        "apiVersion": "redlock.dev/v1alpha1",
                        "kind": "LeaderLock",
                        "metadata": {"name": name(index)},
                        "spec": {"quorumRef": {"name": "default"}},
                    }))
                    .unwrap();
                    locks.create(&PostParams::default(), &lock).await.unwrap();
                }
            })
            .await;
    }

    pub fn api(&self) -> Api<LeaderLock> {
        Api::namespaced(self.plane.admin(), self.namespace.name())
    }

    /// Returns the names of the locks on the masters.
    pub fn lock_names(&self) -> Vec<String> {
        let namespace = self.namespace.name();
        (0..self.locks)
            .map(|index| format!("{namespace}/{}", name(index)))
            .collect()
    }

    /// Returns the user name of the operator at the API server.
    pub fn user(&self) -> String {
        format!(
            "system:serviceaccount:{}:{SERVICE_ACCOUNT}",
            self.namespace.name()
        )
    }

    pub async fn kubeconfig(&self, server: Option<String>) -> PathBuf {
        self.plane
            .service_account_kubeconfig(self.namespace.name(), SERVICE_ACCOUNT, server)
            .await
    }

    pub async fn operator(&self, identity: &str) -> Operator {
        Operator::start(&self.plane, self.namespace.name(), identity).await
    }

    /// Starts these replicas at once and waits until they are ready, every lock is held, and every status names its
    /// holder.
    pub async fn operators(&self, identities: &[&str]) -> Vec<Operator> {
        let operators = identities.iter().map(|identity| self.operator(identity));
        let operators = futures_util::future::join_all(operators).await;
        operators.iter().for_each(Operator::wait_ready);
        self.wait_held().await;
        self.wait_reported().await;
        operators
    }

    /// Waits until a majority of the masters has a holder of each lock.
    pub async fn wait_held(&self) {
        let names = self.lock_names();
        redlock_testkit::eventually(BOUND, "every lock is held", async || {
            let held = self.masters.holders(&names).await.into_iter().flatten().count();
            if held == names.len() { Ok(()) } else { Err(held) }
        })
        .await;
    }

    /// Waits until every status names the holder that the masters name.
    pub async fn wait_reported(&self) {
        let names = self.lock_names();
        let locks = self.api();
        redlock_testkit::eventually(BOUND, "every status names the holder", async || {
            let holders = self.masters.holders(&names).await;
            let mut wrong = 0;
            for (index, holder) in holders.into_iter().enumerate() {
                let status = locks.get(&name(index)).await.unwrap().status.unwrap_or_default();
                let reported = status.holder_identity.zip(status.fencing_token);
                let right = reported.is_some_and(|(identity, token)| {
                    holder.is_some_and(|holder| {
                        holder.identity == identity && holder.grants.contains(&(token as u64))
                    })
                });
                wrong += usize::from(!right);
            }
            if wrong == 0 { Ok(()) } else { Err(wrong) }
        })
        .await;
    }

    /// Changes the spec of one lock.
    pub async fn patch(&self, index: usize, spec: serde_json::Value) {
        let patch = json!({"spec": spec});
        self.api()
            .patch(&name(index), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
}

/// Creates the quorum of these masters, in any cluster.
pub async fn create_quorum(plane: &ControlPlane, servers: &RedisServers, longest: Duration) {
    let masters = servers.iter().enumerate();
    let masters: Vec<_> = masters
        .map(|(index, server)| json!({"name": format!("m{index}"), "url": server.url()}))
        .collect();
    let quorum: RedisQuorum = serde_json::from_value(json!({
        "apiVersion": "redlock.dev/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"name": "default"},
        "spec": {"masters": masters, "maxLeaseDurationSeconds": longest.as_secs()},
    }))
    .unwrap();
    let quorums: Api<RedisQuorum> = Api::all(plane.admin());
    quorums.create(&PostParams::default(), &quorum).await.unwrap();
}

pub fn name(index: usize) -> String {
    format!("lock-{index:05}")
}
