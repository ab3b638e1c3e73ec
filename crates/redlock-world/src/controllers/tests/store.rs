//! A store of objects that applies the writes of the controllers as an API server does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{
    ClusterObjects, ControllerSettings, ControllerWrite, Controllers, Propagation,
    object::{FieldPath, count, is_deleting, later, name, namespace, text, uid, written},
};

const KINDS: [&str; 12] = [
    "ConfigMap",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Lease",
    "Namespace",
    "Node",
    "PersistentVolumeClaim",
    "Pod",
    "ReplicaSet",
    "StatefulSet",
];

type Key = (String, String, String);

#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    revisions: BTreeMap<String, u64>,
    version: u64,
}

impl ClusterObjects for Store {
    fn list(&self, kind: &str) -> Vec<Arc<Value>> {
        let of_kind = self.objects.iter().filter(|((one, ..), _)| one == kind);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    fn kinds(&self) -> Vec<String> {
        KINDS.map(str::to_owned).to_vec()
    }

    fn revision(&self) -> Option<u64> {
        Some(self.version)
    }

    fn revision_of(&self, kind: &str) -> Option<u64> {
        Some(self.revisions.get(kind).copied().unwrap_or(0))
    }
}

fn key(kind: &str, object: &Value) -> Key {
    (
        kind.to_owned(),
        namespace(object).to_owned(),
        name(object).to_owned(),
    )
}

impl Store {
    fn put(&mut self, kind: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        *self.revisions.entry(kind.to_owned()).or_default() += 1;
        let ended = object["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty);
        let ended = ended && count(&object, "/metadata/deletionGracePeriodSeconds") == 0;
        if is_deleting(&object) && ended && kind != "Namespace" {
            self.objects.remove(&key(kind, &object));
        } else {
            self.objects.insert(key(kind, &object), Arc::new(object));
        }
    }

    pub(super) fn create(&mut self, kind: &str, mut object: Value, now: Timestamp) -> bool {
        if self.objects.contains_key(&key(kind, &object)) {
            return false;
        }
        self.version += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["creationTimestamp"] = json!(written(now));
        self.put(kind, object);
        true
    }

    fn replace(&mut self, kind: &str, object: &Value, status: bool) -> bool {
        let Some(stored) = self.objects.get(&key(kind, object)).cloned() else {
            return false;
        };
        if stored["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return false;
        }
        let mut next = if status {
            let mut next = Value::clone(&stored);
            next["metadata"]["annotations"] = object["metadata"]["annotations"].clone();
            next
        } else {
            object.clone()
        };
        let status_of = if status { object } else { &*stored };
        match status_of.get("status") {
            Some(status) => next["status"] = status.clone(),
            None => drop(next.as_object_mut().unwrap().remove("status")),
        }
        if next["spec"] != stored["spec"] {
            next["metadata"]["generation"] = json!(count(&stored, "/metadata/generation") + 1);
        }
        assert_ne!(next, *stored, "a write that changes nothing");
        self.put(kind, next);
        true
    }

    pub(super) fn get(&self, kind: &str, space: &str, name: &str) -> Option<Arc<Value>> {
        self.objects
            .get(&(kind.to_owned(), space.to_owned(), name.to_owned()))
            .cloned()
    }

    pub(super) fn edit(&mut self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = Value::clone(&self.get(kind, "n", name).unwrap());
        let status = object["status"].clone();
        edit(&mut object);
        let writes_status = object["status"] != status;
        assert!(self.replace(kind, &object, writes_status));
    }

    pub(super) fn delete(
        &mut self,
        (kind, space, name): (&str, &str, &str),
        grace: Option<u64>,
        finalizer: Option<&str>,
        now: Timestamp,
    ) -> bool {
        let Some(stored) = self.get(kind, space, name) else {
            return false;
        };
        let mut object = Value::clone(&stored);
        let bound = kind == "Pod" && !text(&object, "/spec/nodeName").is_empty();
        let over = matches!(text(&object, "/status/phase"), "Succeeded" | "Failed");
        let usual = object
            .at("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_u64);
        let grace = if bound && !over {
            grace.or(usual).unwrap_or(30)
        } else {
            0
        };
        let before = count(&object, "/metadata/deletionGracePeriodSeconds").unsigned_abs();
        if is_deleting(&object) && (grace >= before || kind != "Pod") && kind != "Namespace" {
            return false;
        }
        object["metadata"]["deletionTimestamp"] = json!(written(later(now, Duration::from_secs(grace))));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(finalizer) = finalizer {
            let mut all = object["metadata"]["finalizers"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            all.push(json!(finalizer));
            object["metadata"]["finalizers"] = json!(all);
        }
        self.put(kind, object);
        true
    }

    /// Applies a write. Returns false if the write has no effect.
    fn apply(&mut self, write: ControllerWrite, now: Timestamp) -> bool {
        match write {
            ControllerWrite::Create { kind, object } => self.create(&kind, object, now),
            ControllerWrite::Update { kind, object } => self.replace(&kind, &object, false),
            ControllerWrite::UpdateStatus { kind, object } => self.replace(&kind, &object, true),
            ControllerWrite::Bind {
                namespace,
                name,
                node,
                ..
            } => {
                let Some(pod) = self.get("Pod", &namespace, &name) else {
                    return false;
                };
                let mut pod = Value::clone(&pod);
                pod["spec"]["nodeName"] = json!(node);
                self.put("Pod", pod);
                true
            }
            ControllerWrite::Delete {
                kind,
                namespace,
                name,
                uid: wanted,
                grace_seconds,
                propagation,
            } => {
                let finalizer = (propagation == Propagation::Foreground).then_some("foregroundDeletion");
                let found = self.get(&kind, &namespace, &name);
                found.is_some_and(|found| uid(&found) == wanted)
                    && self.delete((&kind, &namespace, &name), grace_seconds, finalizer, now)
            }
            ControllerWrite::FinalizeNamespace { object } => {
                self.version += 1;
                *self.revisions.entry("Namespace".to_owned()).or_default() += 1;
                self.objects
                    .remove(&("Namespace".to_owned(), String::new(), name(&object).to_owned()))
                    .is_some()
            }
        }
    }
}

/// A cluster with its controllers and its time.
pub(super) struct Cluster {
    pub(super) store: Store,
    pub(super) controllers: Controllers,
    pub(super) now: Timestamp,
    pub(super) writes: usize,
    /// Whether all writes of the controllers are refused.
    pub(super) refuses: bool,
    /// The number of refused writes.
    pub(super) refused: usize,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self::with(ControllerSettings::default(), 7)
    }

    pub(super) fn with(settings: ControllerSettings, seed: u64) -> Self {
        Self {
            store: Store::default(),
            controllers: Controllers::new(settings, seed),
            now: "2026-01-01T12:00:00Z".parse().unwrap(),
            writes: 0,
            refuses: false,
            refused: 0,
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = later(self.now, time);
        while self.now < end {
            let next = self.step();
            self.now = next.unwrap_or(end).min(end);
        }
        self.step();
    }

    /// Runs until no controller writes at this time. Returns the next time of a timer.
    fn step(&mut self) -> Option<Timestamp> {
        for _ in 0..1_000 {
            let reconciled = self.controllers.reconcile(&self.store, self.now);
            if let Some(next) = reconciled.next {
                assert!(next > self.now, "a timer that is over");
            }
            if reconciled.writes.is_empty() {
                return reconciled.next;
            }
            for planned in reconciled.writes {
                if self.refuses {
                    self.refused += 1;
                    self.controllers.refused(planned.by, self.now);
                } else if self.store.apply(planned.write, self.now) {
                    self.writes += 1;
                }
            }
        }
        panic!("the controllers write without end");
    }

    pub(super) fn seconds(&mut self, seconds: f64) {
        self.run_for(Duration::from_secs_f64(seconds));
    }

    /// Runs in small steps until `done`, at most for two minutes. Returns the time that it took.
    pub(super) fn until(&mut self, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !done(self) {
            let passed = self.now.duration_since(start).unsigned_abs();
            assert!(
                passed < Duration::from_secs(120),
                "not done: {:#?}",
                self.store.objects
            );
            self.run_for(Duration::from_millis(10));
        }
        self.now.duration_since(start).unsigned_abs()
    }

    pub(super) fn create(&mut self, kind: &str, name: &str, object: Value) {
        let mut object = object;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!("n");
        assert!(self.store.create(kind, object, self.now));
    }

    pub(super) fn get(&self, kind: &str, name: &str) -> Arc<Value> {
        self.store
            .get(kind, "n", name)
            .unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    pub(super) fn delete(&mut self, kind: &str, name: &str, finalizer: Option<&str>) {
        assert!(self.store.delete((kind, "n", name), None, finalizer, self.now));
    }

    pub(super) fn pods(&self) -> Vec<Arc<Value>> {
        self.store.list("Pod")
    }

    pub(super) fn names(&self, kind: &str) -> Vec<String> {
        self.store
            .list(kind)
            .iter()
            .map(|one| name(one).to_owned())
            .collect()
    }

    /// Runs for ten minutes, in which nothing may be written after the first three seconds.
    pub(super) fn is_at_rest(&mut self) {
        self.seconds(3.0);
        let before = self.writes;
        self.seconds(600.0);
        assert_eq!(self.writes, before, "writes at rest");
    }
}
