//! Marks a cluster whose objects are a copy of those of another one, and follows the mark.

use super::{Index, World, coordinator::CoordinatorElection, coordinator_seat::KnownCoordinator};
use crate::{
    api::CLUSTER_COPY,
    controller::{
        coordination::ClusterCopy,
        planted::{WorldMistake, plants},
    },
    lease::BootInstant,
};

impl Index {
    /// Returns the coordinator that this replica knows, as far as the masters of this quorum matter.
    pub(super) fn known_coordinator(&self, quorum: &str, at: &World<'_>) -> KnownCoordinator {
        let Some(election) = &self.coordinator else {
            return KnownCoordinator::Unsettled;
        };
        if let Some(other) = election.other(at.now) {
            return KnownCoordinator::Elsewhere {
                identity: other.holder,
            };
        }
        let sees = election
            .present()
            .is_some_and(|(record, ..)| !record.unseen.contains(quorum));
        let reaches = !at.views.is_api_server_lost() && at.views.has_majority(quorum);
        match election.is_settled_here(at.now) && sees && reaches {
            true => KnownCoordinator::Here,
            false => KnownCoordinator::Unsettled,
        }
    }

    /// Marks this cluster as a copy of another one, or forgets a mark that is not written yet and has no reason any more. All
    /// replicas start again under another UID once the Lease has the mark.
    pub(super) fn judge_copy(&mut self, quorum: &str, copied: bool) {
        let Some(election) = &mut self.coordinator else {
            return;
        };
        if !copied {
            if election.copied_on.as_deref() == Some(quorum) {
                (election.copy, election.copied_on) = (self.me.copy.clone(), None);
            }
            return;
        }
        if election.copied_on.is_some() || plants(WorldMistake::TrustsCopies) {
            return;
        }
        election.copied_on = Some(quorum.to_owned());
        election.copy = Some(ClusterCopy::draw(self.random.u32(..)));
        election.next = BootInstant::default();
        tracing::error!(
            quorum,
            uid = self.me.cluster.uid(),
            "the coordinator of another cluster uses the UID of this cluster on the masters: the objects of this cluster are a \
             copy of those of another one, such as a restored backup of etcd; this cluster stops its targets"
        );
    }

    /// Ends the process if the Lease has another mark than the one that this process started with.
    pub(super) fn follow_copy(&mut self) {
        let election = self.coordinator.as_ref();
        let Some((record, ..)) = election.and_then(CoordinatorElection::present) else {
            return;
        };
        if record.copy != self.me.copy && !self.ends {
            tracing::warn!(
                annotation = CLUSTER_COPY,
                "the UID of this cluster on the masters has changed: this process ends, and starts again with the new one"
            );
            self.end_process();
        }
    }
}
