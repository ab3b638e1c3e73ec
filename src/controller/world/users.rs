//! The people and tools of a random world: what they do, and which work may run afterwards.

use std::time::Duration;

use fastrand::Rng;
use redlock_world::kubernetes::{LatencyRange, Partition, Refusal};
use serde_json::json;

use super::{
    cluster::{ClusterWorld, USER},
    manifests,
    universe::Universe,
};

/// The workloads, each with the lock that may name it.
pub(super) const WORKLOADS: [(&str, &str); 3] = [("web", "a"), ("api", "a"), ("batch", "b")];
const LOCKS: [&str; 2] = ["a", "b"];

/// A fault that lasts until it is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterFault {
    None,
    Masters,
    ApiServer,
}

/// The users of a world.
pub(super) struct Users {
    random: Rng,
    /// The fault of each cluster. A cluster without the masters and without the API server cannot stop its work.
    faults: Vec<ClusterFault>,
    /// A description of the operation for a person.
    pub(super) done: Vec<String>,
}

impl Users {
    pub(super) fn new(seed: u64, clusters: usize) -> Self {
        Self {
            random: Rng::with_seed(seed ^ 0x5eed),
            faults: vec![ClusterFault::None; clusters],
            done: Vec::new(),
        }
    }

    pub(super) fn pause(&mut self) -> Duration {
        let short = self.random.u8(..3) > 0;
        let most = if short { 1_500 } else { 40_000 };
        Duration::from_millis(self.random.u64(..most))
    }

    /// Creates the workloads and some of the locks.
    pub(super) fn begin(&mut self, universe: &Universe) {
        for cluster in &universe.clusters {
            for (workload, _) in WORKLOADS {
                cluster.create_deployment(workload, 0);
            }
        }
        for lock in LOCKS {
            self.create(universe, lock);
        }
    }

    /// Performs one random operation or fault.
    pub(super) fn act(&mut self, universe: &Universe) {
        let index = self.random.usize(..universe.clusters.len());
        let cluster = universe.clusters[index].clone();
        let lock = LOCKS[self.random.usize(..LOCKS.len())];
        let alone = universe.clusters.len() == 1;
        let done = match self.random.u8(..16) {
            0 | 1 => self.delete(&cluster, lock),
            2 => self.create(universe, lock),
            3 | 4 => self.edit_targets(universe, lock),
            5 if alone => self.move_quorum(&cluster, lock),
            6 if alone => self.pause_lock(&cluster, lock),
            7 => self.step_down(&cluster, lock),
            8 if alone => self.scale(&cluster),
            9 | 10 => self.crash_operator(&cluster),
            11 => self.delete_operator_pod(&cluster),
            12 => self.roll_out(&cluster),
            13 | 14 => self.begin_fault(universe, index),
            _ => self.heal(universe, index),
        };
        if let Some(done) = done {
            let now = super::cluster::now();
            self.done.push(format!("  {now:.3} {}: {done}\n", cluster.name));
        }
    }

    fn create(&mut self, universe: &Universe, lock: &str) -> Option<String> {
        let targets = self.targets(lock);
        for cluster in universe
            .clusters
            .iter()
            .filter(|cluster| cluster.lock(lock).is_none())
        {
            cluster.create_lock(manifests::lock(lock, &targets));
        }
        Some(format!("create {lock} {targets:?} everywhere"))
    }

    fn targets(&mut self, lock: &str) -> Vec<&'static str> {
        let mut own: Vec<&str> = WORKLOADS
            .iter()
            .filter(|(_, of)| *of == lock)
            .map(|(workload, _)| *workload)
            .collect();
        own.retain(|_| self.random.u8(..4) > 0);
        own
    }

    fn delete(&mut self, cluster: &ClusterWorld, lock: &str) -> Option<String> {
        cluster.lock(lock)?;
        cluster.delete_lock(lock);
        Some(format!("delete {lock}"))
    }

    /// Changes the targets in all clusters, as a tool does.
    fn edit_targets(&mut self, universe: &Universe, lock: &str) -> Option<String> {
        let targets = self.targets(lock);
        let spec = json!({ "spec": { "targets": manifests::lock(lock, &targets)["spec"]["targets"] } });
        for cluster in universe
            .clusters
            .iter()
            .filter(|cluster| cluster.lock(lock).is_some())
        {
            cluster.change_lock(lock, spec.clone());
        }
        Some(format!("edit {lock} {targets:?} everywhere"))
    }

    fn move_quorum(&mut self, cluster: &ClusterWorld, lock: &str) -> Option<String> {
        let quorum = &cluster.lock(lock)?["spec"]["quorumRef"]["name"];
        let next = if quorum == "default" { "second" } else { "default" };
        cluster.change_lock(lock, json!({ "spec": { "quorumRef": { "name": next } } }));
        Some(format!("move {lock} to {next}"))
    }

    fn pause_lock(&mut self, cluster: &ClusterWorld, lock: &str) -> Option<String> {
        let object = cluster.lock(lock)?;
        let paused = !object["metadata"]["annotations"]["redlock.dev/paused"].is_null();
        cluster.annotate_lock(lock, "redlock.dev/paused", (!paused).then_some("a test"));
        Some(format!("{} {lock}", if paused { "resume" } else { "pause" }))
    }

    fn step_down(&mut self, cluster: &ClusterWorld, lock: &str) -> Option<String> {
        let down = cluster.lock(lock)?["spec"]["state"] == "SteppedDown";
        let spec = if down {
            json!({ "state": "Enabled", "reason": null })
        } else {
            json!({ "state": "SteppedDown", "reason": "a test" })
        };
        cluster.change_lock(lock, json!({ "spec": spec }));
        Some(format!("{} {lock}", if down { "enable" } else { "step down" }))
    }

    /// Starts a workload of a lock by hand.
    fn scale(&mut self, cluster: &ClusterWorld) -> Option<String> {
        let (workload, lock) = WORKLOADS[self.random.usize(..WORKLOADS.len())];
        let object = cluster.lock(lock)?;
        let targets = object["spec"]["targets"].as_array();
        let named = targets
            .into_iter()
            .flatten()
            .any(|target| target["name"] == workload);
        // While a lock has no finalizer or is paused, its targets may be a person's.
        let metadata = &object["metadata"];
        let guarded = metadata["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        let paused = !metadata["annotations"]["redlock.dev/paused"].is_null();
        if !named || !guarded || paused || !metadata["deletionTimestamp"].is_null() {
            return None;
        }
        cluster.scale(workload, 1);
        Some(format!("scale {workload} to 1"))
    }

    fn crash_operator(&mut self, cluster: &ClusterWorld) -> Option<String> {
        let (party, uid) = self.random.choice(cluster.operator_pods())?;
        cluster.crash_pod(&uid);
        Some(format!("kill -9 {party}"))
    }

    fn delete_operator_pod(&mut self, cluster: &ClusterWorld) -> Option<String> {
        let (party, _) = self.random.choice(cluster.operator_pods())?;
        let (pod, _) = party.rsplit('/').next()?.split_once('#')?;
        cluster.delete_operator_pod(pod);
        Some(format!("delete pod {party}"))
    }

    fn roll_out(&mut self, cluster: &ClusterWorld) -> Option<String> {
        cluster.roll_out_operator(self.random.u32(..));
        Some("roll the operator out".to_owned())
    }

    fn begin_fault(&mut self, universe: &Universe, index: usize) -> Option<String> {
        if self.faults[index] != ClusterFault::None {
            return None;
        }
        let cluster = &universe.clusters[index];
        let operators = cluster.operators();
        let some = operators.iter().filter(|_| self.random.bool());
        let some: Vec<String> = some.cloned().collect();
        if self.random.bool() {
            self.faults[index] = ClusterFault::Masters;
            some.iter()
                .for_each(|operator| universe.cut_operator(operator, true));
            return Some(format!("cut {some:?} off from the masters"));
        }
        self.faults[index] = ClusterFault::ApiServer;
        let slow = self.random.u8(..3);
        for operator in &some {
            cluster.api.change_faults(operator, |faults| match slow {
                0 => faults.partition = Partition::Both,
                1 => faults.refusals.push(Refusal {
                    code: 503,
                    probability: 0.4,
                    only_writes: true,
                    is_executed: false,
                }),
                _ => {
                    let delay = LatencyRange {
                        min: Duration::ZERO,
                        max: Duration::from_secs(4),
                    };
                    faults.watch_delays.insert("*".to_owned(), delay);
                }
            });
        }
        Some(format!("API server fault {slow} of {some:?}"))
    }

    fn heal(&mut self, universe: &Universe, index: usize) -> Option<String> {
        if self.faults[index] == ClusterFault::None {
            return None;
        }
        self.faults[index] = ClusterFault::None;
        let cluster = &universe.clusters[index];
        for operator in cluster.operators() {
            universe.cut_operator(&operator, false);
            cluster.heal_api(&operator);
        }
        Some("heal".to_owned())
    }

    /// Ends all faults and pauses.
    pub(super) fn end(&mut self, universe: &Universe) {
        for index in 0..universe.clusters.len() {
            self.heal(universe, index);
            for lock in LOCKS {
                if universe.clusters[index].lock(lock).is_some() {
                    universe.clusters[index].annotate_lock(lock, "redlock.dev/paused", None);
                }
            }
        }
        self.done
            .push(format!("  {:.3} {USER}: all faults end\n", super::cluster::now()));
    }
}
