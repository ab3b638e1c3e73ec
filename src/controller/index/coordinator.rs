//! Elects the coordinator of the release in this cluster, by a Lease at the API server.

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};

use super::{Effect, Index, World};
use crate::{
    controller::{
        coordination::{CoordinatorRecord, EXPIRES, OtherCoordinator, RENEWED_EVERY, UnseenQuorums},
        index::quorum_store::QuorumEntry,
        observe::Observation,
    },
    lease::BootInstant,
};

/// The least time between the end of a write and the next write.
const PAUSE: Duration = Duration::from_secs(1);

/// The election, as this replica sees it.
#[derive(Debug)]
pub(super) struct CoordinatorElection {
    lease: ObservedLease,
    /// Whether a write is under way.
    writing: bool,
    /// The time from which the next write may be sent.
    next: BootInstant,
    /// Whether this replica ends, and takes part no longer.
    resigned: bool,
    /// The coordinator that the target tasks know.
    published: Option<OtherCoordinator>,
}

/// The last observed version of the Lease.
#[derive(Clone, Debug, PartialEq)]
enum ObservedLease {
    /// It was not read yet.
    Unknown,
    Absent,
    Present {
        record: CoordinatorRecord,
        version: Option<String>,
        /// The time at which this renewal was first observed.
        since: BootInstant,
    },
}

/// A write of the Lease: of this version, or of a new object.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct CoordinatorWrite {
    pub(in crate::controller) version: Option<String>,
    pub(in crate::controller) record: CoordinatorRecord,
}

/// The result of a write of the Lease.
#[derive(Debug)]
pub(in crate::controller) enum CoordinatorWriteEnd {
    /// The present object, also after a conflict.
    Read(Box<Lease>),
    /// The object does not exist.
    Absent,
    Failed(String),
}

impl CoordinatorElection {
    pub(super) const fn new() -> Self {
        Self {
            lease: ObservedLease::Unknown,
            writing: false,
            next: BootInstant::from_nanos(0),
            resigned: false,
            published: None,
        }
    }

    fn observe(&mut self, lease: &Lease, now: BootInstant) {
        let read = CoordinatorRecord::of(lease);
        let version = lease.metadata.resource_version.clone();
        self.lease = match &self.lease {
            ObservedLease::Present { record, since, .. }
                if (&record.holder, record.renewed) == (&read.holder, read.renewed) =>
            {
                ObservedLease::Present {
                    record: read,
                    version,
                    since: *since,
                }
            }
            ObservedLease::Present { .. } | ObservedLease::Unknown | ObservedLease::Absent => {
                ObservedLease::Present {
                    record: read,
                    version,
                    since: now,
                }
            }
        };
    }

    /// Returns the other replica that coordinates.
    pub(super) fn other(&self, own: &str, now: BootInstant) -> Option<OtherCoordinator> {
        match &self.lease {
            ObservedLease::Present { record, since, .. }
                if !record.holder.is_empty() && record.holder != own && now < *since + EXPIRES =>
            {
                Some(OtherCoordinator {
                    holder: record.holder.clone(),
                    until: *since + EXPIRES,
                    unseen: record.unseen.clone(),
                })
            }
            ObservedLease::Present { .. } | ObservedLease::Unknown | ObservedLease::Absent => None,
        }
    }

    /// Returns the write that is due.
    fn due_write(
        &self,
        own: &str,
        unseen: &UnseenQuorums,
        now: BootInstant,
        stamp: Timestamp,
    ) -> Option<CoordinatorWrite> {
        if self.writing || self.resigned || now < self.next {
            return None;
        }
        let record = |acquired, transitions| CoordinatorRecord {
            holder: own.to_owned(),
            acquired,
            renewed: Some(stamp),
            transitions,
            unseen: unseen.clone(),
        };
        match &self.lease {
            ObservedLease::Unknown => None,
            ObservedLease::Absent => Some(CoordinatorWrite {
                version: None,
                record: record(Some(stamp), 0),
            }),
            ObservedLease::Present {
                record: seen,
                version,
                since,
            } if seen.holder == own => {
                let renews = now >= *since + RENEWED_EVERY || seen.unseen != *unseen;
                renews.then(|| CoordinatorWrite {
                    version: version.clone(),
                    record: record(seen.acquired, seen.transitions),
                })
            }
            ObservedLease::Present {
                record: seen,
                version,
                since,
            } => {
                let free = seen.holder.is_empty() || now >= *since + EXPIRES;
                (free || seen.unseen.is_exceeded_by(unseen)).then(|| CoordinatorWrite {
                    version: version.clone(),
                    record: record(Some(stamp), seen.transitions.saturating_add(1)),
                })
            }
        }
    }

    /// Returns the write by which this replica resigns, if it is the coordinator.
    fn resignation(&self, own: &str, stamp: Timestamp) -> Option<CoordinatorWrite> {
        match &self.lease {
            ObservedLease::Present { record, version, .. } if record.holder == own => {
                Some(CoordinatorWrite {
                    version: version.clone(),
                    record: CoordinatorRecord {
                        holder: String::new(),
                        renewed: Some(stamp),
                        ..record.clone()
                    },
                })
            }
            ObservedLease::Present { .. } | ObservedLease::Unknown | ObservedLease::Absent => None,
        }
    }
}

impl Index {
    pub(super) fn on_coordinator(&mut self, observation: &Observation<Lease>, at: &World<'_>) {
        let Some(election) = &mut self.coordinator else {
            return;
        };
        match observation {
            Observation::Seen(lease, _) => election.observe(lease, at.now),
            Observation::Gone(_) => election.lease = ObservedLease::Absent,
            Observation::Synced if election.lease == ObservedLease::Unknown => {
                election.lease = ObservedLease::Absent;
            }
            // A Lease that cannot be read, or a watch that fails, is no news about the coordinator.
            Observation::Synced | Observation::Malformed(..) | Observation::Failed(_) => {}
        }
        self.publish_coordinator(at);
    }

    pub(super) fn on_coordinator_written(&mut self, end: CoordinatorWriteEnd, at: &World<'_>) {
        let Some(election) = &mut self.coordinator else {
            return;
        };
        (election.writing, election.next) = (false, at.now + PAUSE);
        match end {
            CoordinatorWriteEnd::Read(lease) => election.observe(&lease, at.now),
            CoordinatorWriteEnd::Absent => election.lease = ObservedLease::Absent,
            CoordinatorWriteEnd::Failed(reason) => {
                tracing::debug!(
                    reason,
                    "the Lease of the coordinator could not be written; retrying"
                );
            }
        }
        self.publish_coordinator(at);
    }

    /// Renews the Lease, or becomes the coordinator.
    pub(super) fn check_coordinator(&mut self, at: &World<'_>) {
        let unseen = self.unseen_quorums();
        let own = self.me.identity.to_string();
        let Some(election) = &mut self.coordinator else {
            return;
        };
        if let Some(write) = election.due_write(&own, &unseen, at.now, at.stamp()) {
            election.writing = true;
            self.effects.push(Effect::WriteCoordinator(write));
        }
        self.publish_coordinator(at);
    }

    /// Resigns, at the end of the process.
    pub(super) fn resign_coordinator(&mut self, at: &World<'_>) {
        let own = self.me.identity.to_string();
        let Some(election) = &mut self.coordinator else {
            return;
        };
        if let Some(write) = election.resignation(&own, at.stamp()) {
            self.effects.push(Effect::WriteCoordinator(write));
        }
        election.resigned = true;
    }

    fn unseen_quorums(&self) -> UnseenQuorums {
        let unseen = |name: &String| !self.quorums.get(name).is_some_and(QuorumEntry::has_majority);
        UnseenQuorums::new(self.quorums.names().into_iter().filter(unseen))
    }

    /// Passes a new coordinator, or a renewal, to the target tasks.
    fn publish_coordinator(&mut self, at: &World<'_>) {
        let own = self.me.identity.to_string();
        let Some(election) = &mut self.coordinator else {
            return;
        };
        let other = election.other(&own, at.now);
        if election.published != other {
            election.published.clone_from(&other);
            self.effects.push(Effect::PublishCoordinator(other));
        }
    }

    /// Reports whether another replica of this cluster carries out what no holder of the lock does, and can.
    pub(super) fn is_coordinated_elsewhere(&self, quorum: &str, at: &World<'_>) -> bool {
        let own = self.me.identity.to_string();
        let election = self.coordinator.as_ref();
        let other = election.and_then(|election| election.other(&own, at.now));
        other.is_some_and(|other| other.coordinates_until(quorum, at.now).is_some())
    }
}

#[cfg(test)]
mod tests;
