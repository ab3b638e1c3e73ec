//! Computes the last statuses of a replica that ends without a sibling that could write the next ones.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::{Index, LastStop, Planted, World, targets::paused};
use crate::{
    api::{
        LeaderLock, RedisQuorum,
        leader_lock::Candidates,
        lock_status::{LeaderLockStatus, Role},
        quorum_status::RedisQuorumStatus,
    },
    controller::{
        object::ObjectKey,
        planted::{WorldMistake, plants},
        sibling_answers::Round,
        status::{
            EndedFacts, EndedReporter, HeldUntilEnd, claims, ended_quorum, ended_status, stopping_status,
        },
        writer,
    },
};

/// A status to write while the replica ends.
#[derive(Debug)]
pub(in crate::controller) enum LastStatus {
    Lock {
        key: ObjectKey,
        version: String,
        before: Box<LeaderLockStatus>,
        status: Value,
        /// Whether a conflict is followed by a retry if the newer status is about the same lease.
        again: bool,
    },
    Quorum {
        name: String,
        version: String,
        status: Value,
    },
}

impl LastStatus {
    /// Returns the write that turns the status of a lock into this one; `None` if it cannot be computed.
    fn of_lock(
        object: &LeaderLock,
        before: LeaderLockStatus,
        status: &LeaderLockStatus,
        again: bool,
    ) -> Option<Self> {
        Some(Self::Lock {
            key: ObjectKey::of(object),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            status: writer::replacement(&before, status)?,
            before: Box::new(before),
            again,
        })
    }
}

impl Index {
    /// Returns the locks that this replica holds.
    pub(in crate::controller) fn held_at_end(&self, at: &World<'_>) -> HashSet<ObjectKey> {
        let held = self.locks.known().filter(|key| self.holds(key, at));
        held.cloned().collect()
    }

    /// Returns the statuses of the locks whose targets are stopped before this replica ends.
    pub(in crate::controller) fn stopping_statuses(
        &self,
        stops: &[LastStop],
        at: &World<'_>,
    ) -> Vec<LastStatus> {
        if plants(WorldMistake::StopsSilently) {
            return Vec::new();
        }
        let statuses = stops.iter().filter_map(|stop| {
            let object = &self.locks.get(&stop.key)?.object;
            let unread = self.locks.unreadable.contains_key(&stop.key);
            if unread || paused(object).is_some() || object.metadata.deletion_timestamp.is_some() {
                return None;
            }
            let before = object.status.clone().unwrap_or_default();
            let generation = object.metadata.generation.unwrap_or_default();
            let status = stopping_status(&before, generation, &self.replica_name(), at.stamp());
            LastStatus::of_lock(object, before, &status, true)
        });
        statuses.collect()
    }

    /// Returns this replica as CLUSTER/IDENTITY.
    fn replica_name(&self) -> String {
        format!("{}/{}", self.me.cluster.name(), self.me.identity)
    }

    /// Returns the last statuses of the objects that no sibling sees; if the siblings are not known, only those of the
    /// locks that this replica held.
    pub(in crate::controller) fn last_statuses(
        &self,
        held: &HashSet<ObjectKey>,
        kept: &HashSet<ObjectKey>,
        successors: &Round,
        at: &World<'_>,
    ) -> Vec<LastStatus> {
        // A ready sibling that does not answer may hold locks, and write their statuses.
        let alone = !successors.is_silent();
        let seen_by_siblings = &successors.seen_by_siblings();
        let locks = self.locks.known().filter_map(|key| {
            let left =
                (kept.contains(key) && held.contains(key)) || self.plants(Planted::ReportsLeaseAfterEnd);
            let had = match (held.contains(key), left) {
                (_, true) => HeldUntilEnd::LeftToRunOut,
                (true, false) => HeldUntilEnd::Released,
                (false, false) if alone => HeldUntilEnd::No,
                (false, false) => return None,
            };
            self.last_of_lock(key, had, seen_by_siblings, at)
        });
        let quorums = self.quorums.names().into_iter().filter(|_| alone);
        let quorums = quorums.filter(|name| !seen_by_siblings.contains(name));
        let quorums = quorums.filter_map(|name| self.last_of_quorum(&name, at));
        locks.chain(quorums).collect()
    }

    fn last_of_lock(
        &self,
        key: &ObjectKey,
        held: HeldUntilEnd,
        seen_by_siblings: &BTreeSet<String>,
        at: &World<'_>,
    ) -> Option<LastStatus> {
        let entry = self.locks.get(key)?;
        let object = &entry.object;
        let before = object.status.clone().unwrap_or_default();
        let left = self.locks.unreadable.contains_key(key)
            || object.metadata.deletion_timestamp.is_some()
            || seen_by_siblings.contains(&object.spec.quorum_ref.name);
        // This replica itself has written Stopping, also over a status that claims nothing.
        let claims =
            claims(&before) || before.role == Some(Role::Stopping) || before.holder_identity.is_some();
        if left || !claims {
            return None;
        }
        let plan = entry.phase.active_plan();
        let status = ended_status(&EndedFacts {
            before: &before,
            generation: object.metadata.generation.unwrap_or_default(),
            replica: &self.replica_name(),
            held,
            agents: plan.is_some_and(|plan| plan.candidates == Candidates::Agents),
            targets: entry.phase.report(),
            now: at.stamp(),
        });
        LastStatus::of_lock(object, before, &status, !matches!(held, HeldUntilEnd::No))
    }

    fn last_of_quorum(&self, name: &str, at: &World<'_>) -> Option<LastStatus> {
        let entry = self.quorums.get(name)?;
        let object: &RedisQuorum = &entry.object;
        let before = object.status.clone().unwrap_or_default();
        if object.metadata.deletion_timestamp.is_some() || before == RedisQuorumStatus::default() {
            return None;
        }
        let generation = object.metadata.generation.unwrap_or_default();
        let ended = EndedReporter {
            replica: &self.replica_name(),
            cluster: &self.me.cluster.to_string(),
        };
        let status = ended_quorum(&before, generation, &ended, at.stamp());
        Some(LastStatus::Quorum {
            name: name.to_owned(),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            status: writer::replacement(&before, &status)?,
        })
    }
}
