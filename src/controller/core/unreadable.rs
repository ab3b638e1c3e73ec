//! Objects that this version cannot read. They are left alone, except that one that is being deleted is let go: its
//! finalizer would keep it, and its namespace, forever.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time;

use super::{Core, Job};
use crate::{
    api::{FINALIZER, LeaderLock, salvage::salvage},
    controller::{
        events::{EventReason, EventRecord},
        object::{ObjectKey, trim},
    },
    lease::Moment,
    targets::deepest,
};

/// Between two tries to read what is being deleted.
const AGAIN: Duration = Duration::from_secs(5);

impl Core {
    pub(super) fn on_unreadable(&mut self, key: ObjectKey, metadata: &ObjectMeta, error: String) {
        if self.locks.unreadable.get(&key) != Some(&error) {
            let in_force = self.locks.get(&key).is_some();
            tracing::warn!(object = %format!("LeaderLock {key}"), reason = error, last_valid_stays = in_force,
                "object cannot be read by this version");
            self.locks.unreadable.insert(key.clone(), error);
            self.touched_locks.insert(key.clone());
        }
        if metadata.deletion_timestamp.is_some() {
            self.let_go(key, metadata);
        }
    }

    /// What an earlier version of the object declared is stopped and released as of every object that is deleted. Without
    /// one, the object is read as far as it can be.
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
            self.touched_locks.insert(key);
        } else if guarded && self.salvaging.insert(key.clone()) {
            self.read_deleted(key, metadata.clone(), Duration::ZERO);
        }
    }

    /// Reads an object that is being deleted, after a pause.
    fn read_deleted(&mut self, key: ObjectKey, metadata: ObjectMeta, pause: Duration) {
        let client = self.clients.work.clone();
        let pace = self.pace.clone();
        let broken = Job::Salvaged(key.clone(), Err(Box::new(metadata)));
        self.jobs.start(broken, async move {
            let resource = ApiResource::erase::<LeaderLock>(&());
            let api = Api::<DynamicObject>::namespaced_with(client, &key.namespace, &resource);
            time::sleep(pause).await;
            loop {
                pace.sent().await;
                match api.get_opt(&key.name).await {
                    Ok(found) => {
                        let object = found.and_then(|object| serde_json::to_value(object).ok());
                        return Job::Salvaged(key, Ok(object.map(Box::new)));
                    }
                    Err(error) => {
                        tracing::warn!(object = %format!("LeaderLock {key}"), reason = deepest(&error),
                            "an object that is being deleted could not be read; tried again");
                    }
                }
                time::sleep(AGAIN).await;
            }
        });
    }

    pub(super) fn on_salvaged(
        &mut self,
        key: &ObjectKey,
        end: Result<Option<Box<Value>>, Box<ObjectMeta>>,
        now: Moment,
    ) {
        let Some(error) = self.locks.unreadable.get(key).cloned() else {
            // It is gone, or can be read again.
            self.salvaging.remove(key);
            return;
        };
        let object = match end {
            Ok(object) => object,
            // Nothing else would read it again: the watch reports only changes.
            Err(metadata) => return self.read_deleted(key.clone(), *metadata, AGAIN),
        };
        self.salvaging.remove(key);
        let Some(mut salvaged) = object.as_deref().and_then(salvage) else {
            return;
        };
        if salvaged.object.metadata.deletion_timestamp.is_none() {
            // Made anew since.
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
            let reason = EventReason::TargetsLeft;
            self.events.emit(EventRecord { reason, object, note });
        }
        self.locks.see(key, salvaged.object, now);
        // Still: no status is written of it.
        self.locks.unreadable.insert(key.clone(), error);
        self.touched_locks.insert(key.clone());
    }
}

/// Takes the finalizer off an object whose answers cannot be read.
pub(super) async fn drop_finalizer(api: &Api<LeaderLock>, name: &str) -> Result<(), String> {
    let found = match api.get_metadata_opt(name).await {
        Ok(Some(found)) => found.metadata,
        Ok(None) => return Ok(()),
        Err(error) => return Err(deepest(&error)),
    };
    let all = found.finalizers.unwrap_or_default();
    let rest: Vec<&String> = all.iter().filter(|one| *one != FINALIZER).collect();
    if rest.len() == all.len() {
        return Ok(());
    }
    let patch = json!({ "metadata": { "resourceVersion": found.resource_version, "finalizers": rest } });
    let end = api
        .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    end.map(drop).map_err(|error| deepest(&error))
}
