//! Simulates the Lease of the coordinator.

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};

use super::Server;
use crate::{
    controller::{
        coordination::{CoordinatorRecord, UnseenQuorums},
        index::{CoordinatorWrite, CoordinatorWriteEnd, Input},
        observe::Observation,
    },
    targets::Origin,
};

impl Server {
    pub(in crate::controller::index::simulation) fn write_coordinator(
        &mut self,
        write: &CoordinatorWrite,
    ) -> CoordinatorWriteEnd {
        let present = self.coordinator.as_ref();
        let version = present.and_then(|lease| lease.metadata.resource_version.clone());
        match (&self.coordinator, version == write.version) {
            (Some(lease), false) => CoordinatorWriteEnd::Read(Box::new(lease.clone())),
            (None, false) => CoordinatorWriteEnd::Absent,
            (_, true) => CoordinatorWriteEnd::Read(Box::new(self.store_coordinator(&write.record))),
        }
    }

    /// Reports whether the Lease names this holder.
    pub(in crate::controller::index::simulation) fn coordinator_is(&self, identity: &str) -> bool {
        let lease = self.coordinator.as_ref();
        lease.is_some_and(|lease| CoordinatorRecord::of(lease).holder == identity)
    }

    /// Lets the sibling become the coordinator, or renew its Lease.
    pub(in crate::controller::index::simulation) fn coordinate(&mut self, sees: bool, stamp: Timestamp) {
        let unseen = if sees {
            UnseenQuorums::new([])
        } else {
            UnseenQuorums::All
        };
        self.store_coordinator(&CoordinatorRecord {
            holder: "sibling".to_owned(),
            acquired: Some(stamp),
            renewed: Some(stamp),
            transitions: 1,
            scope: "all".to_owned(),
            unseen,
            copy: None,
        });
    }

    fn store_coordinator(&mut self, record: &CoordinatorRecord) -> Lease {
        self.version += 1;
        let lease = record.to_lease("redlock", Some(&self.version.to_string()));
        self.coordinator = Some(lease.clone());
        if !self.unwatched {
            self.show_coordinator(Origin::Watch);
        }
        lease
    }

    pub(super) fn list_coordinator(&mut self, origin: Origin) {
        self.show_coordinator(origin);
        self.events.push_back(Input::Coordinator(Observation::Synced));
    }

    fn show_coordinator(&mut self, origin: Origin) {
        let seen = self.coordinator.clone();
        let seen = seen.map(|lease| Input::Coordinator(Observation::Seen(Box::new(lease), origin)));
        self.events.extend(seen);
    }
}
