//! Elects the coordinator of the release in this cluster, by a Lease at the API server.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp,
};

use super::{Effect, Index, ObjectRequest, Replica, TargetTaskChange, World};
use crate::{
    controller::{
        backoff::Backoff,
        coordination::{
            ClusterCopy, CoordinatorRecord, CoordinatorView, EXPIRES, OtherCoordinator, RENEWED_EVERY,
            SETTLES, UnseenQuorums,
        },
        index::quorum_store::QuorumEntry,
        observe::Observation,
        planted::{WorldMistake, plants},
    },
    lease::BootInstant,
    targets::is_older,
};

/// The least time between the end of a write and the next write.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait after failed writes, and after writes that are forbidden. The Lease has to be renewed within
/// [`SETTLES`] after the API server has answered again.
const LONGEST: Duration = Duration::from_secs(1);
const LONGEST_FORBIDDEN: Duration = Duration::from_secs(60);
/// The number of failures after which they are reported.
const REPORTED: u32 = 3;

/// The election, as this replica sees it.
#[derive(Debug)]
pub(super) struct CoordinatorElection {
    /// The identity and the scope of this replica.
    own: String,
    scope: String,
    lease: ObservedLease,
    /// The mark of a copy that this replica writes: that with which it started, or a new one.
    pub(super) copy: Option<ClusterCopy>,
    /// The quorum whose masters show that this cluster is a copy.
    pub(super) copied_on: Option<String>,
    /// Whether a write is under way.
    writing: bool,
    /// The time from which the next write may be sent.
    pub(super) next: BootInstant,
    backoff: Backoff,
    /// Whether this replica ends, and takes part no longer.
    resigned: bool,
    /// What the target tasks know; `None` before the first decision.
    published: Option<CoordinatorView>,
}

/// The last observed version of the Lease.
#[derive(Clone, Debug, PartialEq)]
enum ObservedLease {
    /// It was not read yet.
    Unknown,
    Absent,
    Present {
        record: CoordinatorRecord,
        metadata: Box<ObjectMeta>,
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
    Failed {
        forbidden: bool,
        reason: String,
    },
}

impl CoordinatorElection {
    /// Returns the election in which this replica takes part, if there is one.
    pub(super) fn of(me: &Replica) -> Option<Self> {
        let own = || Self {
            copy: me.copy.clone(),
            ..Self::new(me.identity.to_string(), me.scope.as_str().to_owned())
        };
        me.coordinates.then(own)
    }

    fn new(own: String, scope: String) -> Self {
        Self {
            own,
            scope,
            copy: None,
            copied_on: None,
            lease: ObservedLease::Unknown,
            writing: false,
            next: BootInstant::default(),
            backoff: Backoff::default(),
            resigned: false,
            published: None,
        }
    }

    /// Returns the last observed version, and the time at which its renewal was first observed.
    pub(super) fn present(&self) -> Option<(&CoordinatorRecord, &ObjectMeta, BootInstant)> {
        match &self.lease {
            ObservedLease::Present {
                record,
                metadata,
                since,
            } => Some((record, metadata, *since)),
            ObservedLease::Unknown | ObservedLease::Absent => None,
        }
    }

    fn observe(&mut self, lease: &Lease, now: BootInstant) {
        let record = CoordinatorRecord::of(lease);
        let since = match self.present() {
            // A watch may deliver a version after the answer to a later write.
            Some((_, known, _)) if is_older(&lease.metadata, known) => return,
            Some((known, _, since)) if (&known.holder, known.renewed) == (&record.holder, record.renewed) => {
                since
            }
            Some(_) | None => now,
        };
        self.lease = ObservedLease::Present {
            record,
            metadata: Box::new(lease.metadata.clone()),
            since,
        };
    }

    /// Returns the other replica that coordinates.
    pub(super) fn other(&self, now: BootInstant) -> Option<OtherCoordinator> {
        let (record, _, since) = self.present()?;
        let counts = !record.holder.is_empty() && record.holder != self.own && record.scope == self.scope;
        (counts && now < since + EXPIRES).then(|| OtherCoordinator {
            holder: record.holder.clone(),
            until: since + EXPIRES,
            unseen: record.unseen.clone(),
        })
    }

    /// Reports whether this replica coordinates, and no other one may take its place because it sees more.
    pub(super) fn is_settled_here(&self, now: BootInstant) -> bool {
        let here = self
            .present()
            .is_some_and(|(record, _, since)| record.holder == self.own && now < since + EXPIRES);
        here && self.published.as_ref().is_some_and(|view| now >= view.settles_at)
    }

    /// Returns the write that is due.
    fn due_write(
        &self,
        unseen: &UnseenQuorums,
        now: BootInstant,
        stamp: Timestamp,
    ) -> Option<CoordinatorWrite> {
        if self.writing || self.resigned || now < self.next {
            return None;
        }
        let write = |version, acquired, transitions| CoordinatorWrite {
            version,
            record: CoordinatorRecord {
                holder: self.own.clone(),
                acquired,
                renewed: Some(stamp),
                transitions,
                scope: self.scope.clone(),
                unseen: unseen.clone(),
                copy: self.copy.clone(),
            },
        };
        let Some((seen, metadata, since)) = self.present() else {
            return (self.lease == ObservedLease::Absent).then(|| write(None, Some(stamp), 0));
        };
        let version = metadata.resource_version.clone();
        if seen.holder == self.own {
            let renews = now >= since + RENEWED_EVERY
                || seen.unseen != *unseen
                || seen.scope != self.scope
                || seen.copy != self.copy;
            return renews.then(|| write(version, seen.acquired, seen.transitions));
        }
        let free = seen.holder.is_empty() || now >= since + EXPIRES;
        let taken = free || seen.unseen.is_exceeded_by(unseen);
        taken.then(|| {
            let mut write = write(version, Some(stamp), seen.transitions.saturating_add(1));
            // Only the coordinator marks a copy.
            write.record.copy.clone_from(&seen.copy);
            write
        })
    }

    /// Returns the write by which this replica resigns, if it is the coordinator.
    fn resignation(&self, stamp: Timestamp) -> Option<CoordinatorWrite> {
        let (record, metadata, _) = self.present()?;
        (record.holder == self.own).then(|| CoordinatorWrite {
            version: metadata.resource_version.clone(),
            record: CoordinatorRecord {
                holder: String::new(),
                renewed: Some(stamp),
                ..record.clone()
            },
        })
    }

    /// Returns the view to publish, if it has changed.
    fn renewed_view(&mut self, now: BootInstant) -> Option<CoordinatorView> {
        let other = self.other(now);
        let identity =
            |one: &Option<OtherCoordinator>| one.as_ref().map(|one| (one.holder.clone(), one.unseen.clone()));
        let settles_at = match &self.published {
            Some(known) if identity(&known.other) == identity(&other) => known.settles_at,
            Some(_) | None => now + SETTLES,
        };
        let view = CoordinatorView { other, settles_at };
        (self.published.as_ref() != Some(&view)).then(|| self.published.insert(view).clone())
    }

    /// Records the end of a write. Returns a reason that is to be reported.
    fn end_write(&mut self, end: &CoordinatorWriteEnd, now: BootInstant, jitter: f64) -> Option<String> {
        (self.writing, self.next) = (false, now + PAUSE);
        match end {
            CoordinatorWriteEnd::Read(lease) => self.observe(lease, now),
            CoordinatorWriteEnd::Absent => self.lease = ObservedLease::Absent,
            CoordinatorWriteEnd::Failed { forbidden, reason } => {
                let longest = if *forbidden { LONGEST_FORBIDDEN } else { LONGEST };
                self.next = self.next.max(self.backoff.fail(longest, now, jitter));
                return (self.backoff.failures() == REPORTED).then(|| reason.clone());
            }
        }
        self.backoff.reset();
        None
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
            // A Lease that cannot be read, or a watch that fails, changes nothing that is known about the coordinator.
            Observation::Synced | Observation::Malformed(..) | Observation::Failed(_) => {}
        }
        self.follow_copy();
        self.publish_coordinator(at);
    }

    pub(super) fn on_coordinator_written(&mut self, end: &CoordinatorWriteEnd, at: &World<'_>) {
        let jitter = self.random.f64();
        let Some(election) = &mut self.coordinator else {
            return;
        };
        if let Some(reason) = election.end_write(end, at.now, jitter) {
            tracing::warn!(
                reason,
                "the Lease by which the replicas elect a coordinator could not be written; retrying"
            );
        }
        self.follow_copy();
        self.publish_coordinator(at);
    }

    /// Renews the Lease, or becomes the coordinator, once this replica knows its objects.
    pub(super) fn check_coordinator(&mut self, at: &World<'_>) {
        if self.ready.is_none() {
            return;
        }
        let unseen = self.unseen_quorums();
        let Some(election) = &mut self.coordinator else {
            return;
        };
        if let Some(write) = election.due_write(&unseen, at.now, at.stamp()) {
            election.writing = true;
            self.effects
                .push(Effect::Object(ObjectRequest::WriteCoordinator(write)));
        }
        self.publish_coordinator(at);
    }

    /// Resigns, at the end of the process.
    pub(super) fn resign_coordinator(&mut self, at: &World<'_>) {
        let Some(election) = &mut self.coordinator else {
            return;
        };
        if let Some(write) = election.resignation(at.stamp()) {
            self.effects
                .push(Effect::Object(ObjectRequest::WriteCoordinator(write)));
        }
        election.resigned = true;
    }

    fn unseen_quorums(&self) -> UnseenQuorums {
        let unseen = |name: &String| !self.quorums.get(name).is_some_and(QuorumEntry::has_majority);
        UnseenQuorums::new(self.quorums.names().into_iter().filter(unseen))
    }

    /// Passes a new coordinator, or a renewal, to the target tasks.
    fn publish_coordinator(&mut self, at: &World<'_>) {
        let Some(election) = &mut self.coordinator else {
            return;
        };
        let holder = |view: &CoordinatorView| view.other.as_ref().map(|other| other.holder.clone());
        let before = election.published.as_ref().and_then(holder);
        if let Some(view) = election.renewed_view(at.now) {
            let after = holder(&view);
            if before != after {
                tracing::info!(coordinator = after, "the coordinator of the replicas has changed");
            }
            self.effects
                .push(Effect::Targets(TargetTaskChange::PublishCoordinator(view)));
        }
    }

    /// Reports whether another replica of this cluster coordinates.
    pub(super) fn has_other_coordinator(&self, now: BootInstant) -> bool {
        let election = self.coordinator.as_ref();
        election.is_some_and(|election| election.other(now).is_some())
            && !plants(WorldMistake::ReportsEverywhere)
    }

    /// Reports whether another replica of this cluster coordinates, and sees the masters of this quorum.
    pub(super) fn is_coordinated_elsewhere(&self, quorum: &str, at: &World<'_>) -> bool {
        self.coordinator_renewed(quorum, at).is_some()
    }

    /// Returns the time at which the last renewal of such a replica was observed.
    pub(super) fn coordinator_renewed(&self, quorum: &str, at: &World<'_>) -> Option<BootInstant> {
        let view = self.coordinator.as_ref()?.published.as_ref()?;
        let other = view.other.as_ref()?;
        view.is_coordinated(quorum, at.now).then(|| other.until - EXPIRES)
    }
}

#[cfg(test)]
mod tests;
