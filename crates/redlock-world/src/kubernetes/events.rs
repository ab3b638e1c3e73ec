//! The recent changes of each resource, from which watches read.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::{encode, object::ObjectKey, registry::ResourceKind};

/// One committed change of an object.
#[derive(Debug)]
pub struct ObjectEvent {
    pub revision: u64,
    pub key: ObjectKey,
    pub before: Option<Arc<Value>>,
    /// The object after the change; `None` after a deletion.
    pub after: Option<Arc<Value>>,
    /// The object that watches deliver: after a deletion its last state, with the revision of the deletion.
    pub(super) delivered: Arc<Value>,
    pub(super) at: Instant,
    full: OnceLock<Bytes>,
    partial: OnceLock<Bytes>,
}

impl ObjectEvent {
    pub(super) fn new(
        revision: u64,
        key: ObjectKey,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
        delivered: Arc<Value>,
    ) -> Self {
        Self {
            revision,
            key,
            before,
            after,
            delivered,
            at: Instant::now(),
            full: OnceLock::new(),
            partial: OnceLock::new(),
        }
    }

    /// Returns the delivered object as JSON, encoded once for all watches.
    pub(super) fn encoded(&self, is_partial: bool) -> &Bytes {
        if is_partial {
            self.partial
                .get_or_init(|| encode::bytes(&encode::partial(&self.delivered)))
        } else {
            self.full.get_or_init(|| encode::bytes(&self.delivered))
        }
    }
}

/// The recent changes of one resource.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    pub(super) events: VecDeque<Arc<ObjectEvent>>,
    /// The revision of the last change that is no longer kept.
    pub(super) dropped: u64,
    /// Wakes the watches of the resource.
    pub(super) changed: Arc<Notify>,
}

impl EventLog {
    pub(super) fn push(&mut self, event: ObjectEvent, window: usize) {
        self.events.push_back(Arc::new(event));
        while self.events.len() > window {
            if let Some(oldest) = self.events.pop_front() {
                self.dropped = oldest.revision;
            }
        }
        self.changed.notify_waiters();
    }

    /// Forgets all changes. A watch that was not delivered one of them has missed it.
    pub(super) fn compact(&mut self) {
        if let Some(last) = self.events.back() {
            self.dropped = last.revision;
        }
        self.events.clear();
        self.changed.notify_waiters();
    }

    /// Returns the first change after a revision.
    pub(super) fn after(&self, revision: u64) -> Option<&Arc<ObjectEvent>> {
        let first = self.events.partition_point(|event| event.revision <= revision);
        self.events.get(first)
    }
}

/// Returns the object that a watch delivers for a deletion.
pub(super) fn deleted(object: &Value, revision: u64) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object
}

/// Returns the bookmark of a revision.
pub(super) fn bookmark(kind: &ResourceKind, revision: u64, ends_initial: bool) -> Value {
    let mut metadata = serde_json::json!({"resourceVersion": revision.to_string()});
    if ends_initial {
        metadata["annotations"] = serde_json::json!({"k8s.io/initial-events-end": "true"});
    }
    serde_json::json!({"type": "BOOKMARK", "object": {
        "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata,
    }})
}
