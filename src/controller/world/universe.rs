//! The clusters of a world, their masters and their network.

use std::time::Duration;

use redlock_world::{
    masters::Masters,
    network::{Cut, Latency, Network},
};
use tokio::{task::JoinHandle, time};

use super::{
    cluster::ClusterWorld,
    manifests,
    story::story,
    workloads::{Workload, WorkloadKind, choose_workloads},
};
use crate::clock;

const CLUSTERS: [&str; 3] = ["eu-1", "us-1", "ap-1"];
/// The password of the masters at the start.
const FIRST_PASSWORD: &str = "first";
/// The interval at which a condition is checked.
const CHECK: Duration = Duration::from_millis(20);

pub(super) struct Universe {
    pub(super) network: Network,
    /// The masters of the quorums `default` and `second`.
    pub(super) masters: Masters,
    pub(super) second: Masters,
    pub(super) clusters: Vec<ClusterWorld>,
    /// The replicas of the operator in each cluster.
    pub(super) replicas: u32,
    /// The workloads of a random world.
    pub(super) workloads: Vec<Workload>,
    /// The masters of each quorum, by name and URL.
    quorums: Vec<(String, Vec<(String, String)>)>,
    seed: u64,
    tasks: Vec<JoinHandle<()>>,
}

impl Universe {
    /// Starts clusters with this number of replicas of the operator in each.
    pub(super) fn start(seed: u64, clusters: usize, replicas: u32) -> Self {
        let network = Network::new(seed, Latency::milliseconds(0, 2));
        let masters = Masters::start(&network, &["m0", "m1", "m2"], seed);
        let second = Masters::start(&network, &["s0", "s1", "s2"], seed + 1);
        let named = |masters: &Masters| -> Vec<(String, String)> {
            masters
                .iter()
                .map(|master| (master.name().to_owned(), master.url()))
                .collect()
        };
        let quorums = [("default", named(&masters)), ("second", named(&second))];
        let quorums: Vec<_> = quorums
            .iter()
            .map(|(name, masters)| (*name, &masters[..]))
            .collect();
        for master in masters.iter().chain(second.iter()) {
            master.set_password(Some(FIRST_PASSWORD));
        }
        let mut running = Vec::new();
        let clusters: Vec<ClusterWorld> = CLUSTERS[..clusters]
            .iter()
            .zip(1..)
            .map(|(name, number)| {
                let cluster = ClusterWorld::new(name, &network, seed.wrapping_mul(31) + number);
                cluster.write_password(FIRST_PASSWORD);
                cluster.install(replicas, &quorums);
                running.push(cluster.run());
                cluster
            })
            .collect();
        let restored = quorums
            .iter()
            .map(|(name, masters)| ((*name).to_owned(), masters.to_vec()));
        Self {
            network,
            masters,
            second,
            clusters,
            replicas,
            workloads: choose_workloads(seed),
            quorums: restored.collect(),
            seed,
            tasks: running,
        }
    }

    /// Gives all masters a password, and writes it to the Secrets of all clusters.
    pub(super) fn set_password(&self, password: &str) {
        for master in self.masters.iter().chain(self.second.iter()) {
            master.set_password(Some(password));
        }
        self.clusters
            .iter()
            .for_each(|cluster| cluster.write_password(password));
    }

    /// Returns the workloads that a lock may name.
    pub(super) fn workloads_of(&self, lock: &str) -> Vec<Workload> {
        let own = self.workloads.iter().filter(|workload| workload.lock == lock);
        own.copied().collect()
    }

    /// Starts the candidates of the Lease, if it is a workload of this world.
    pub(super) fn run_candidates(&mut self) {
        let mut workloads = self.workloads.iter();
        let Some(lease) = workloads.find(|workload| workload.kind == WorkloadKind::Lease) else {
            return;
        };
        let candidates = self
            .clusters
            .iter()
            .map(|cluster| cluster.run_candidate(lease.name));
        self.tasks.extend(candidates);
    }

    /// Adds a cluster whose objects were restored from a copy of those of the first one.
    pub(super) fn restore_copy(&mut self, replicas: u32, workload: &str) {
        let original = &self.clusters[0].name;
        let seed = self.seed.wrapping_mul(31) + 99;
        let copy = ClusterWorld::with_identity("copy", original, &self.network, seed);
        let quorums = self.quorums.iter().map(|(name, masters)| (&**name, &masters[..]));
        copy.write_password(FIRST_PASSWORD);
        copy.install(replicas, &quorums.collect::<Vec<_>>());
        copy.create_deployment(workload, 1);
        let mut lock = manifests::lock(workload, &[workload]);
        let backup = self.clusters[0].lock(workload).unwrap();
        for field in ["finalizers", "annotations"] {
            lock["metadata"][field] = backup["metadata"][field].clone();
        }
        copy.create_lock(lock);
        self.tasks.push(copy.run());
        self.clusters.push(copy);
    }

    /// Waits until a condition holds. Returns the time that it took, or an error with this text after `patience`.
    pub(super) async fn wait(
        &self,
        text: &str,
        patience: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<Duration, String> {
        let started = clock::now();
        while !holds(self) {
            let passed = clock::now().since(started);
            if passed >= patience {
                return Err(format!("not within {passed:?}: {text}\n{}", self.story()));
            }
            time::sleep(CHECK).await;
        }
        Ok(clock::now().since(started))
    }

    /// Returns the last writes in all clusters, for a person.
    pub(super) fn story(&self) -> String {
        let clusters = self.clusters.iter();
        clusters
            .map(|cluster| story(&cluster.name, &cluster.api))
            .collect()
    }

    /// Cuts the operators of a cluster off from all masters, or heals them.
    pub(super) fn cut_from_masters(&self, cluster: &ClusterWorld, cut: bool) {
        for operator in cluster.operators() {
            self.cut_operator(&operator, cut);
        }
    }

    /// Cuts a process off from all masters, or heals the cut.
    pub(super) fn cut_operator(&self, operator: &str, cut: bool) {
        for master in self.masters.iter().chain(self.second.iter()) {
            if cut {
                self.network.cut(operator, master.name(), Cut::Hang);
            } else {
                self.network.heal(operator, master.name());
            }
        }
    }

    /// Checks that a condition holds for some time.
    pub(super) async fn keep(
        &self,
        text: &str,
        length: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let until = clock::now() + length;
        while clock::now() < until {
            if !holds(self) {
                let left = until.left(clock::now());
                return Err(format!("{left:?} before the end: {text}\n{}", self.story()));
            }
            time::sleep(CHECK).await;
        }
        Ok(())
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
