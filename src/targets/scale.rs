//! Scale: the replicas of anything with a scale subresource, and of that subresource only.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};

use super::TargetError;
use crate::api::target::TargetRef;

/// Owns `spec.replicas` of what it scales.
const MANAGER: &str = "redlock-operator-scale";

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    objects: Api<DynamicObject>,
    pods: Api<Pod>,
    name: String,
    /// As in `Deployment billing/report`.
    called: String,
}

/// How it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
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
pub(crate) enum Write {
    Done,
    Missing,
    /// Somebody else owns the replicas; in the words of the API server, which name them.
    Conflict(String),
}

impl Scale {
    pub(crate) fn new(client: &Client, namespace: &str, reference: &TargetRef, resource: &ApiResource) -> Self {
        Self {
            objects: Api::namespaced_with(client.clone(), namespace, resource),
            pods: Api::namespaced(client.clone(), namespace),
            name: reference.name.clone(),
            called: format!("{} {namespace}/{}", reference.kind, reference.name),
        }
    }

    /// The objects of its kind in its namespace, to be followed.
    pub(crate) fn objects(&self) -> &Api<DynamicObject> {
        &self.objects
    }

    pub(crate) fn called(&self) -> &str {
        &self.called
    }

    pub(crate) async fn look(&self) -> Result<Sight, TargetError> {
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
            Err(error) => Err(TargetError::of(format!("reading the scale of {}", self.called), &error)),
        }
    }

    /// `force` takes the field from whoever owns it: a stop wins, a start does not.
    pub(crate) async fn write(&self, replicas: i32, force: bool) -> Result<Write, TargetError> {
        let patch = serde_json::json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": { "name": self.name },
            "spec": { "replicas": replicas },
        });
        let mut parameters = PatchParams::apply(MANAGER);
        parameters.force = force;
        match self.objects.patch_scale(&self.name, &parameters, &Patch::Apply(&patch)).await {
            Ok(_) => Ok(Write::Done),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Write::Missing),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Write::Conflict(status.message)),
            Err(error) => Err(TargetError::of(
                format!("scaling {} to {replicas}", self.called),
                &error,
            )),
        }
    }

    /// The pods that have not ended, those that are being deleted included.
    pub(crate) async fn pods(&self, selector: &str) -> Result<Vec<String>, TargetError> {
        let list = self.pods.list(&ListParams::default().labels(selector)).await;
        let list = list.map_err(|error| TargetError::of(format!("listing the pods of {}", self.called), &error))?;
        let lives = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let names = list.items.into_iter().filter(lives);
        Ok(names.filter_map(|pod| pod.metadata.name).collect())
    }

    /// With no more than this grace period: what is left of the lease.
    pub(crate) async fn delete_pod(&self, name: &str, grace_seconds: u32) -> Result<(), TargetError> {
        let parameters = DeleteParams::default().grace_period(grace_seconds);
        match self.pods.delete(name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(TargetError::of(format!("deleting pod {name} of {}", self.called), &error)),
        }
    }
}
