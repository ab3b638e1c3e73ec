//! Lets the simulated controllers of a cluster act on its API server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    controllers::{ClusterObjects, ControllerWrite, Controllers, PlannedWrite, Propagation},
    kubernetes::{
        self, ApiError, ApiServer, DeleteOptions, ObjectKey, ResourceId, Subresource, WriteOptions,
    },
};

/// The kinds that the controllers read, with their resources.
const KINDS: [(&str, ResourceId); 15] = [
    ("Pod", ResourceId::PODS),
    ("Node", ResourceId::NODES),
    ("Namespace", ResourceId::NAMESPACES),
    ("Service", ResourceId::SERVICES),
    ("Secret", ResourceId::SECRETS),
    ("ConfigMap", ResourceId::CONFIG_MAPS),
    ("PersistentVolumeClaim", ResourceId::VOLUME_CLAIMS),
    ("Deployment", ResourceId::DEPLOYMENTS),
    ("StatefulSet", ResourceId::STATEFUL_SETS),
    ("ReplicaSet", ResourceId::REPLICA_SETS),
    ("DaemonSet", ResourceId::DAEMON_SETS),
    ("Job", ResourceId::JOBS),
    ("CronJob", ResourceId::CRON_JOBS),
    ("Lease", ResourceId::LEASES),
    ("LeaderLock", ResourceId::LEADER_LOCKS),
];

fn resource(kind: &str) -> ResourceId {
    let known = KINDS.into_iter().find(|(name, _)| *name == kind);
    known
        .unwrap_or_else(|| panic!("kind {kind} is not in the table"))
        .1
}

/// The objects of an API server, as the controllers read them.
struct ApiObjects<'a>(&'a ApiServer);

impl ClusterObjects for ApiObjects<'_> {
    fn list(&self, kind: &str) -> Vec<Arc<Value>> {
        self.0.all(&resource(kind))
    }

    fn kinds(&self) -> Vec<String> {
        KINDS.iter().map(|(kind, _)| (*kind).to_owned()).collect()
    }

    fn revision(&self) -> Option<u64> {
        KINDS.iter().map(|(kind, _)| self.revision_of(kind)).sum()
    }

    fn revision_of(&self, kind: &str) -> Option<u64> {
        Some(self.0.change_count(&resource(kind)))
    }
}

/// Carries out the writes of the controllers. Returns whether there was one, and the time of the next call.
pub fn reconcile(
    api: &ApiServer,
    controllers: &mut Controllers,
    now: jiff::Timestamp,
) -> (bool, Option<jiff::Timestamp>) {
    let reconciled = controllers.reconcile(&ApiObjects(api), now);
    let wrote = !reconciled.writes.is_empty();
    for planned in reconciled.writes {
        let by = planned.by;
        match write(api, planned) {
            Ok(()) => {}
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(_) => controllers.refused(by, now),
        }
    }
    (wrote, reconciled.next)
}

fn key_of(kind: &str, object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectKey::new(resource(kind), text("namespace"), text("name"))
}

fn write(api: &ApiServer, planned: PlannedWrite) -> Result<(), ApiError> {
    let caller = planned.writer.name();
    match planned.write {
        ControllerWrite::Create { kind, object } => api.create(&caller, &resource(&kind), object).map(drop),
        ControllerWrite::Update { kind, object } => {
            api.update(&caller, &key_of(&kind, &object), object).map(drop)
        }
        ControllerWrite::UpdateStatus { kind, object } => api
            .update_status(&caller, &key_of(&kind, &object), object)
            .map(drop),
        ControllerWrite::Bind {
            namespace,
            name,
            uid,
            node,
        } => {
            let key = ObjectKey::new(ResourceId::PODS, namespace, name);
            let patch = json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}});
            api.merge(&caller, &key, patch).map(drop)
        }
        ControllerWrite::Delete {
            kind,
            namespace,
            name,
            uid,
            grace_seconds,
            propagation,
        } => {
            let key = ObjectKey::new(resource(&kind), namespace, name);
            let options = DeleteOptions {
                grace_seconds: grace_seconds.and_then(|seconds| i64::try_from(seconds).ok()),
                propagation: Some(match propagation {
                    Propagation::Background => kubernetes::Propagation::Background,
                    Propagation::Foreground => kubernetes::Propagation::Foreground,
                }),
                uid: Some(uid),
                ..DeleteOptions::default()
            };
            api.delete(&caller, &key, &options).map(drop)
        }
        ControllerWrite::FinalizeNamespace { object } => {
            let options = WriteOptions {
                subresource: Subresource::Finalize,
                ..WriteOptions::default()
            };
            api.update_with(&caller, &key_of("Namespace", &object), object, &options)
                .map(drop)
        }
    }
}
