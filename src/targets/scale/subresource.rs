//! The scale subresource of one object.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use tokio::time;

use crate::{
    api::target::TargetRef,
    targets::{
        Leave, TargetError,
        pods::Pods,
        rights::granted,
        shared::{Followed, Known, Shared},
    },
};

/// Owns `spec.replicas` of what it scales.
const MANAGER: &str = "redlock-operator-scale";
/// For a name in a message.
const BRIEFLY: Duration = Duration::from_millis(250);

/// One object.
#[derive(Clone)]
pub(super) struct Object {
    api: Api<DynamicObject>,
    followed: Followed,
    pods: Pods,
    resource: ApiResource,
    name: String,
    /// As in `Deployment billing/report`.
    called: String,
}

/// How it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    /// What the object asks for.
    pub(super) wanted: i32,
    /// What its controller counts.
    pub(super) counted: i32,
    /// Of its pods; none where it has no pods.
    pub(super) selector: Option<String>,
}

/// Whose word its replicas are.
///
/// An API server loses track of the owner when zero is written by the scale subresource (a zero is left out of what it
/// compares), and of every later write by it: until somebody writes the object itself, nobody is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Other(String),
    /// The operator's, or a default.
    Ours,
    Unknown,
    /// The object is another by now: look again.
    Late,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// It is this version now.
    Done(Option<String>),
    Missing,
    /// The object is another by now, or the authority is gone: look again.
    Late,
}

impl Object {
    pub(super) fn new(
        client: &Client,
        shared: &Shared,
        namespace: &str,
        reference: &TargetRef,
        resource: ApiResource,
    ) -> Self {
        let called = format!("{} {namespace}/{}", reference.kind, reference.name);
        Self {
            api: Api::namespaced_with(client.clone(), namespace, &resource),
            followed: shared.follow(&resource, namespace, &reference.name),
            pods: Pods::new(client, namespace, &called),
            resource,
            name: reference.name.clone(),
            called,
        }
    }

    pub(super) const fn pods(&self) -> &Pods {
        &self.pods
    }

    pub(super) const fn followed(&self) -> &Followed {
        &self.followed
    }

    pub(super) fn called(&self) -> &str {
        &self.called
    }

    /// None where there is no such object: nothing of it runs.
    pub(super) async fn look(&self) -> Result<Option<Sight>, TargetError> {
        match self.api.get_scale(&self.name).await {
            Ok(scale) => {
                let status = scale.status.unwrap_or_default();
                Ok(Some(Sight {
                    uid: scale.metadata.uid,
                    version: scale.metadata.resource_version,
                    wanted: scale.spec.and_then(|spec| spec.replicas).unwrap_or(0),
                    counted: status.replicas,
                    selector: status.selector.filter(|selector| !selector.is_empty()),
                }))
            }
            // Also where the kind is gone.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.failed("reading the scale of", &error)),
        }
    }

    /// Whether its controller has seen what it asks for now. Until then the count is an old one, no pod is the last, and
    /// one that is deleted is replaced: a controller that lost its API server may follow it again half a minute later.
    /// A kind that does not say is believed; those of `apps` say from the first time on that they are seen.
    pub(super) async fn is_heeded(&self) -> Result<bool, TargetError> {
        let object = match self.api.get(&self.name).await {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(true),
            Err(error) => return Err(self.failed("reading", &error)),
        };
        let seen = object.data.pointer("/status/observedGeneration");
        Ok(match seen.and_then(serde_json::Value::as_i64) {
            Some(seen) => object.metadata.generation.is_none_or(|asked| seen >= asked),
            None => self.resource.group != "apps",
        })
    }

    /// Who else has a say in its replicas, in the version that was seen.
    pub(super) async fn owner(&self, sight: &Sight) -> Result<Owner, TargetError> {
        let Some(known) = self.known(sight).await? else {
            return Ok(Owner::Late);
        };
        Ok(match known.declared_by {
            Some(owner) => Owner::Other(owner),
            None if known.is_own || known.writer.is_some() => Owner::Ours,
            None => Owner::Unknown,
        })
    }

    /// Who else wrote its replicas; asked before they are overwritten, and not for long.
    pub(super) async fn writer(&self, sight: &Sight) -> Option<String> {
        let known = time::timeout(BRIEFLY, self.known(sight)).await;
        known.ok()?.ok()??.writer
    }

    /// The version that was seen: as the watch has it, or asked for. None if it is another by now.
    async fn known(&self, sight: &Sight) -> Result<Option<Known>, TargetError> {
        let current = |known: &Known| known.version.is_some() && known.version == sight.version;
        if let Some(known) = self.followed.known().filter(current) {
            return Ok(Some(known));
        }
        match self.api.get_metadata(&self.name).await {
            Ok(object) => Ok(Some(Known::of(&object.metadata)).filter(current)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.failed("reading", &error)),
        }
    }

    /// Stops: takes the field from whoever owns it.
    pub(super) async fn stop(&self, replicas: i32) -> Result<Write, TargetError> {
        self.patch(replicas, None).await
    }

    /// Starts, only if the object is still the one that was seen.
    pub(super) async fn start(
        &self,
        replicas: i32,
        sight: &Sight,
        leave: &Leave,
    ) -> Result<Write, TargetError> {
        if sight.version.is_none() || !leave.holds() {
            return Ok(Write::Late);
        }
        self.patch(replicas, sight.version.as_deref()).await
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
        let patched: Result<Scale, _> = self
            .api
            .patch_scale(&self.name, &parameters, &Patch::Merge(&patch))
            .await;
        match patched {
            Ok(scale) => Ok(Write::Done(scale.metadata.resource_version)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Write::Missing),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Write::Late),
            Err(error) => Err(self.failed(&format!("setting replicas to {replicas} of"), &error)),
        }
    }

    fn failed(&self, doing: &str, error: &kube::Error) -> TargetError {
        TargetError::of(format!("{doing} {}", self.called), error)
    }

    /// What has to be granted to switch objects of this kind.
    pub(super) fn rule(&self) -> String {
        let (group, resource) = (&self.resource.group, &self.resource.plural);
        let rules = format!(
            "- apiGroups: [{group:?}]\n  resources: [{resource}]\n  verbs: [get, list, watch]\n\
             - apiGroups: [{group:?}]\n  resources: [{resource}/scale]\n  verbs: [get, patch]\n\
             - apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [list, delete]"
        );
        granted(group, resource, &rules)
    }
}
