//! The administrators of a random world: passwords of the masters, and the CRD of the locks.

use std::time::Duration;

use super::{
    Users,
    faults::{ClusterFault, QuorumFault},
};
use crate::{
    clock,
    controller::world::{cluster::ClusterWorld, universe::Universe},
    lease::BootInstant,
};

/// The time in which the operators read a new password.
const ROTATING: Duration = Duration::from_secs(60);

/// A new password of the masters.
#[derive(Debug)]
pub(super) struct PasswordRotation {
    password: String,
    at: BootInstant,
}

impl Users {
    /// Reports whether the operators may not have read the last password yet. A replica that is cut off from the API server
    /// then cannot connect to the masters again, and a cluster without both cannot stop its work.
    pub(super) fn rotates(&self) -> bool {
        let rotation = self.rotation.as_ref();
        rotation.is_some_and(|rotation| clock::now().since(rotation.at) < ROTATING)
    }

    /// Gives all masters a new password, and writes it to the Secrets of all clusters.
    pub(super) fn rotate_password(&mut self, universe: &Universe) -> Option<String> {
        let is_calm = self.faults.iter().all(|fault| *fault == ClusterFault::None);
        if !is_calm || self.quorum_fault != QuorumFault::None || self.rotates() {
            return None;
        }
        let password = format!("password-{}", self.random.u32(..));
        universe.set_password(&password);
        self.rotation = Some(PasswordRotation {
            password,
            at: clock::now(),
        });
        Some("rotate the password of the masters".to_owned())
    }

    /// Writes the last password again, since a backup has an older one.
    pub(super) fn keep_password(&self, cluster: &ClusterWorld) {
        if let Some(rotation) = &self.rotation {
            cluster.write_password(&rotation.password);
        }
    }

    /// Deletes the CRD of the locks, and with it all locks of the cluster. A running operator removes their finalizers.
    pub(super) fn delete_definition(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        if !cluster.has_lock_definition() || self.faults[index] == ClusterFault::Uninstalled {
            return None;
        }
        cluster.delete_lock_definition();
        Some("delete the CRD of the locks".to_owned())
    }

    pub(super) fn create_definition(cluster: &ClusterWorld) -> Option<String> {
        cluster
            .create_lock_definition()
            .then(|| "create the CRD of the locks".to_owned())
    }
}
