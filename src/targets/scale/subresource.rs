//! The scale subresource of one object.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::{
    Api,
    api::{DynamicObject, Patch},
};
use serde_json::{Value, json};
use tokio::time;

use crate::{
    api::target::TargetRef,
    targets::{
        StartPermit, TargetContext, TargetError,
        attempts::Precondition,
        data_loss::scaling_deletes,
        observed_generation::{ObservedGeneration, observed_generation},
        pods::Pods,
        read::Place,
        rights::granted,
        shared::{Followed, Known},
        write::managed_by,
    },
};

/// The field manager that owns `spec.replicas` of the scaled objects.
const MANAGER: &str = "redlock-operator-scale";
/// The longest time for a read that only serves to name a writer in a message.
const BRIEFLY: Duration = Duration::from_millis(250);

/// One object.
#[derive(Clone)]
pub(super) struct Object {
    api: Api<DynamicObject>,
    followed: Followed,
    pods: Pods,
    place: Place,
    name: String,
    /// The name of the object in messages, as in `Deployment billing/report`.
    called: String,
}

/// The scale of an object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    /// The number of replicas that the object asks for.
    pub(super) wanted: i32,
    /// The number of pods that its controller counts.
    pub(super) counted: i32,
    /// The selector of its pods; `None` if it has no pods.
    pub(super) selector: Option<String>,
}

/// The owner of the replicas.
///
/// The API server loses track of the owner when zero is written through the scale subresource (it omits a zero from the
/// objects that it compares), and of every later write through the subresource. The owner is unknown until a client
/// writes the object itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Another manager declares them.
    Other(String),
    /// The operator.
    Own,
    /// No manager declares them: they are a default, or were given at the creation of the object by this manager.
    Undeclared(Option<String>),
    Unknown,
    /// The object has changed, and must be read again.
    Late,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// The write was done, and resulted in this version.
    Done(Option<String>),
    Missing,
    /// The object has changed, or the authority is gone: the object must be read again.
    Late,
}

impl Object {
    pub(super) fn new(context: &TargetContext, reference: &TargetRef, place: Place) -> Self {
        let (client, namespace) = (&context.client, &*context.namespace);
        let called = format!("{} {namespace}/{}", reference.kind, reference.name);
        Self {
            api: Api::namespaced_with(client.clone(), namespace, &place.resource),
            followed: context.shared.follow(&place.resource, namespace, &reference.name),
            pods: Pods::new(client, namespace, &called),
            place,
            name: reference.name.clone(),
            called,
        }
    }

    /// Reports whether the object is in the version that is served now.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        self.place.resource == place.resource
    }

    pub(super) const fn pods(&self) -> &Pods {
        &self.pods
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    pub(super) const fn followed(&self) -> &Followed {
        &self.followed
    }

    pub(super) fn called(&self) -> &str {
        &self.called
    }

    /// Reads the scale; `None` if the object does not exist, so nothing of it runs.
    pub(super) async fn read(&self) -> Result<Option<Snapshot>, TargetError> {
        let answer = self.api.get_scale(&self.name).await;
        let scale = self.settle_scale("reading the scale of", answer).await?;
        Ok(scale.map(|scale| {
            let status = scale.status.unwrap_or_default();
            Snapshot {
                uid: scale.metadata.uid,
                version: scale.metadata.resource_version,
                wanted: scale.spec.and_then(|spec| spec.replicas).unwrap_or(0),
                counted: status.replicas,
                selector: status.selector.filter(|selector| !selector.is_empty()),
            }
        }))
    }

    /// Reports whether the controller has seen the number of replicas that the object asks for now. Until
    /// then its count is outdated, it may create more pods, and it replaces a pod that is deleted: a
    /// controller that lost its connection to the API server may take half a minute to follow the object
    /// again. A kind without `observedGeneration` is assumed to be up to date, except in group `apps`, whose
    /// controllers set the field when they first see an object.
    pub(super) async fn is_observed(&self) -> Result<bool, TargetError> {
        let answer = self.api.get(&self.name).await;
        let Some(object) = self.settle("reading", answer).await? else {
            return Ok(true);
        };
        let seen = object.data.pointer("/status/observedGeneration");
        Ok(match observed_generation(seen) {
            ObservedGeneration::Number(seen) => object.metadata.generation.is_none_or(|asked| seen >= asked),
            ObservedGeneration::Absent => self.place.resource.group != "apps",
            ObservedGeneration::Unreadable => false,
        })
    }

    /// Describes the data that is deleted when the object is scaled down, if there is any. The workloads of Kubernetes
    /// without volumes of their own are not read.
    pub(super) async fn scaling_deletes(&self) -> Result<Option<String>, TargetError> {
        let resource = &self.place.resource;
        if ["", "apps"].contains(&&*resource.group) && resource.kind != "StatefulSet" {
            return Ok(None);
        }
        let answer = self.api.get(&self.name).await;
        let object = self.settle("reading", answer).await?;
        Ok(object.and_then(|object| scaling_deletes(&self.called, &object.metadata, &object.data)))
    }

    /// Returns the owner of the replicas, in the version that was read.
    pub(super) async fn owner(&self, snapshot: &Snapshot) -> Result<Owner, TargetError> {
        let Some(known) = self.known(snapshot).await? else {
            return Ok(Owner::Late);
        };
        Ok(match known.declared_by {
            Some(owner) => Owner::Other(owner),
            None if known.is_own => Owner::Own,
            None if known.writer.is_some() || known.is_as_created() => Owner::Undeclared(known.writer),
            None => Owner::Unknown,
        })
    }

    /// Returns the other manager that wrote the replicas last. Call this before they are overwritten; it has
    /// a short time limit.
    pub(super) async fn writer(&self, snapshot: &Snapshot) -> Option<String> {
        let known = time::timeout(BRIEFLY, self.known(snapshot)).await;
        known.ok()?.ok()??.writer
    }

    /// Returns the version that was read, from the watch or by a request; `None` if the object has changed.
    async fn known(&self, snapshot: &Snapshot) -> Result<Option<Known>, TargetError> {
        let current = |known: &Known| known.version.is_some() && known.version == snapshot.version;
        if let Some(known) = self.followed.known().filter(current) {
            return Ok(Some(known));
        }
        let answer = self.api.get_metadata(&self.name).await;
        let object = self.settle("reading", answer).await?;
        Ok(object
            .map(|object| Known::of_metadata(&object.metadata))
            .filter(current))
    }

    /// Stops the object if it meets the precondition. The write takes the field from its owner.
    pub(super) async fn stop(
        &self,
        replicas: i32,
        snapshot: &Snapshot,
        precondition: Precondition,
    ) -> Result<Write, TargetError> {
        let metadata = match precondition {
            Precondition::Version => json!({ "resourceVersion": snapshot.version }),
            Precondition::Uid => json!({ "uid": snapshot.uid }),
        };
        self.patch(replicas, &metadata).await
    }

    /// Starts the object if it still has the version that was read.
    pub(super) async fn start(
        &self,
        replicas: i32,
        snapshot: &Snapshot,
        permit: &StartPermit,
    ) -> Result<Write, TargetError> {
        if snapshot.version.is_none() || !permit.holds() {
            return Ok(Write::Late);
        }
        self.patch(replicas, &json!({ "resourceVersion": snapshot.version }))
            .await
    }

    /// Writes the number with a merge patch, if the object still has this metadata. The API server cannot
    /// apply the scale of a custom resource (it fails to convert the live object), and an applied zero is
    /// omitted from the scale that is sent, which means "not set".
    async fn patch(&self, replicas: i32, metadata: &Value) -> Result<Write, TargetError> {
        let patch = json!({ "metadata": metadata, "spec": { "replicas": replicas } });
        let patched: Result<Scale, _> = self
            .api
            .patch_scale(&self.name, &managed_by(MANAGER), &Patch::Merge(&patch))
            .await;
        if matches!(&patched, Err(kube::Error::Api(status)) if status.is_conflict()) {
            return Ok(Write::Late);
        }
        let doing = format!("setting replicas to {replicas} of");
        let scale = self.settle_scale(&doing, patched).await?;
        Ok(scale.map_or(Write::Missing, |scale| {
            Write::Done(scale.metadata.resource_version)
        }))
    }

    /// Interprets an answer about the scale. A 404 of the subresource may hide a failure of the storage, or a
    /// write that succeeded: only a 404 of the object itself shows that the object is gone.
    async fn settle_scale<T>(&self, doing: &str, answer: kube::Result<T>) -> Result<Option<T>, TargetError> {
        let status = match answer {
            Err(kube::Error::Api(status)) if status.code == 404 || status.is_not_found() => status,
            answer => return self.settle(doing, answer).await,
        };
        let object = self.api.get_metadata(&self.name).await;
        if self.settle("reading", object).await?.is_none() {
            return Ok(None);
        }
        // The kind may have lost its scale subresource.
        self.place.doubt();
        Err(TargetError::Api {
            what: format!("{doing} {}", self.called),
            reason: format!(
                "the object exists, but its scale was not found: {}",
                status.message
            ),
            refusal: false,
        })
    }

    async fn settle<T>(&self, doing: &str, answer: kube::Result<T>) -> Result<Option<T>, TargetError> {
        let what = || format!("{doing} {}", self.called);
        self.place.settle(what, answer).await
    }

    /// Returns the rights that are needed to switch objects of this kind.
    pub(super) fn rule(&self) -> String {
        let (group, resource) = (&self.place.resource.group, &self.place.resource.plural);
        let rules = format!(
            "- apiGroups: [{group:?}]\n  resources: [{resource}]\n  verbs: [get, list, watch]\n\
             - apiGroups: [{group:?}]\n  resources: [{resource}/scale]\n  verbs: [get, patch]\n\
             - apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [list, delete]"
        );
        granted(group, resource, &rules)
    }
}

#[cfg(test)]
mod tests;
