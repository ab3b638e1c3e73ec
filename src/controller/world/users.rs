//! The people and tools of a random world: the operations that they carry out.

mod administrators;
mod faults;
mod tools;

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::{
    cluster::{ClusterWorld, USER},
    manifests,
    observer::is_paused,
    universe::Universe,
    workloads::Workload,
    write_log::is_named,
};
use crate::{clock, lease::BootInstant};
use administrators::PasswordRotation;
use faults::{ClusterFault, QuorumFault};
use tools::Backup;

pub(super) const LOCKS: [&str; 2] = ["a", "b"];
const MISSING_QUORUM: &str = "missing";

/// The users of a world.
pub(super) struct Users {
    random: Rng,
    /// The fault of each cluster. A cluster without the masters and without the API server cannot stop its work.
    faults: Vec<ClusterFault>,
    /// The fault of the masters of `default`.
    quorum_fault: QuorumFault,
    /// The time at which the last fault of the masters ended.
    masters_healed: Option<BootInstant>,
    /// A tool that applies the manifests each minute, and the time of its next turn.
    gitops: Option<BootInstant>,
    /// The last backup of each cluster.
    backups: Vec<Option<Backup>>,
    /// The time of the last restoration of a backup.
    restored: Option<BootInstant>,
    /// The last rotation of the password of the masters.
    rotation: Option<PasswordRotation>,
    /// A description of the operations for a person.
    pub(super) done: Vec<String>,
}

impl Users {
    pub(super) fn new(seed: u64, clusters: usize) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5eed);
        Self {
            gitops: random.bool().then(clock::now),
            random,
            faults: vec![ClusterFault::None; clusters],
            quorum_fault: QuorumFault::None,
            masters_healed: None,
            backups: vec![None; clusters],
            restored: None,
            rotation: None,
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
            universe
                .workloads
                .iter()
                .for_each(|workload| cluster.create_workload(*workload));
        }
        for lock in LOCKS {
            self.create(universe, lock);
        }
    }

    /// Performs one random operation or fault.
    pub(super) async fn act(&mut self, universe: &Universe) {
        self.apply_manifests(universe);
        let index = self.random.usize(..universe.clusters.len());
        let cluster = universe.clusters[index].clone();
        let lock = LOCKS[self.random.usize(..LOCKS.len())];
        let alone = universe.clusters.len() == 1;
        let done = match self.random.u8(..29) {
            0 | 1 => self.delete(&cluster, lock),
            2 | 3 => self.create(universe, lock),
            4 | 5 => self.edit_targets(universe, lock),
            6 if alone => self.move_quorum(&cluster, lock),
            7 if alone => self.pause_lock(&cluster, lock),
            8 => self.step_down(&cluster, lock),
            9 if alone => self.start_by_hand(universe, &cluster),
            10 | 11 => self.crash_operator(&cluster, index),
            12 => self.delete_operator_pod(&cluster, index),
            13 => self.roll_out(&cluster, index),
            14 | 15 => self.begin_fault(universe, index),
            16 => self.heal(universe, index),
            17 => self.begin_quorum_fault(universe).await,
            18 => self.heal_quorum(universe).await,
            19 => self.uninstall(&cluster, index),
            20 => self.delete_namespace(&cluster),
            21 => self.create_namespace(universe, &cluster),
            22 => self.take_backup(&cluster, index),
            23 => self.restore_backup(&cluster, index).await,
            24 => self.rotate_password(universe),
            25 => self.delete_definition(&cluster, index),
            26 => Self::name_missing_quorum(&cluster, lock),
            _ => Self::create_definition(&cluster),
        };
        if let Some(done) = done {
            let now = super::cluster::now();
            self.done.push(format!("  {now:.3} {}: {done}\n", cluster.name));
        }
    }

    fn create(&mut self, universe: &Universe, lock: &str) -> Option<String> {
        let targets = self.targets(universe, lock);
        Self::create_with(universe, lock, &targets);
        Some(format!("create {lock} {} everywhere", names(&targets)))
    }

    fn create_with(universe: &Universe, lock: &str, targets: &[Workload]) {
        let is_absent = |cluster: &&ClusterWorld| {
            cluster.has_namespace() && cluster.has_lock_definition() && cluster.lock(lock).is_none()
        };
        for cluster in universe.clusters.iter().filter(is_absent) {
            let mut object = manifests::lock(lock, &[]);
            object["spec"]["targets"] = targets.iter().map(|workload| workload.target()).collect();
            cluster.create_lock(object);
        }
    }

    fn targets(&mut self, universe: &Universe, lock: &str) -> Vec<Workload> {
        let mut own = universe.workloads_of(lock);
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
        let targets = self.targets(universe, lock);
        let declared: Vec<_> = targets.iter().map(|workload| workload.target()).collect();
        let has_lock = |cluster: &&ClusterWorld| cluster.lock(lock).is_some();
        for cluster in universe.clusters.iter().filter(has_lock) {
            cluster.change_lock(lock, json!({ "spec": { "targets": declared } }));
        }
        Some(format!("edit {lock} {} everywhere", names(&targets)))
    }

    fn move_quorum(&mut self, cluster: &ClusterWorld, lock: &str) -> Option<String> {
        let quorum = &cluster.lock(lock)?["spec"]["quorumRef"]["name"];
        let next = if quorum == "default" { "second" } else { "default" };
        cluster.change_lock(lock, json!({ "spec": { "quorumRef": { "name": next } } }));
        Some(format!("move {lock} to {next}"))
    }

    /// Names a quorum that does not exist, or corrects that.
    fn name_missing_quorum(cluster: &ClusterWorld, lock: &str) -> Option<String> {
        cluster.lock(lock)?;
        let is_wrong = names_missing_quorum(cluster, lock);
        let next = if is_wrong { "default" } else { MISSING_QUORUM };
        cluster.change_lock(lock, json!({ "spec": { "quorumRef": { "name": next } } }));
        Some(format!("name the quorum {next} in {lock}"))
    }

    fn pause_lock(&mut self, cluster: &ClusterWorld, lock: &str) -> Option<String> {
        cluster.lock(lock)?;
        let paused = is_paused(cluster, lock);
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
    fn start_by_hand(&mut self, universe: &Universe, cluster: &ClusterWorld) -> Option<String> {
        let workload = universe.workloads[self.random.usize(..universe.workloads.len())];
        let object = cluster.lock(workload.lock)?;
        // While a lock has no finalizer or is paused, its targets may be a person's.
        let metadata = &object["metadata"];
        let guarded = metadata["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        let paused = !metadata["annotations"]["redlock.dev/paused"].is_null();
        if !is_named(cluster, workload) || !guarded || paused || !metadata["deletionTimestamp"].is_null() {
            return None;
        }
        cluster.start_workload(workload);
        Some(format!("start {}", workload.name))
    }

    /// Ends all faults and pauses.
    pub(super) async fn end(&mut self, universe: &Universe) {
        self.gitops = None;
        self.heal_quorum(universe).await;
        for (index, cluster) in universe.clusters.iter().enumerate() {
            self.heal(universe, index);
            for lock in LOCKS.iter().filter(|lock| cluster.lock(lock).is_some()) {
                cluster.annotate_lock(lock, "redlock.dev/paused", None);
            }
            for lock in LOCKS.iter().filter(|lock| names_missing_quorum(cluster, lock)) {
                Self::name_missing_quorum(cluster, lock);
            }
        }
        if self.restored.is_some() {
            // The work of a lock that is younger than the backup runs on without it.
            for lock in LOCKS {
                Self::create_with(universe, lock, &universe.workloads_of(lock));
            }
        }
        self.done
            .push(format!("  {:.3} {USER}: all faults end\n", super::cluster::now()));
    }
}

fn names(workloads: &[Workload]) -> String {
    format!(
        "{:?}",
        workloads.iter().map(|workload| workload.name).collect::<Vec<_>>()
    )
}

/// Reports whether a lock names a quorum that does not exist.
fn names_missing_quorum(cluster: &ClusterWorld, lock: &str) -> bool {
    let lock = cluster.lock(lock);
    lock.is_some_and(|lock| lock["spec"]["quorumRef"]["name"] == MISSING_QUORUM)
}
