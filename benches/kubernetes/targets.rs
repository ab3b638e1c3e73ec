//! Measures a thousand locks that each switch an object: one whole cluster fails, and the other one starts all
//! targets at a rate that its API server can handle. Also measures standbys that a user starts by hand.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use redlock::api::LeaderLock;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::common::http;
use crate::fixture::{ControlPlane, Operator, Options, SERVICE_ACCOUNT, TestNamespace, audit};
use crate::log::{self, milliseconds};
use crate::stage::{Stage, create_quorum, name};
use crate::table::{self, Many};
use crate::usage;

const TARGETS: usize = 1_000;
/// The lease of a lock that stops its target within a second.
const LEASE: Duration = Duration::from_secs(15);
/// The default of `--api-requests-per-second`.
const LIMIT: usize = 200;
/// Number of standbys that are started by hand.
const BY_HAND: usize = 120;
/// The idle time that is measured.
const QUIET: Duration = Duration::from_secs(20);
const AT_ONCE: usize = 32;
/// Leaves time for a machine that is busy with other work.
const BOUND: Duration = Duration::from_secs(300);

const KIND: &str = "\
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
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
";

/// The times at which each object was first seen with each number of replicas, since the last change.
type Seen = Arc<Mutex<HashMap<String, Vec<(i64, Duration)>>>>;

struct Cluster<'a> {
    name: &'static str,
    plane: &'a ControlPlane,
    namespace: &'a TestNamespace,
    seen: Seen,
    watching: JoinHandle<()>,
}

impl<'a> Cluster<'a> {
    async fn new(name: &'static str, plane: &'a ControlPlane, namespace: &'a TestNamespace) -> Self {
        plane.install_crds().await;
        let rights = [
            "targetKinds[0].group=test.example",
            "targetKinds[0].resource=gates",
        ];
        plane.install_rbac_with(namespace.name(), &rights).await;
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(file.path(), KIND).unwrap();
        let kubectl = |arguments: &[&str]| {
            let output = plane.kubectl(arguments);
            assert!(output.status.success(), "{output:?}");
        };
        kubectl(&["apply", "--filename", &file.path().display().to_string()]);
        kubectl(&["wait", "--for=condition=Established", "crd/gates.test.example"]);
        let gates = gates(plane, namespace);
        let locks: Api<LeaderLock> = Api::namespaced(plane.admin(), namespace.name());
        stream::iter(0..TARGETS)
            .for_each_concurrent(AT_ONCE, |index| {
                let (gates, locks) = (gates.clone(), locks.clone());
                async move { create(&gates, &locks, index).await }
            })
            .await;
        let seen = Seen::default();
        let watching = tokio::spawn(watch(gates, seen.clone()));
        Self {
            name,
            plane,
            namespace,
            seen,
            watching,
        }
    }

    async fn operator(&self) -> Operator {
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(self.namespace.name(), SERVICE_ACCOUNT, None)
            .await;
        let identity = format!("{}-0", self.name);
        let cluster = |command: &mut Command| {
            command.env("REDLOCK_CLUSTER", self.name);
            command.env("REDLOCK_LOG_LEVEL", "info");
        };
        Operator::start_with(&kubeconfig, self.namespace.name(), &identity, cluster)
    }

    /// Waits until all targets have this many replicas; returns the time at which each one did.
    async fn all_at(&self, replicas: i64, since: Duration) -> Vec<Duration> {
        redlock_testkit::eventually(BOUND, "every target is switched", async || {
            let seen = self.seen.lock().unwrap();
            let at = |all: &Vec<(i64, Duration)>| {
                let mut all = all.iter();
                all.find(|(now, at)| *now == replicas && *at >= since)
                    .map(|(_, at)| *at)
            };
            let found: Vec<Duration> = seen.values().filter_map(at).collect();
            if found.len() == TARGETS {
                Ok(found)
            } else {
                Err(found.len())
            }
        })
        .await
    }

    /// Returns the number of requests of the operator in each second, from the audit log: all requests except
    /// watches, and those for targets only.
    fn requests(&self, since: Duration) -> (BTreeMap<u64, usize>, BTreeMap<u64, usize>) {
        let user = format!(
            "system:serviceaccount:{}:{SERVICE_ACCOUNT}",
            self.namespace.name()
        );
        let (mut all, mut targets) = (BTreeMap::new(), BTreeMap::new());
        for event in audit::events(&self.plane.audit_log()) {
            let at = Duration::from_nanos(event.request_received_timestamp.as_nanosecond() as u64);
            if event.user.username != user || event.verb == "watch" || at < since {
                continue;
            }
            *all.entry(at.as_secs()).or_insert(0) += 1;
            if event.object_ref.is_some_and(|object| object.resource == "gates") {
                *targets.entry(at.as_secs()).or_insert(0) += 1;
            }
        }
        (all, targets)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn gates(plane: &ControlPlane, namespace: &TestNamespace) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("test.example", "v1", "Gate"));
    Api::namespaced_with(plane.admin(), namespace.name(), &kind)
}

async fn create(gates: &Api<DynamicObject>, locks: &Api<LeaderLock>, index: usize) {
    let name = name(index);
    let gate = json!({
        "apiVersion": "test.example/v1", "kind": "Gate", "metadata": {"name": name}, "spec": {"replicas": 0},
    });
    let gate: DynamicObject = serde_json::from_value(gate).unwrap();
    gates.create(&PostParams::default(), &gate).await.unwrap();
    let lock: LeaderLock = serde_json::from_value(json!({
        "apiVersion": "redlock.dev/v1alpha1",
        "kind": "LeaderLock",
        "metadata": {"name": name},
        "spec": {
            "quorumRef": {"name": "default"},
            // The same name in both clusters, independent of the namespaces.
            "lockName": format!("shared/{name}"),
            "leaseDurationSeconds": LEASE.as_secs(),
            "targets": [{
                "name": "gate", "action": "Scale", "stopSeconds": 1,
                "ref": {"apiVersion": "test.example/v1", "kind": "Gate", "name": name},
            }],
        },
    }))
    .unwrap();
    locks.create(&PostParams::default(), &lock).await.unwrap();
}

async fn watch(gates: Api<DynamicObject>, seen: Seen) {
    let events = watcher(gates, watcher::Config::default()).default_backoff();
    let record = events.applied_objects().try_for_each(|gate| {
        let replicas = gate.data["spec"]["replicas"].as_i64().unwrap_or(0);
        let mut seen = seen.lock().unwrap();
        seen.entry(gate.name_any())
            .or_default()
            .push((replicas, log::now()));
        futures_util::future::ready(Ok(()))
    });
    record.await.unwrap();
}

fn most(requests: &BTreeMap<u64, usize>) -> usize {
    requests.values().copied().max().unwrap_or(0)
}

pub async fn run() {
    let options = || Options {
        audit: true,
        controller_manager: false,
        ..Options::default()
    };
    let longest = Duration::from_secs(60);
    let stage = Stage::with(0, options(), longest).await;
    let other = ControlPlane::start(options());
    other.install_crds().await;
    create_quorum(&other, &stage.servers, longest).await;
    let namespace = other.namespace("redlock").await;
    for (plane, namespace) in [(&stage.plane, &stage.namespace), (&other, &namespace)] {
        share(plane, namespace).await;
    }
    let a = Cluster::new("a", &stage.plane, &stage.namespace).await;
    let b = Cluster::new("b", &other, &namespace).await;

    table::begin(&format!(
        "{TARGETS} locks with a target each, two clusters, one replica each; at most {LIMIT} requests/s"
    ));
    let began = log::now();
    let mut operator_a = a.operator().await;
    let started = a.all_at(1, began).await;
    let last = started.iter().max().unwrap();
    let (all, targets) = a.requests(began);
    table::row(
        "first start: all targets on, after the start of the process",
        &seconds(began, *last),
        "",
    );
    print_requests(&all, &targets);

    let operator_b = b.operator().await;
    operator_b.wait_ready();
    redlock_testkit::eventually(BOUND, "every standby is confirmed", async || {
        let text = http::get(operator_b.port(), "/metrics").map_or_else(|_| String::new(), |(_, text)| text);
        let lines = text
            .lines()
            .filter(|line| line.starts_with("redlock_target_enforced{"));
        let enforced = lines.filter(|line| line.ends_with(" 1")).count();
        if enforced == TARGETS {
            Ok(())
        } else {
            Err(enforced)
        }
    })
    .await;
    by_hand(&b).await;
    // The requests of the change above are over.
    tokio::time::sleep(LEASE).await;
    let quiet = log::now();
    tokio::time::sleep(QUIET).await;
    for cluster in [&a, &b] {
        let requests: usize = cluster.requests(quiet).0.values().sum();
        table::row(
            &format!("requests of cluster {} while nothing happens", cluster.name),
            &format!("{:.1}/s", requests as f64 / QUIET.as_secs_f64()),
            "",
        );
    }

    let killed = log::now();
    operator_a.child.kill();
    let switched = b.all_at(1, killed).await;
    let (first, last) = (switched.iter().min().unwrap(), switched.iter().max().unwrap());
    table::row(
        "kill -9 of the other cluster's operators: the first target on, after that (lease 15 s, takeover delay 6 s)",
        &seconds(killed, *first),
        "",
    );
    table::row("from the first to the last target", &seconds(*first, *last), "");
    let (all, targets) = b.requests(killed);
    print_requests(&all, &targets);
    let (now, peak) = usage::memory(operator_b.child.pid());
    table::row(
        "memory (RSS)",
        &format!("{now:.0} MiB, {peak:.0} MiB at most"),
        "",
    );
    let waiting_since = log::now();
    redlock_testkit::eventually(BOUND, "every status reports it", async || {
        let locks: Api<LeaderLock> = Api::namespaced(b.plane.admin(), b.namespace.name());
        let all = locks.list(&kube::api::ListParams::default()).await.unwrap();
        let active = |lock: &LeaderLock| {
            let status = serde_json::to_value(&lock.status).unwrap();
            status["role"] == "Active"
        };
        let count = all.items.iter().filter(|lock| active(lock)).count();
        if count == TARGETS { Ok(()) } else { Err(count) }
    })
    .await;
    table::row(
        "all statuses updated, after the last target",
        &seconds(waiting_since, log::now()),
        "",
    );
}

fn print_requests(all: &BTreeMap<u64, usize>, targets: &BTreeMap<u64, usize>) {
    let text = format!("{} in all, {} about targets", most(all), most(targets));
    table::row(
        "requests in the busiest second, including the requests made up for",
        &text,
        "\u{2264} 300",
    );
    let mut rest: Vec<usize> = all.values().copied().collect();
    rest.sort_unstable();
    let median = rest.get(rest.len() / 2).copied().unwrap_or(0);
    table::row(
        "requests in the median second",
        &median.to_string(),
        "\u{2264} 200",
    );
}

/// Starts standbys by hand, one after the other.
async fn by_hand(cluster: &Cluster<'_>) {
    let gates = gates(cluster.plane, cluster.namespace);
    let mut took = Vec::new();
    for index in 0..BY_HAND {
        let name = name(index);
        let scale = json!({"spec": {"replicas": 3}});
        let patch = Patch::Merge(&scale);
        let began = log::now();
        gates
            .patch_scale(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        let stopped = redlock_testkit::eventually(BOUND, "it is stopped again", async || {
            let seen = cluster.seen.lock().unwrap();
            let last = seen[&name].last().copied();
            let mut events = seen[&name].iter().rev();
            let started = events.any(|(replicas, _)| *replicas == 3);
            last.filter(|(replicas, _)| *replicas == 0 && started)
                .map(|(_, at)| at)
                .ok_or(last)
        })
        .await;
        took.push(milliseconds(stopped, began));
    }
    let many = Many::of(took);
    table::row(
        "a standby that another client scales up: replicas are 0 again, from before the write",
        &many.text(),
        "\u{2264} 1000 ms",
    );
}

/// Permits this namespace to use the names of the locks.
async fn share(plane: &ControlPlane, namespace: &TestNamespace) {
    let quorums: Api<redlock::api::RedisQuorum> = Api::all(plane.admin());
    let shared =
        json!({"spec": {"sharedLockNames": [{"prefix": "shared/", "namespaces": [namespace.name()]}]}});
    quorums
        .patch("default", &PatchParams::default(), &Patch::Merge(&shared))
        .await
        .unwrap();
}

fn seconds(from: Duration, to: Duration) -> String {
    format!("{:.1} s", to.saturating_sub(from).as_secs_f64())
}
