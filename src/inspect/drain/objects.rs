//! The objects of the cluster that `drain` reads and writes.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use redlock_csi::DRIVER_NAME;
use serde_json::json;

use super::DrainOptions;
use crate::{
    api::{FINALIZER, LeaderLock, RedisQuorum, in_use},
    inspect::cluster::{Cluster, ClusterError},
    targets::list_all,
};

const MANAGER: &str = "redlock-drain";
/// Number of attempts to write an object: no other process writes it for long.
const TRIES: usize = 10;

pub(super) struct Objects {
    name: String,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    all_pods: Api<Pod>,
    /// The locks as they are stored: a lock that this version cannot read has a finalizer, too.
    locks: Vec<Api<DynamicObject>>,
    quorums: Api<DynamicObject>,
    /// The namespaces of the locks that may name a quorum; all namespaces if empty.
    namespaces: Vec<String>,
}

pub(super) struct Operator {
    pub(super) replicas: i32,
    pub(super) selector: String,
}

/// A lock under which a workload may run.
#[derive(Clone, Debug)]
pub(super) struct Unfinished {
    namespace: String,
    name: String,
    /// Identity of the replica that holds the lock, which is the name of its pod.
    pub(super) holder: String,
    /// Whether an agent of this cluster holds the lock.
    pub(super) held_by_agent: bool,
    /// The API that writes the lock.
    api: Api<DynamicObject>,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Objects {
    pub(super) fn new(cluster: &Cluster, options: &DrainOptions) -> Self {
        let (client, namespace) = (cluster.client(), cluster.namespace());
        let kind = ApiResource::erase::<LeaderLock>(&());
        let locks = if options.namespaces.is_empty() {
            vec![Api::all_with(client.clone(), &kind)]
        } else {
            let names = options.namespaces.iter();
            names
                .map(|name| Api::namespaced_with(client.clone(), name, &kind))
                .collect()
        };
        Self {
            name: options.deployment.clone(),
            deployments: Api::namespaced(client.clone(), namespace),
            quorums: Api::all_with(client.clone(), &ApiResource::erase::<RedisQuorum>(&())),
            namespaces: options.namespaces.clone(),
            all_pods: Api::all(client.clone()),
            pods: Api::namespaced(client, namespace),
            locks,
        }
    }

    /// Returns `None` if the Deployment is gone already.
    pub(super) async fn deployment(&self) -> Result<Option<Operator>, ClusterError> {
        let found = self.deployments.get_opt(&self.name).await;
        let found = found
            .map_err(|error| ClusterError::asked(&format!("reading {}", self.called()), None, &error))?;
        let Some(spec) = found.and_then(|deployment| deployment.spec) else {
            return Ok(None);
        };
        let labels = spec.selector.match_labels.unwrap_or_default();
        let selector: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Ok(Some(Operator {
            replicas: spec.replicas.unwrap_or(1),
            selector: selector.join(","),
        }))
    }

    pub(super) async fn scale(&self, replicas: i32) -> Result<(), ClusterError> {
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        match self
            .deployments
            .patch_scale(&self.name, &parameters, &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => {
                let called = self.called();
                Err(ClusterError::asked(
                    &format!("scaling {called} to {replicas}"),
                    Some(&called),
                    &error,
                ))
            }
        }
    }

    /// Returns the names of the pods that have not ended.
    pub(super) async fn pods(&self, selector: &str) -> Result<BTreeSet<String>, ClusterError> {
        let pods = self.pods.list(&ListParams::default().labels(selector)).await;
        let pods =
            pods.map_err(|error| ClusterError::asked("listing the pods of the operator", None, &error))?;
        let running = pods.items.iter().filter(|pod| !has_ended(pod));
        Ok(running.map(ResourceExt::name_any).collect())
    }

    /// Returns the pods of all namespaces, as namespace/name, that mount a volume of node fencing. The
    /// kubelet unmounts the volumes of a pod that has ended; a deleted pod stays until they are unmounted.
    pub(super) async fn fenced_pods(&self) -> Result<Vec<String>, ClusterError> {
        let fenced = |pod: Pod| {
            let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            let mounts = !has_ended(&pod) || pod.metadata.deletion_timestamp.is_some();
            (is_fenced(&pod) && mounts).then_some(name)
        };
        let found = list_all(&self.all_pods, ListParams::default(), fenced).await;
        found.map_err(|error| ClusterError::asked("listing the pods of all namespaces", None, &error))
    }

    /// Returns all locks with the finalizer.
    pub(super) async fn unfinished(&self) -> Result<Vec<Unfinished>, ClusterError> {
        let mut all = Vec::new();
        for api in &self.locks {
            let unfinished = |lock| has(&lock, FINALIZER).then(|| unfinished_of(&lock, api));
            match list_all(api, ListParams::default(), unfinished).await {
                Ok(found) => all.extend(found),
                // Without the CRD there are no locks.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(ClusterError::asked("listing LeaderLocks", None, &error)),
            }
        }
        Ok(all)
    }

    pub(super) async fn remove_finalizer(&self, lock: &Unfinished) -> Result<(), ClusterError> {
        let object = format!("LeaderLock {lock}");
        remove(&lock.api, &lock.name, FINALIZER, &object).await
    }

    /// Removes the finalizers from the quorums, since no operator is left to remove them.
    pub(super) async fn leave_quorums(&self) -> Result<(), ClusterError> {
        let quorums = match list_all(&self.quorums, ListParams::default(), Some).await {
            Ok(quorums) => quorums,
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => return Err(ClusterError::asked("listing RedisQuorums", None, &error)),
        };
        for quorum in quorums {
            let (name, object) = (quorum.name_any(), format!("RedisQuorum {}", quorum.name_any()));
            let finalizers = quorum.metadata.finalizers.iter().flatten();
            for own in finalizers.filter(|one| in_use::is_of(one, &self.namespaces)) {
                remove(&self.quorums, &name, own, &object).await?;
            }
        }
        Ok(())
    }

    pub(super) fn called(&self) -> String {
        format!("Deployment {}", self.name)
    }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_fenced(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut drivers = volumes.filter_map(|volume| Some(&volume.csi.as_ref()?.driver));
    drivers.any(|driver| driver == DRIVER_NAME)
}

/// Reports whether the operator labels the pod of the agent that holds the lock.
fn labels_pods(lock: &DynamicObject) -> bool {
    let targets = lock
        .data
        .pointer("/spec/targets")
        .and_then(|targets| targets.as_array());
    let mut targets = targets.into_iter().flatten();
    targets.any(|target| target["action"] == "LabelPods")
}

fn unfinished_of(lock: &DynamicObject, api: &Api<DynamicObject>) -> Unfinished {
    let namespace = lock.namespace().unwrap_or_default();
    let kind = ApiResource::erase::<LeaderLock>(&());
    let holder = lock.data.pointer("/status/holderIdentity");
    let holder = holder.and_then(|holder| holder.as_str());
    let text = |field: &str| lock.data.pointer(field).and_then(|value| value.as_str());
    let active = matches!(text("/status/role"), Some("Active" | "Activating"));
    Unfinished {
        held_by_agent: active && text("/spec/candidates") == Some("Agents") && labels_pods(lock),
        api: Api::namespaced_with(api.clone().into_client(), &namespace, &kind),
        name: lock.name_any(),
        holder: holder.unwrap_or_default().to_owned(),
        namespace,
    }
}

/// Removes this finalizer from an object, and no other.
async fn remove(
    api: &Api<DynamicObject>,
    name: &str,
    finalizer: &str,
    object: &str,
) -> Result<(), ClusterError> {
    let refused = |error| {
        ClusterError::asked(
            &format!("removing the finalizer of {object}"),
            Some(object),
            &error,
        )
    };
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let mut last = Ok(());
    for _ in 0..TRIES {
        let Some(found) = api.get_opt(name).await.map_err(refused)? else {
            return Ok(());
        };
        let finalizers = found.metadata.finalizers.iter().flatten();
        let rest: Vec<&String> = finalizers.filter(|one| *one != finalizer).collect();
        let patch = json!({
            "metadata": { "resourceVersion": found.metadata.resource_version, "finalizers": rest },
        });
        last = match api.patch(name, &parameters, &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error @ kube::Error::Api(_)) => Err(refused(error)),
            Err(error) => return Err(refused(error)),
        };
    }
    last
}

fn has(object: &DynamicObject, finalizer: &str) -> bool {
    let finalizers = object.metadata.finalizers.as_ref();
    finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer))
}
