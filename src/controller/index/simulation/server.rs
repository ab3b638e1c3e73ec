//! Simulates the objects of an API server.

mod coordinator;
mod finalizer;
mod status;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::LazyLock,
};

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{ResourceExt, core::DeserializeGuard, runtime::watcher::Event};
use serde_json::Value;
use status::merged;

use crate::{
    api::{FINALIZER, LeaderLock, RedisQuorum, abstention::ABSTAIN},
    controller::{
        index::{Guarded, Input},
        object::ObjectKey,
        observe::{Observation, Trouble},
        writer::Written,
    },
    lease::BootInstant,
    targets::{Origin, Present},
};

/// The index of the entry in [`LOCKS`] that is orphaned when it is deleted.
pub(super) const ORPHANED: usize = 7;
pub(super) const WITH_TARGET: usize = 1;
const ON_ANOTHER_QUORUM: usize = 4;
pub(super) const OBSERVED: usize = 8;
pub(super) const FAILS_OVER: usize = 10;
pub(super) const FENCED: usize = 11;

/// Specs that users write: with and without targets; on an existing quorum, another one, and a missing one.
static LOCKS: LazyLock<Vec<LeaderLock>> = LazyLock::new(|| {
    let target = "targets: [{name: t, action: Scale, stopSeconds: 5, ref: {apiVersion: apps/v1, kind: Deployment, name: t}}]";
    let other = "targets: [{name: t, action: Suspend, stopSeconds: 5, ref: {apiVersion: batch/v1, kind: CronJob, name: c}}]";
    [
        "quorumRef: {name: q}".to_owned(),
        format!("quorumRef: {{name: q}}, {target}"),
        format!("quorumRef: {{name: q}}, lockName: shared, {other}"),
        "quorumRef: {name: q}, lockName: shared".to_owned(),
        format!("quorumRef: {{name: r}}, {target}"),
        "quorumRef: {name: missing}".to_owned(),
        format!("quorumRef: {{name: q}}, state: SteppedDown, reason: a test, {target}"),
        format!("quorumRef: {{name: q}}, deletionPolicy: Orphan, {target}"),
        format!("quorumRef: {{name: q}}, enforcement: Observe, {other}"),
        format!("quorumRef: {{name: q}}, leaseDurationSeconds: 1, {target}"),
        format!("quorumRef: {{name: q}}, failoverAfterUnreadySeconds: 60, {target}"),
        format!("quorumRef: {{name: q}}, fencing: Node, {target}"),
    ]
    .iter()
    .map(|spec| {
        let text = format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, spec: {{{spec}}}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    })
    .collect()
});

static QUORUMS: LazyLock<Vec<RedisQuorum>> = LazyLock::new(|| {
    ["a", "b"]
        .map(|host| {
            let text = format!(
                "{{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {{name: q}}, spec: {{masters: [\
                 {{name: a, url: 'redis://{host}1'}}, {{name: b, url: 'redis://{host}2'}}, \
                 {{name: c, url: 'redis://{host}3'}}]}}}}"
            );
            serde_yaml::from_str(&text).unwrap()
        })
        .into()
});

#[derive(Debug, Default)]
pub(super) struct Server {
    version: u64,
    pub(super) locks: BTreeMap<ObjectKey, LeaderLock>,
    pub(super) quorums: BTreeMap<String, RedisQuorum>,
    /// The Lease of the coordinator.
    coordinator: Option<Lease>,
    /// Whether requests remain unanswered.
    pub(super) down: bool,
    /// Whether the watches are broken.
    pub(super) unwatched: bool,
    /// Whether the definitions are missing: every request is answered with 404.
    pub(super) unserved: bool,
    pub(super) events: VecDeque<Input>,
    /// The objects that the watches have delivered.
    shown_locks: Present,
    shown_quorums: Present,
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "n".into(),
        name: name.into(),
    }
}

fn readable<K: Clone>(object: &K) -> DeserializeGuard<K> {
    DeserializeGuard(Ok(object.clone()))
}

impl Server {
    /// Lists all objects, like a watch that begins.
    pub(super) fn list(&mut self, now: BootInstant) {
        let locks: Vec<_> = self
            .locks
            .values()
            .map(|object| Event::InitApply(readable(object)))
            .collect();
        for event in [Event::Init].into_iter().chain(locks).chain([Event::InitDone]) {
            self.show_lock(event, now);
        }
        let quorums: Vec<_> = self
            .quorums
            .values()
            .map(|object| Event::InitApply(readable(object)))
            .collect();
        for event in [Event::Init].into_iter().chain(quorums).chain([Event::InitDone]) {
            self.show_quorum(event, now);
        }
        self.list_coordinator(Origin::List(now));
    }

    fn show_lock(&mut self, event: Event<DeserializeGuard<LeaderLock>>, now: BootInstant) {
        let changes = self.shown_locks.take(Ok(event), now).into_iter();
        let inputs = changes.map(|change| Input::Lock(String::new(), change.into()));
        self.events.extend(inputs);
    }

    fn show_quorum(&mut self, event: Event<DeserializeGuard<RedisQuorum>>, now: BootInstant) {
        let changes = self.shown_quorums.take(Ok(event), now).into_iter();
        self.events
            .extend(changes.map(|change| Input::Quorum(change.into())));
    }

    pub(super) fn break_watch(&mut self) {
        self.unwatched = true;
        let trouble = Trouble {
            forbidden: false,
            text: "away".into(),
        };
        let failed = Observation::Failed(trouble.clone());
        self.events.push_back(Input::Lock(String::new(), failed));
        self.events.push_back(Input::Quorum(Observation::Failed(trouble)));
    }

    /// Starts the watches of another process.
    pub(super) fn watch_anew(&mut self, now: BootInstant) {
        self.events.clear();
        (self.shown_locks, self.shown_quorums) = (Present::default(), Present::default());
        self.unwatched = true;
        self.watch_again(now);
    }

    pub(super) fn watch_again(&mut self, now: BootInstant) {
        if std::mem::take(&mut self.unwatched) {
            self.list(now);
        }
    }

    fn store(&mut self, mut object: LeaderLock) -> LeaderLock {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        let key = ObjectKey::of(&object);
        let goes = object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty();
        let event = if goes {
            self.locks.remove(&key);
            Event::Delete(readable(&object))
        } else {
            self.locks.insert(key, object.clone());
            Event::Apply(readable(&object))
        };
        if !self.unwatched {
            self.show_lock(event, BootInstant::default());
        }
        object
    }

    fn store_quorum(&mut self, mut object: RedisQuorum) -> RedisQuorum {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        let name = object.name_any();
        let goes = object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty();
        let event = if goes {
            self.quorums.remove(&name);
            Event::Delete(readable(&object))
        } else {
            self.quorums.insert(name, object.clone());
            Event::Apply(readable(&object))
        };
        if !self.unwatched {
            self.show_quorum(event, BootInstant::default());
        }
        object
    }

    /// Creates a lock, or changes the spec of an existing one.
    pub(super) fn apply(&mut self, name: &str, random: &mut fastrand::Rng, now: Timestamp) {
        let spec = random.usize(..LOCKS.len());
        self.apply_spec(name, spec, random, now);
    }

    /// Applies a spec with the same target on another quorum, or with other fencing.
    pub(super) fn change_identity(&mut self, name: &str, random: &mut fastrand::Rng, now: Timestamp) {
        let spec = [WITH_TARGET, ON_ANOTHER_QUORUM, FENCED][random.usize(..3)];
        self.apply_spec(name, spec, random, now);
    }

    fn apply_spec(&mut self, name: &str, spec: usize, random: &mut fastrand::Rng, now: Timestamp) {
        let Some(known) = self.locks.get(&key(name)) else {
            // A finalizer may be left by an earlier operator, or restored from a backup.
            return self.create_with(name, spec, now, random.bool());
        };
        let mut object = LOCKS[spec].clone();
        object.metadata = known.metadata.clone();
        object.metadata.generation = known.metadata.generation.map(|generation| generation + 1);
        object.status.clone_from(&known.status);
        self.store(object);
    }

    pub(super) fn create(&mut self, name: &str, spec: usize, now: Timestamp) {
        self.create_with(name, spec, now, true);
    }

    fn create_with(&mut self, name: &str, spec: usize, now: Timestamp, guarded: bool) {
        let mut object = LOCKS[spec].clone();
        self.version += 1;
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(format!("uid-{}", self.version));
        object.metadata.generation = Some(1);
        object.metadata.creation_timestamp = Some(Time(now));
        object.metadata.finalizers = guarded.then(|| vec![FINALIZER.to_owned()]);
        self.store(object);
    }

    /// Deletes the object despite its finalizers, and creates another one with the same name.
    pub(super) fn recreate(
        &mut self,
        name: &str,
        random: &mut fastrand::Rng,
        (stamp, now): (Timestamp, BootInstant),
    ) {
        let Some(mut object) = self.locks.get(&key(name)).cloned() else {
            return;
        };
        // The watch misses the deletion: a list shows the new object alone.
        let missed = !self.unwatched && random.bool();
        self.unwatched |= missed;
        let same = random.bool().then(|| object.spec.clone());
        object.metadata.finalizers = None;
        object.metadata.deletion_timestamp.get_or_insert(Time(stamp));
        self.store(object);
        self.create_with(name, random.usize(..LOCKS.len()), stamp, random.u8(..4) == 0);
        if let (Some(spec), Some(mut object)) = (same, self.locks.get(&key(name)).cloned()) {
            object.spec = spec;
            self.store(object);
        }
        if missed {
            self.watch_again(now);
        }
    }

    /// Simulates a change by another writer.
    pub(super) fn touch(&mut self, name: &str) {
        if let Some(object) = self.locks.get(&key(name)).cloned() {
            self.store(object);
        }
    }

    pub(super) fn abstain(
        &mut self,
        seen: &LeaderLock,
        text: Option<String>,
    ) -> Result<Box<LeaderLock>, String> {
        let key = ObjectKey::of(seen);
        let Some(object) = self.locks.get(&key).filter(|_| !self.unserved) else {
            return Err("not found".to_owned());
        };
        if object.metadata.resource_version != seen.metadata.resource_version {
            return Err("a conflict".to_owned());
        }
        self.annotate(&key.name, ABSTAIN, text);
        Ok(Box::new(self.locks[&key].clone()))
    }

    pub(super) fn annotate(&mut self, name: &str, annotation: &str, value: Option<String>) {
        if let Some(mut object) = self.locks.get(&key(name)).cloned() {
            let all = object.metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => all.insert(annotation.to_owned(), value),
                None => all.remove(annotation),
            };
            self.store(object);
        }
    }

    pub(super) fn delete(&mut self, name: &str, now: Timestamp) {
        if let Some(mut object) = self.locks.get(&key(name)).cloned() {
            object.metadata.deletion_timestamp.get_or_insert(Time(now));
            self.store(object);
        }
    }

    pub(super) fn apply_quorum(&mut self, name: &str, random: &mut fastrand::Rng, now: Timestamp) {
        if self.quorums.contains_key(name) {
            return;
        }
        // With the masters of the other quorum, or with different ones.
        let index = if name == "q" {
            0
        } else {
            random.usize(..QUORUMS.len())
        };
        let mut object = QUORUMS[index].clone();
        self.version += 1;
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(format!("uid-{}", self.version));
        object.metadata.generation = Some(1);
        object.metadata.creation_timestamp = Some(Time(now));
        self.store_quorum(object);
    }

    /// Changes the URL of a master of this quorum.
    pub(super) fn move_master(&mut self, name: &str, random: &mut fastrand::Rng) {
        let Some(mut object) = self.quorums.get(name).cloned() else {
            return;
        };
        let index = random.usize(..object.spec.masters.len());
        object.spec.masters[index].url = format!("redis://{name}-{index}-{}", random.u8(..2));
        object.metadata.generation = object.metadata.generation.map(|generation| generation + 1);
        self.store_quorum(object);
    }

    pub(super) fn delete_quorum(&mut self, name: &str, now: Timestamp) {
        if let Some(mut object) = self.quorums.get(name).cloned() {
            object.metadata.deletion_timestamp.get_or_insert(Time(now));
            self.store_quorum(object);
        }
    }

    pub(super) fn write_lock(&mut self, key: &ObjectKey, version: &str, status: &Value) -> Written {
        let Some(mut object) = self.locks.get(key).filter(|_| !self.unserved).cloned() else {
            return Written::Gone;
        };
        if object.metadata.resource_version.as_deref() != Some(version) {
            return Written::Conflict;
        }
        let merged = merged(&object.status, status);
        if object.status == merged {
            return Written::Lock(Box::new(object));
        }
        object.status = merged;
        Written::Lock(Box::new(self.store(object)))
    }

    pub(super) fn write_quorum(&mut self, name: &str, version: &str, status: &Value) -> Written {
        let Some(mut object) = self.quorums.get(name).filter(|_| !self.unserved).cloned() else {
            return Written::Gone;
        };
        if object.metadata.resource_version.as_deref() != Some(version) {
            return Written::Conflict;
        }
        object.status = merged(&object.status, status);
        Written::Quorum(Box::new(self.store_quorum(object)))
    }

    pub(super) fn set_quorum_finalizers(
        &mut self,
        name: &str,
        version: Option<&str>,
        finalizers: Vec<String>,
    ) -> Guarded {
        let Some(mut object) = self.quorums.get(name).filter(|_| !self.unserved).cloned() else {
            return Guarded::Gone;
        };
        if object.metadata.resource_version.as_deref() != version {
            return Guarded::Conflict;
        }
        object.metadata.finalizers = Some(finalizers);
        Guarded::Written(Box::new(self.store_quorum(object)))
    }
}
