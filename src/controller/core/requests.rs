//! Sends the requests to the API server that concern neither statuses nor events.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{GetParams, Patch, PatchParams, PostParams},
    core::{DeserializeGuard, Request},
};
use serde_json::{Value, json};
use tokio::time;

use crate::{
    api::{
        API_VERSION, FINALIZER, LeaderLock, RedisQuorum,
        abstention::{ABSTAIN, Abstention},
        bounds::RECORD_LIMIT,
        in_force::{IN_FORCE, InForce},
        readable::{outline, read_in_parts},
    },
    clock,
    controller::{
        coordination::CoordinatorRecord,
        index::{
            CoordinatorWrite, CoordinatorWriteEnd, FinalizerChange, FinalizerEnd, Guarded, LockReadEnd,
            has_finalizer,
        },
        object::ObjectKey,
        rate_limiter::RateLimiter,
    },
    lease::BootInstant,
    targets::deepest,
};

const FINALIZER_MANAGER: &str = "redlock-operator-finalizer";
const COORDINATOR_MANAGER: &str = "redlock-operator-coordinator";
const ABSTAIN_MANAGER: &str = "redlock-operator-abstain";
/// Interval between attempts to read an object that is being deleted.
const AGAIN: Duration = Duration::from_secs(5);

/// Returns the metadata that the operator applies for this change.
fn finalizer_metadata(key: &ObjectKey, uid: Option<&str>, change: &FinalizerChange) -> Result<Value, String> {
    // The UID restricts the write to this object: a new object may have the same name.
    Ok(match change {
        FinalizerChange::Add(record) => json!({
            "name": key.name, "uid": uid, "finalizers": [FINALIZER],
            "annotations": { IN_FORCE: record_text(record)? },
        }),
        FinalizerChange::Remove {
            version: Some(version),
        } => json!({
            "name": key.name, "uid": uid, "finalizers": [], "resourceVersion": version,
        }),
        FinalizerChange::Remove { version: None } => {
            json!({ "name": key.name, "uid": uid, "finalizers": [] })
        }
    })
}

/// Returns the record of the targets in force as text. One that no replica would read is not written, and so no target of it
/// is started.
fn record_text(record: &InForce) -> Result<String, String> {
    let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
    if text.len() > RECORD_LIMIT {
        return Err(format!(
            "the record of {} targets that run or are not known to be stopped has {} bytes, of {RECORD_LIMIT}: no more targets \
             are started before some of them are stopped",
            record.targets.len(),
            text.len()
        ));
    }
    Ok(text)
}

/// Adds or removes the finalizer of the object with this UID.
pub(super) async fn set_finalizer(
    client: Client,
    rate_limiter: &Arc<RateLimiter>,
    key: &ObjectKey,
    uid: Option<&str>,
    change: &FinalizerChange,
) -> Result<FinalizerEnd, String> {
    let api = Api::<LeaderLock>::namespaced(client, &key.namespace);
    let present = change.adds();
    let metadata = finalizer_metadata(key, uid, change)?;
    let patch = json!({ "apiVersion": API_VERSION, "kind": "LeaderLock", "metadata": metadata });
    // An addition waits for its turn, since every start of targets needs the finalizer. A removal does not
    // wait: the deletion of the object waits for it, and the last replica has little time at shutdown.
    if present {
        rate_limiter.sent(&key.namespace).await;
    } else {
        rate_limiter.count(1, clock::now());
    }
    let parameters = PatchParams::apply(FINALIZER_MANAGER).force();
    let mut end = api.patch(&key.name, &parameters, &Patch::Apply(&patch)).await;
    if let Ok(object) = &end
        && !present
        && has_finalizer(object)
    {
        // Another field manager also owns the finalizer, for example after a backup was restored: the
        // finalizer would keep the object forever.
        let patch = Patch::Merge(without(object));
        end = api.patch(&key.name, &PatchParams::default(), &patch).await;
    }
    match end {
        Ok(object) => Ok(FinalizerEnd::Written(Box::new(object))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(FinalizerEnd::Gone),
        // The write succeeded, but this version cannot read the returned object.
        Err(kube::Error::SerdeError(_)) if !present => drop_finalizer(&api, &key.name)
            .await
            .map(|()| FinalizerEnd::Unread),
        Err(error) => Err(deepest(&error)),
    }
}

/// Returns a patch that removes the finalizer from this version of the object.
fn without(object: &LeaderLock) -> Value {
    let finalizers = object.metadata.finalizers.iter().flatten();
    let rest: Vec<&String> = finalizers.filter(|one| *one != FINALIZER).collect();
    json!({ "metadata": {
        "resourceVersion": object.metadata.resource_version,
        "finalizers": rest,
        "annotations": { IN_FORCE: null },
    } })
}

/// Writes the Lease of the coordinator. After a conflict the present object is read, and a resignation is repeated.
pub(super) async fn write_coordinator(
    client: Client,
    namespace: &str,
    name: &str,
    mut write: CoordinatorWrite,
) -> CoordinatorWriteEnd {
    let api = Api::<Lease>::namespaced(client, namespace);
    let present = match try_coordinator(&api, name, &write).await {
        Ok(end) => return end,
        Err(present) => present,
    };
    let known = CoordinatorRecord::of(&present);
    // A resignation is repeated while the Lease has the term that this replica resigns from.
    if write.record.holder.is_empty() && known.transitions == write.record.transitions {
        write.record.copy = known.copy;
        write.version.clone_from(&present.metadata.resource_version);
        return try_coordinator(&api, name, &write)
            .await
            .unwrap_or_else(CoordinatorWriteEnd::Read);
    }
    CoordinatorWriteEnd::Read(present)
}

/// Writes the Lease once. Returns the present object after a conflict.
async fn try_coordinator(
    api: &Api<Lease>,
    name: &str,
    write: &CoordinatorWrite,
) -> Result<CoordinatorWriteEnd, Box<Lease>> {
    let lease = write.record.to_lease(name, write.version.as_deref());
    let parameters = PostParams {
        field_manager: Some(COORDINATOR_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let written = match &write.version {
        Some(_) => api.replace(name, &parameters, &lease).await,
        None => api.create(&parameters, &lease).await,
    };
    let failed = |error: &kube::Error| CoordinatorWriteEnd::Failed {
        forbidden: matches!(error, kube::Error::Api(status) if status.is_forbidden()),
        reason: deepest(error),
    };
    match written {
        Ok(lease) => Ok(CoordinatorWriteEnd::Read(Box::new(lease))),
        Err(kube::Error::Api(status)) if status.is_not_found() && write.version.is_some() => {
            Ok(CoordinatorWriteEnd::Absent)
        }
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            match api.get_opt(name).await {
                Ok(Some(lease)) => Err(Box::new(lease)),
                Ok(None) => Ok(CoordinatorWriteEnd::Absent),
                Err(error) => Ok(failed(&error)),
            }
        }
        Err(error) => Ok(failed(&error)),
    }
}

/// Reads an object from the API server, not from a cache. Returns the time at which the request was sent.
pub(super) async fn read_lock(
    client: Client,
    rate_limiter: &Arc<RateLimiter>,
    key: &ObjectKey,
) -> (BootInstant, LockReadEnd) {
    rate_limiter.sent(&key.namespace).await;
    let sent = clock::now();
    let end = match get_lock(client, key).await {
        Ok(DeserializeGuard(Ok(object))) => LockReadEnd::Read(Box::new(object)),
        Ok(DeserializeGuard(Err(malformed))) => {
            LockReadEnd::Malformed(Box::new(malformed.metadata), malformed.error)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => LockReadEnd::Gone,
        Err(error) => LockReadEnd::Failed(deepest(&error)),
    };
    (sent, end)
}

async fn get_lock(client: Client, key: &ObjectKey) -> kube::Result<DeserializeGuard<LeaderLock>> {
    let text = get_text(&client, key).await?;
    read_in_parts(&text).map_err(kube::Error::SerdeError)
}

async fn get_text(client: &Client, key: &ObjectKey) -> kube::Result<String> {
    let request = Request::new(LeaderLock::url_path(&(), Some(&key.namespace)));
    let request = request.get(&key.name, &GetParams::default());
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await
}

/// Removes the finalizer from an object that this version cannot read.
async fn drop_finalizer(api: &Api<LeaderLock>, name: &str) -> Result<(), String> {
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

/// Writes the finalizers with the resource version, so that no finalizer of another writer is lost and no new
/// object of the same name is changed.
pub(super) async fn set_quorum_finalizers(
    client: Client,
    name: &str,
    version: Option<String>,
    finalizers: &[String],
) -> Guarded {
    let api = Api::<RedisQuorum>::all(client);
    let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
    let parameters = PatchParams {
        field_manager: Some(FINALIZER_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api.patch(name, &parameters, &Patch::Merge(&patch)).await {
        Ok(object) => Guarded::Written(Box::new(object)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Guarded::Gone,
        Err(kube::Error::Api(status)) if status.is_conflict() => Guarded::Conflict,
        Err(error) => Guarded::Failed(deepest(&error)),
    }
}

/// Writes or removes the abstention of this cluster, in the version of the object that was read.
pub(super) async fn abstain(
    client: Client,
    object: LeaderLock,
    abstention: Option<&Abstention>,
) -> Result<Box<LeaderLock>, String> {
    let api = Api::<LeaderLock>::namespaced(client, object.namespace().as_deref().unwrap_or_default());
    let text = match abstention {
        Some(abstention) => Some(serde_json::to_string(abstention).map_err(|error| error.to_string())?),
        None => None,
    };
    let patch = json!({
        "metadata": {
            "resourceVersion": object.metadata.resource_version,
            "annotations": { ABSTAIN: text },
        },
    });
    let parameters = PatchParams {
        field_manager: Some(ABSTAIN_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = object.metadata.name.unwrap_or_default();
    let end = api.patch(&name, &parameters, &Patch::Merge(&patch)).await;
    end.map(Box::new).map_err(|error| deepest(&error))
}

/// Reads an object that this version cannot parse, retrying until the API server answers. Returns `None` if the object
/// is gone.
pub(super) async fn read_deleted(
    client: Client,
    rate_limiter: &Arc<RateLimiter>,
    key: &ObjectKey,
) -> Option<Box<Value>> {
    loop {
        rate_limiter.sent(&key.namespace).await;
        match get_text(&client, key).await {
            Ok(text) => return outline(&text).map(Box::new),
            Err(kube::Error::Api(status)) if status.is_not_found() => return None,
            Err(error) => {
                tracing::warn!(object = %format!("LeaderLock {key}"), reason = deepest(&error),
                    "an object that is being deleted could not be read; retrying");
            }
        }
        time::sleep(AGAIN).await;
    }
}
