//! Stores the knowledge of this replica about each `LeaderLock`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    OwnTokens, Settled,
    finalizer::FinalizerWrites,
    lease_end::LeaseEnd,
    lock_read::LockReads,
    ownership::{Age, Name, OwnershipIndex},
    phase::{LockPhase, TargetTask},
    resolve::{self, QuorumView},
    status_memory::StatusMemory,
    target_key::{TargetKey, target_keys},
    willing::WillingReads,
};
use crate::controller::{
    object::{ObjectKey, age, is_older},
    problem::{Problem, Reason},
    templates::Templates,
};
use crate::{
    api::{LeaderLock, leader_lock::Enforcement, plan::LockPlan},
    lease::{BootInstant, ClusterId, FencingToken, LockName},
    targets::Origin,
};

#[derive(Debug)]
pub(super) struct LockEntry {
    /// The last version that could be read.
    pub(super) object: LeaderLock,
    pub(super) first_seen: BootInstant,
    /// The time at which this version of the object was seen.
    pub(super) seen: BootInstant,
    /// The time at which this version arrived, if it is the answer to a write of this process.
    answered: Option<BootInstant>,
    /// The plan of the object on its own: another object may own its name.
    wanted: Result<Arc<LockPlan>, Problem>,
    pub(super) phase: LockPhase,
    /// The targets that were in force when the object was last judged.
    in_force_before: BTreeSet<TargetKey>,
    /// The source of the stop times that the object does not declare.
    pub(super) templates: Templates,
    /// The tokens in the statuses that were seen.
    pub(super) own_tokens: OwnTokens,
    pub(super) status: StatusMemory,
    pub(super) lease_end: LeaseEnd,
    /// The writes of the finalizer. While a write is retried, the key is in the list of finalizers that are
    /// due.
    pub(super) finalizer: FinalizerWrites,
    /// The consistent reads of the object.
    pub(super) reads: LockReads,
    /// The lease of this replica under which the object was last read: targets may have been started.
    pub(super) read_under: Option<FencingToken>,
    /// Whether the task is ordered to stop the targets for a departure.
    pub(super) departs: bool,
    /// The answers of the masters about other clusters.
    pub(super) willing: WillingReads,
}

impl LockEntry {
    fn new(object: LeaderLock, origin: Origin, now: BootInstant) -> Self {
        let mut status = StatusMemory::default();
        status.settled.see(&object);
        Self {
            object,
            first_seen: now,
            seen: now,
            answered: origin.answered(now),
            wanted: Err(Problem::new(Reason::Opening, "not inspected yet")),
            phase: LockPhase::default(),
            in_force_before: BTreeSet::new(),
            templates: Templates::default(),
            own_tokens: OwnTokens::default(),
            status,
            lease_end: LeaseEnd::default(),
            finalizer: FinalizerWrites::default(),
            reads: LockReads::default(),
            read_under: None,
            departs: false,
            willing: WillingReads::default(),
        }
    }

    /// Stores a newer version of the object.
    fn see(&mut self, object: LeaderLock, origin: Origin, now: BootInstant) {
        // A new object of the same name: requests under way concerned its predecessor. A departure of the predecessor
        // continues, since nothing may start again under a lease whose end is recorded as clean.
        if self.object.metadata.uid != object.metadata.uid {
            self.status.settled = Settled::default();
            self.finalizer = FinalizerWrites::default();
            self.willing = WillingReads::default();
            self.reads.forget_object();
        }
        if object.metadata.deletion_timestamp.is_none() {
            self.phase.undelete();
        }
        self.status.settled.see(&object);
        (self.object, self.seen, self.answered) = (object, now, origin.answered(now));
    }

    /// Returns the reason why the object cannot be used on its own.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.wanted.as_ref().err()
    }

    /// Returns the plan of the object on its own.
    pub(super) fn own_plan(&self) -> Option<&Arc<LockPlan>> {
        self.wanted.as_ref().ok()
    }

    /// Returns the targets that are switched for the object, or may still be according to its record. Every replica reads
    /// the same record, so a target that one of them still stops is no other lock's on any of them.
    fn in_force(&self) -> BTreeSet<TargetKey> {
        let plan = self.phase.plan();
        let mut all = plan.map(|plan| target_keys(plan)).unwrap_or_default();
        // A lock that only observes conflicts with no other lock.
        if self.object.spec.enforcement == Enforcement::Enforce {
            all.extend(self.recorded_keys());
        }
        all
    }
}

/// The known locks.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Boxed: the nodes of a map that grows in order are half empty.
    entries: BTreeMap<ObjectKey, Box<LockEntry>>,
    names: OwnershipIndex<Name>,
    targets: OwnershipIndex<TargetKey>,
    /// The objects that this version cannot read.
    pub(super) unreadable: BTreeMap<ObjectKey, String>,
    /// The namespaces whose first list is not complete; an empty name stands for all.
    unlisted: BTreeSet<String>,
}

impl Locks {
    /// Creates a store with one watch for each of these namespaces; an empty name stands for all.
    pub(super) fn new(scopes: &[String]) -> Self {
        Self {
            unlisted: scopes.iter().cloned().collect(),
            ..Self::default()
        }
    }

    /// Records that a list of this watch is complete.
    pub(super) fn list_complete(&mut self, scope: &str) {
        self.unlisted.remove(scope);
    }

    /// Reports whether the first list of every watch is complete.
    pub(super) fn synced(&self) -> bool {
        self.unlisted.is_empty()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&LockEntry> {
        self.entries.get(key).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut LockEntry> {
        self.entries.get_mut(key).map(Box::as_mut)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &ObjectKey> {
        self.entries.keys().chain(self.unreadable.keys())
    }

    /// Returns the objects that name this quorum.
    pub(super) fn of_quorum<'a>(&'a self, quorum: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let names = move |entry: &LockEntry| entry.object.spec.quorum_ref.name == quorum;
        self.entries
            .iter()
            .filter(move |(_, entry)| names(entry))
            .map(|(key, _)| key)
    }

    /// Returns the objects that name this quorum, or are still active on it.
    pub(super) fn users_of<'a>(&'a self, quorum: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let uses = move |entry: &LockEntry| {
            let applied = entry.phase.plan();
            entry.object.spec.quorum_ref.name == quorum || applied.is_some_and(|plan| plan.quorum == quorum)
        };
        let used = self.entries.iter().filter(move |(_, entry)| uses(entry));
        used.map(|(key, _)| key)
    }

    /// Reports whether there are objects without any readable version.
    pub(super) fn any_unread(&self) -> bool {
        self.unreadable.keys().any(|key| !self.entries.contains_key(key))
    }

    /// Records that a readable version was seen. The answer to a write does not count: it may be older than the
    /// unreadable version that the watch has delivered.
    pub(super) fn note_readable(&mut self, key: &ObjectKey, origin: Origin) {
        if origin != Origin::Answer {
            self.unreadable.remove(key);
        }
    }

    /// Reports whether the object is newer than the known version: a slow watch may deliver older versions.
    pub(super) fn is_news(&self, key: &ObjectKey, object: &LeaderLock, origin: Origin) -> bool {
        self.entries.get(key).is_none_or(|known| {
            let older = is_older(&object.metadata, &known.object.metadata);
            origin.replaces(older, known.answered)
        })
    }

    /// Returns the locks with targets. Only their target tasks know whether the targets run: a report may be under way.
    pub(super) fn with_targets(&self) -> impl Iterator<Item = (&ObjectKey, &LockEntry, &TargetTask)> {
        let entries = self.entries.iter();
        entries.filter_map(|(key, entry)| Some((key, entry.as_ref(), entry.phase.task()?)))
    }

    /// Ends all target tasks, so that nothing is switched any more.
    pub(super) fn dismiss_target_tasks(&mut self) {
        for entry in self.entries.values_mut() {
            entry.phase.take_task();
        }
    }

    /// Stores a new version of an object.
    pub(super) fn see(&mut self, key: &ObjectKey, object: LeaderLock, origin: Origin, now: BootInstant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.see(object, origin, now);
        } else {
            let entry = LockEntry::new(object, origin, now);
            self.entries.insert(key.clone(), Box::new(entry));
        }
    }

    /// Judges an object again. Returns the other objects that have to be judged again because of it.
    pub(super) fn resolve(
        &mut self,
        key: &ObjectKey,
        quorum: QuorumView<'_>,
        cluster: &ClusterId,
    ) -> Vec<ObjectKey> {
        let Some(entry) = self.entries.get_mut(key) else {
            let mut others = self.names.set(key, BTreeSet::new(), Age::default());
            others.extend(self.targets.set(key, BTreeSet::new(), Age::default()));
            return others;
        };
        entry.wanted = resolve::plan(&entry.object, quorum, &entry.templates, cluster);
        let age = age(&entry.object.metadata);
        let name = entry.wanted.as_ref().ok().map(|plan| name(plan));
        let mut others = self.names.set(key, name.iter().cloned().collect(), age.clone());
        let in_force = entry.in_force();
        let before = std::mem::replace(&mut entry.in_force_before, in_force.clone());
        let mut claimed = in_force.clone();
        // An object that is being deleted gets no new targets, and an object that does not own its name gets
        // no targets.
        if let (Ok(plan), Some(name)) = (&entry.wanted, name)
            && entry.object.metadata.deletion_timestamp.is_none()
            && self.names.first(&name) == Some(key)
        {
            claimed.extend(target_keys(plan));
        }
        others.extend(self.targets.set(key, claimed, age));
        // Other objects may have waited for targets that are stopped now.
        for what in before.difference(&in_force) {
            others.extend(self.targets.of(what).filter(|other| *other != key).cloned());
        }
        others
    }

    /// Reports whether the targets in force are others than at the last judgement of the object.
    pub(super) fn has_other_claims(&self, key: &ObjectKey) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| entry.in_force() != entry.in_force_before)
    }

    /// Returns the plan of the object, or its problem, given the other objects.
    pub(super) fn resolution(&self, key: &ObjectKey) -> Option<Result<Arc<LockPlan>, Problem>> {
        let plan = match &self.entries.get(key)?.wanted {
            Ok(plan) => plan,
            Err(problem) => return Some(Err(problem.clone())),
        };
        if let Some(first) = self.names.first(&name(plan))
            && first != key
        {
            return Some(Err(resolve::taken(plan, first)));
        }
        let mut wanted = target_keys(plan).into_iter();
        let taken = wanted.find_map(|what| Some((self.taken(key, &what)?.clone(), what)));
        Some(match taken {
            Some((other, what)) => Err(resolve::target_taken(&what, &other)),
            None => Ok(plan.clone()),
        })
    }

    /// Returns the other object that owns this target: an older one, or one that still has to stop it.
    pub(super) fn taken(&self, key: &ObjectKey, what: &TargetKey) -> Option<&ObjectKey> {
        let older = self.targets.first(what).filter(|first| *first != key);
        older.or_else(|| self.switched_by_other(key, what))
    }

    /// Returns the other object under which this target is switched.
    pub(super) fn switched_by_other(&self, key: &ObjectKey, what: &TargetKey) -> Option<&ObjectKey> {
        let in_force = |other: &&ObjectKey| {
            let entry = self.entries.get(other);
            *other != key && entry.is_some_and(|entry| entry.in_force().contains(what))
        };
        self.targets.of(what).find(in_force)
    }

    /// Returns the objects that are active on this lock.
    pub(super) fn of_identity(&self, quorum: &str, lock: &LockName) -> Vec<ObjectKey> {
        let active = self.entries.iter().filter(|(_, entry)| {
            let plan = entry.phase.active_plan();
            plan.is_some_and(|plan| plan.quorum == quorum && plan.lock_name == *lock)
        });
        active.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) -> Option<Box<LockEntry>> {
        self.unreadable.remove(key);
        self.entries.remove(key)
    }

    /// Reports whether a lock is active on this quorum.
    pub(super) fn any_active(&self, quorum: &str) -> bool {
        let active = self
            .entries
            .values()
            .filter_map(|entry| entry.phase.active_plan());
        active.into_iter().any(|plan| plan.quorum == quorum)
    }
}

fn name(plan: &LockPlan) -> Name {
    (plan.quorum.clone(), plan.lock_name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, deleted: bool) -> LeaderLock {
        let text = "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: l, namespace: n, uid: u}, spec: \
                    {quorumRef: {name: q}}}";
        let mut object: LeaderLock = serde_yaml::from_str(text).unwrap();
        object.metadata.resource_version = Some(version.to_owned());
        if deleted {
            object.metadata.deletion_timestamp = Some(serde_yaml::from_str("2026-01-01T12:00:00Z").unwrap());
        }
        object
    }

    fn key() -> ObjectKey {
        ObjectKey::of(&object("1", false))
    }

    #[test]
    fn answer_to_a_write_does_not_make_a_later_version_readable() {
        let (mut locks, key) = (Locks::default(), key());
        locks.unreadable.insert(key.clone(), "a later version".to_owned());
        locks.note_readable(&key, Origin::Answer);
        locks.see(&key, object("7", false), Origin::Answer, BootInstant::default());
        assert!(locks.unreadable.contains_key(&key));
        locks.note_readable(&key, Origin::Watch);
        assert!(!locks.unreadable.contains_key(&key));
    }

    #[test]
    fn object_that_a_restore_brings_back_is_contended_for_again() {
        let (mut locks, key, now) = (Locks::default(), key(), BootInstant::default());
        locks.see(&key, object("9", true), Origin::Watch, now);
        locks.get_mut(&key).unwrap().phase = LockPhase::Left;
        locks.see(&key, object("10", true), Origin::Watch, now);
        assert!(locks.get(&key).unwrap().phase.is_leaving(), "it is still deleted");
        // etcd was restored from a backup taken before the deletion.
        locks.see(&key, object("5", false), Origin::List(now), now);
        assert!(!locks.get(&key).unwrap().phase.is_leaving());
    }
}
