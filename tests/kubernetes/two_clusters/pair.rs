//! Two clusters that share five masters.

use std::fs;
use std::path::Path;

use redlock::clock;
use redlock::lease::BootInstant;
use redlock_testkit::{RedisServers, ServerOptions};
use serde_json::json;

use super::cluster::{Cluster, NAMESPACE};
use super::leases::{Lease, leases};
use super::work::Work;
use crate::fixture::kubelet::{Overlap, Recorder, Run, overlaps};
use crate::fixture::{Options, PooledPlane};
use crate::program::init;
use redlock_testkit::eventually;

/// The clients of an API server, including its own controllers, follow it again up to half a minute after an outage.
pub const BOUND: std::time::Duration = std::time::Duration::from_secs(120);

/// The default lease of a fenced lock, in seconds.
pub const FENCED_LEASE: u64 = 15;

pub struct Pair {
    pub clusters: [Cluster; 2],
    pub servers: RedisServers,
    pub recorder: Recorder,
    pub work: Work,
    /// The time from which the lock guards the runs: earlier runs were not guarded.
    since: BootInstant,
}

/// The holder of the lock: the indices of a cluster and a replica of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub cluster: usize,
    pub replica: usize,
    pub token: u64,
}

impl Held {
    pub const fn other_cluster(self) -> usize {
        1 - self.cluster
    }
}

/// Returns the longest lease of the quorum, for locks with such a lease. A renewal of a fenced lock keeps the
/// lock for the cluster for another 5 s.
const fn longest(lease: u64) -> u64 {
    if lease < FENCED_LEASE {
        lease + 1
    } else {
        lease + 5
    }
}

impl Pair {
    /// Starts with the work running in both and the lock only observed, so that the work overlaps. `lease` is in
    /// seconds.
    pub async fn new(work: Work, lease: u64, seed: u64) -> Self {
        let servers = RedisServers::start(5, &ServerOptions::default()).unwrap();
        let most = format!("{}s", longest(lease));
        init(&servers, &["--max-lease-duration", &most], &[]);
        let plane = || PooledPlane::take(Options::default());
        let (one, other) = tokio::join!(plane(), plane());
        let recorder = Recorder::default();
        let clusters = [
            Cluster::new("eu", one, &servers, work, seed, &recorder).await,
            Cluster::new("us", other, &servers, work, seed + 1, &recorder).await,
        ];
        let mut pair = Self {
            clusters,
            servers,
            recorder,
            work,
            since: BootInstant::NEVER,
        };
        for cluster in &mut pair.clusters {
            for object in [cluster.quorum(longest(lease)), work.object(), work.lock(lease)] {
                cluster.apply(&object);
            }
            for replica in 0..cluster.replicas.len() {
                cluster.start(replica).await;
            }
        }
        pair
    }

    /// Enforces the lock; from now on, no runs may overlap.
    pub async fn enforce(&mut self) -> Held {
        for cluster in &self.clusters {
            cluster.set_lock(&json!({"enforcement": "Enforce"})).await;
        }
        let held = self.settled("the lock is enforced").await;
        self.since = clock::now();
        held
    }

    /// Waits for the first holder of a lock that is enforced from its beginning.
    pub async fn begin(&mut self) -> Held {
        let held = self.settled("the first holder").await;
        self.since = clock::now();
        held
    }

    /// Returns the runs since `since`, including earlier ones that had not ended.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs = self.all_runs();
        runs.retain(|run| run.namespace == NAMESPACE && run.end.is_none_or(|end| end > self.since));
        runs
    }

    /// Returns all runs, sorted by their start.
    pub fn all_runs(&self) -> Vec<Run> {
        let mut runs = self.recorder.runs();
        let nodes = self.clusters.iter().filter_map(|cluster| cluster.node.as_ref());
        runs.extend(nodes.flat_map(|node| node.writers.runs()));
        runs.sort_by_key(|run| run.start);
        runs
    }

    /// Returns the factor by which the faults last longer than those of an unfenced lock.
    pub const fn stretch(&self) -> u32 {
        if self.work.has_processes() { 3 } else { 1 }
    }

    /// Writes the log of each replica to a separate file.
    pub fn keep_logs(&self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let unix = clock::unix_time().saturating_sub(clock::now().since(BootInstant::default()));
        fs::write(folder.join("boot"), format!("{unix:?}\n{:#?}", self.runs())).unwrap();
        for replica in self.clusters.iter().flat_map(|cluster| &cluster.replicas) {
            let file = folder.join(format!("{}.log", replica.name));
            fs::write(file, replica.log().join("\n")).unwrap();
        }
        for cluster in &self.clusters {
            if let Some(node) = &cluster.node {
                let file = folder.join(format!("{}-node.log", cluster.name));
                fs::write(file, node.log().join("\n")).unwrap();
            }
        }
        println!("the logs of the replicas are in {}", folder.display());
    }

    pub fn overlaps(&self) -> Vec<Overlap> {
        overlaps(&self.runs())
    }

    /// Returns all leases of the lock, sorted by their time.
    pub fn leases(&self) -> Vec<Lease> {
        let replicas = self.clusters.iter().flat_map(|cluster| &cluster.replicas);
        let mut all: Vec<Lease> = replicas
            .flat_map(|replica| leases(&replica.name, &replica.log()))
            .collect();
        all.sort_by_key(|lease| lease.at);
        all
    }

    /// Waits until one replica holds the lock, its work runs, that of the other cluster does not, and all statuses
    /// agree.
    pub async fn settled(&self, what: &str) -> Held {
        eventually(BOUND, &format!("settled: {what}"), async || self.check().await).await
    }

    async fn check(&self) -> Result<Held, String> {
        let mut held = Vec::new();
        for (index, cluster) in self.clusters.iter().enumerate() {
            for (replica, of) in cluster.replicas.iter().enumerate() {
                if !of.is_ready() {
                    return Err(format!("{} is not ready", of.name));
                }
                let lock = of.lock();
                if lock["role"] == "Active" {
                    held.push(Held {
                        cluster: index,
                        replica,
                        token: lock["fencingToken"].as_u64().unwrap_or(0),
                    });
                }
            }
        }
        let [held] = held[..] else {
            return Err(format!("held by {held:?}"));
        };
        let holder = &self.clusters[held.cluster].replicas[held.replica].name;
        for (index, cluster) in self.clusters.iter().enumerate() {
            let runs = self.work.runs(cluster, &self.recorder).await;
            if runs != (index == held.cluster) {
                return Err(format!(
                    "held by {holder}, and the work of {}: {runs}",
                    cluster.name
                ));
            }
            if let Some(node) = &cluster.node {
                if !node.is_ready() {
                    return Err(format!("the node of {} is not ready", cluster.name));
                }
                if index != held.cluster && !node.writers.is_empty() {
                    return Err(format!("held by {holder}, and {} has pods", cluster.name));
                }
            }
            let status = cluster.status().await;
            let role = if runs { "Active" } else { "Standby" };
            if status["role"] != role || status["holderIdentity"] != holder.as_str() {
                return Err(format!("held by {holder}, and {} reports {status}", cluster.name));
            }
        }
        Ok(held)
    }
}
