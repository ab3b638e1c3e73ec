//! The scale subresource of one object.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PartialObjectMeta, Patch, PatchParams},
    runtime::watcher,
};

use crate::{
    api::target::TargetRef,
    targets::{Leave, TargetError, owner::declared_by, pods::Pods},
};

/// Owns `spec.replicas` of what it scales.
const MANAGER: &str = "redlock-operator-scale";

/// One object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    objects: Api<DynamicObject>,
    metadata: Api<PartialObjectMeta<DynamicObject>>,
    pods: Pods,
    name: String,
    /// As in `Deployment billing/report`.
    called: String,
}

/// How it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// There is no such object: nothing of it runs.
    Missing,
    Here {
        /// What the object asks for.
        wanted: i32,
        /// What its controller counts.
        counted: i32,
        /// Of its pods; none where it has no pods.
        selector: Option<String>,
    },
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Done,
    Missing,
    /// Somebody else owns the replicas; the text names them.
    Conflict(String),
    /// The object is another by now, or the authority is gone: look again.
    Late,
}

impl Object {
    pub(super) fn new(
        client: &Client,
        namespace: &str,
        reference: &TargetRef,
        resource: &ApiResource,
    ) -> Self {
        let called = format!("{} {namespace}/{}", reference.kind, reference.name);
        Self {
            objects: Api::namespaced_with(client.clone(), namespace, resource),
            metadata: Api::namespaced_with(client.clone(), namespace, resource),
            pods: Pods::new(client, namespace, &called),
            name: reference.name.clone(),
            called,
        }
    }

    /// It alone, to be followed; without what it holds.
    pub(super) fn followed(&self) -> (Api<PartialObjectMeta<DynamicObject>>, watcher::Config) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        (self.metadata.clone(), config)
    }

    pub(super) const fn pods(&self) -> &Pods {
        &self.pods
    }

    pub(super) fn called(&self) -> &str {
        &self.called
    }

    pub(super) async fn look(&self) -> Result<Sight, TargetError> {
        match self.objects.get_scale(&self.name).await {
            Ok(scale) => {
                let status = scale.status.unwrap_or_default();
                Ok(Sight::Here {
                    wanted: scale.spec.and_then(|spec| spec.replicas).unwrap_or(0),
                    counted: status.replicas,
                    selector: status.selector.filter(|selector| !selector.is_empty()),
                })
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Sight::Missing),
            Err(error) => Err(TargetError::of(
                format!("reading the scale of {}", self.called),
                &error,
            )),
        }
    }

    /// Whether its controller has seen what it asks for now. Until then the count is an old one, no pod is the last, and
    /// one that is deleted is replaced: a controller that lost its API server may follow it again half a minute later.
    /// A kind that does not say is believed; those of `apps` say from the first time on that they are seen.
    pub(super) async fn is_heeded(&self) -> Result<bool, TargetError> {
        let object = match self.objects.get(&self.name).await {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(true),
            Err(error) => return Err(TargetError::of(format!("reading {}", self.called), &error)),
        };
        let of_apps = object
            .types
            .is_some_and(|types| types.api_version.starts_with("apps/"));
        let seen = object.data.pointer("/status/observedGeneration");
        Ok(match seen.and_then(serde_json::Value::as_i64) {
            Some(seen) => object.metadata.generation.is_none_or(|asked| seen >= asked),
            None => !of_apps,
        })
    }

    /// Stops: takes the field from whoever owns it.
    pub(super) async fn stop(&self, replicas: i32) -> Result<Write, TargetError> {
        self.patch(replicas, None).await
    }

    /// Starts: does not take the field from somebody else.
    pub(super) async fn start(&self, replicas: i32, leave: &Leave) -> Result<Write, TargetError> {
        let object = match self.metadata.get(&self.name).await {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Write::Missing),
            Err(error) => return Err(TargetError::of(format!("reading {}", self.called), &error)),
        };
        if let Some(owner) = declared_by(&object.metadata, &["spec", "replicas"]) {
            let text = format!(
                "{}: spec.replicas belongs to {owner:?}: take replicas out of what it applies, so that the lock may set it",
                self.called
            );
            return Ok(Write::Conflict(text));
        }
        if !leave.holds() {
            return Ok(Write::Late);
        }
        self.patch(replicas, object.metadata.resource_version.as_deref())
            .await
    }

    /// A merge patch: the API server cannot apply the scale of a custom resource (it fails to convert the live one), and
    /// an applied zero is left out of the scale that is sent, which means "not set". With a version, only if the object
    /// is still that one.
    async fn patch(&self, replicas: i32, version: Option<&str>) -> Result<Write, TargetError> {
        let patch = serde_json::json!({ "metadata": { "resourceVersion": version }, "spec": { "replicas": replicas } });
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match self
            .objects
            .patch_scale(&self.name, &parameters, &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(Write::Done),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Write::Missing),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Write::Late),
            Err(error) => Err(TargetError::of(
                format!("scaling {} to {replicas}", self.called),
                &error,
            )),
        }
    }
}
