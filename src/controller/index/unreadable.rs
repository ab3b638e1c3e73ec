//! Handles objects that this version cannot read. They stay as they are, except that a deleted object is let go: its
//! finalizer would keep it, and its namespace, forever.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::Value;

use super::{Effect, Index, ObjectRequest, World};
use crate::{
    api::{FINALIZER, salvage::salvage},
    controller::{
        events::{EventReason, EventRecord},
        object::{ObjectKey, trim},
    },
    targets::Origin,
};

/// Interval between attempts to read an object that is being deleted.
const AGAIN: Duration = Duration::from_secs(5);

impl Index {
    pub(super) fn on_unreadable(&mut self, key: ObjectKey, metadata: &ObjectMeta, error: String) {
        if self.locks.unreadable.get(&key) != Some(&error) {
            let in_force = self.locks.get(&key).is_some();
            tracing::warn!(object = %format!("LeaderLock {key}"), reason = error, last_valid_stays = in_force,
                "object cannot be read by this version");
            self.locks.unreadable.insert(key.clone(), error);
            self.due.locks.insert(key.clone());
        }
        if metadata.deletion_timestamp.is_some() {
            self.let_go(key, metadata);
        }
    }

    /// Lets a deleted object go. The targets of its last readable version are stopped and the lock is released, as for
    /// every deleted object. Without such a version, the readable parts of the object are used.
    fn let_go(&mut self, key: ObjectKey, metadata: &ObjectMeta) {
        let guarded = metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == FINALIZER);
        let known = self.locks.get_mut(&key);
        if let Some(entry) = known.filter(|entry| entry.object.metadata.uid == metadata.uid) {
            let known = &mut entry.object.metadata;
            known.deletion_timestamp.clone_from(&metadata.deletion_timestamp);
            known.finalizers.clone_from(&metadata.finalizers);
            self.due.locks.insert(key);
        } else if guarded && self.in_flight.salvaging.insert(key.clone()) {
            self.read_deleted(key, Box::new(metadata.clone()), Duration::ZERO);
        }
    }

    fn read_deleted(&mut self, key: ObjectKey, metadata: Box<ObjectMeta>, pause: Duration) {
        self.effects.push(Effect::Object(ObjectRequest::ReadDeleted {
            key,
            metadata,
            pause,
        }));
    }

    pub(super) fn on_salvaged(
        &mut self,
        key: &ObjectKey,
        end: Result<Option<Box<Value>>, Box<ObjectMeta>>,
        at: &World<'_>,
    ) {
        if !self.locks.unreadable.contains_key(key) {
            // The object is gone, or can be read again.
            self.in_flight.salvaging.remove(key);
            return;
        }
        let object = match end {
            Ok(object) => object,
            // Without this, the object would not be read again: the watch reports only changes.
            Err(metadata) => return self.read_deleted(key.clone(), metadata, AGAIN),
        };
        self.in_flight.salvaging.remove(key);
        let Some(mut salvaged) = object.as_deref().and_then(salvage) else {
            return;
        };
        if salvaged.object.metadata.deletion_timestamp.is_none() {
            // The object was created again since.
            return;
        }
        trim(&mut salvaged.object.metadata);
        if !salvaged.lost.is_empty() {
            let note = format!(
                "this version of the operator cannot read {}, and leaves the targets concerned as they are: stop them by \
                 hand; the finalizer is removed",
                salvaged.lost.join(", ")
            );
            tracing::warn!(object = %format!("LeaderLock {key}"), reason = note, "TargetsLeft");
            let object = salvaged.object.object_ref(&());
            let what = EventReason::TargetsLeft;
            self.record(EventRecord {
                reason: what,
                object,
                note,
            });
        }
        // The object stays unreadable: its status is not written.
        self.locks.see(key, salvaged.object, Origin::Watch, at.now);
        self.due.locks.insert(key.clone());
    }
}
