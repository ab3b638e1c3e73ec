//! Tools of a random world: GitOps, namespaces, and backups of etcd.

use std::time::Duration;

use redlock_world::kubernetes::{ApiSnapshot, Partition};
use tokio::time;

use super::{LOCKS, Users, faults::ClusterFault};
use crate::{
    clock,
    controller::world::{cluster::ClusterWorld, universe::Universe},
    lease::BootInstant,
};

/// The interval at which the GitOps tool applies its manifests.
const INTERVAL: Duration = Duration::from_secs(60);
/// The age of a backup from which on it is not restored.
const OLD: Duration = Duration::from_secs(120);
/// The time for which the API server is stopped.
const STOPPED: Duration = Duration::from_secs(3);
/// The time after a restoration in which work may run in two clusters: the objects of the backup declare it.
const RESTORING: Duration = Duration::from_secs(45);

/// A copy of the objects of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    objects: ApiSnapshot,
    taken: BootInstant,
}

impl Users {
    /// Reports whether a backup was ever restored.
    pub(in crate::controller::world) fn has_restored(&self) -> bool {
        self.restored.is_some()
    }

    /// Reports whether a backup was restored a short time ago.
    pub(in crate::controller::world) fn restores(&self) -> bool {
        self.restored
            .is_some_and(|restored| clock::now().since(restored) < RESTORING)
    }

    /// Applies the manifests of the workloads and locks that exist, once a minute. They contain no field that the
    /// operator switches.
    pub(super) fn apply_manifests(&mut self, universe: &Universe) {
        let now = clock::now();
        if self.gitops.is_none_or(|next| next > now) {
            return;
        }
        self.gitops = Some(now + INTERVAL);
        for cluster in universe.clusters.iter().filter(|cluster| cluster.has_namespace()) {
            universe
                .workloads
                .iter()
                .for_each(|workload| cluster.apply_workload(*workload));
            LOCKS.iter().for_each(|lock| cluster.apply_lock(lock));
        }
    }

    pub(super) fn delete_namespace(&mut self, cluster: &ClusterWorld) -> Option<String> {
        if !cluster.has_namespace() {
            return None;
        }
        cluster.delete_namespace();
        Some("delete the namespace".to_owned())
    }

    /// Creates the namespace again once it is gone, with its workloads.
    pub(super) fn create_namespace(&mut self, universe: &Universe, cluster: &ClusterWorld) -> Option<String> {
        if !cluster.create_namespace() {
            return None;
        }
        universe
            .workloads
            .iter()
            .for_each(|workload| cluster.create_workload(*workload));
        Some("create the namespace".to_owned())
    }

    pub(super) fn take_backup(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        if self.faults[index] == ClusterFault::Uninstalled {
            return None;
        }
        self.backups[index] = Some(Backup {
            objects: cluster.api.snapshot(),
            taken: clock::now(),
        });
        Some("take a backup".to_owned())
    }

    /// Restores a backup while the API server is stopped. Its clients see that, and list all objects again.
    pub(super) async fn restore_backup(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        if self.faults[index] != ClusterFault::None {
            return None;
        }
        let backup = self.backups[index].take()?;
        if clock::now().since(backup.taken) > OLD {
            return None;
        }
        let clients = cluster.operators();
        for client in &clients {
            cluster.api.partition(client, Partition::Both);
        }
        cluster.restore(&backup.objects);
        self.keep_password(cluster);
        time::sleep(STOPPED).await;
        for client in &clients {
            cluster.heal_api(client);
        }
        self.restored = Some(clock::now());
        Some("restore the backup".to_owned())
    }
}
