//! Reads and writes the pods of a selector. Each write is for one version of one pod, so a late write has no effect.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Api,
    api::{ListParams, Patch},
    core::{ParseExpressionError, Selector},
};
use serde_json::json;

use super::{
    snapshot::{ACTIVE, BY, FROM_TEMPLATE, PodSnapshot, ROLE, TOKEN},
    watched::{NamespacePods, Watched},
};
use crate::{
    lease::FencingToken,
    targets::{
        TargetContext, TargetError, pages,
        slim::Pod,
        write::{self, managed_by},
    },
};

/// The field manager that owns the label, and the annotations next to it.
pub(super) const MANAGER: &str = "redlock-operator-label-pods";

#[derive(Clone, Debug)]
pub(super) struct Pods {
    pods: Api<Pod>,
    /// The selector as text, such as `app=web,tier in (a,b)`.
    selector: Result<String, String>,
    /// The mark of this target, such as `billing/report/web`.
    pub(super) by: String,
    namespace: String,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Done,
    /// The pod has changed or is gone, and must be read again.
    Late,
}

impl Pods {
    /// Returns the pods of a selector, and what the watch of the namespace shows of them. Pods of a selector that is invalid
    /// are not followed.
    pub(super) fn new(context: &TargetContext, selector: &LabelSelector) -> (Self, Watched) {
        let selector = Selector::try_from(selector.clone());
        let watched = match &selector {
            Ok(selector) => Watched::new(context.shared.pods(&context.namespace), selector.clone()),
            Err(_) => Watched::new(Arc::<NamespacePods>::default(), Selector::default()),
        };
        let pods = Self {
            pods: Api::namespaced(context.client.clone(), &context.namespace),
            selector: selector
                .map(|selector| selector.to_string())
                .map_err(|error: ParseExpressionError| error.to_string()),
            by: format!("{}/{}", context.lock, context.target),
            namespace: context.namespace.clone(),
        };
        (pods, watched)
    }

    /// Returns the name of the pods in messages.
    pub(super) fn called(&self) -> String {
        let selector = self.selector.as_deref().unwrap_or_else(|error| error);
        format!("selector \"{selector}\" in namespace {}", self.namespace)
    }

    /// Returns the reason why the selector is invalid, if it is.
    pub(super) fn problem(&self) -> Option<&str> {
        self.selector.as_ref().err().map(String::as_str)
    }

    /// Lists the pods of the selector, then those with the label: a labelled pod that leaves the selector in between is
    /// in the second list.
    pub(super) async fn read(&self) -> Result<Vec<PodSnapshot>, TargetError> {
        let Ok(selector) = &self.selector else {
            return Ok(Vec::new());
        };
        let mut snapshots = self.list(selector, true).await?;
        for snapshot in self.list(&format!("{ROLE}={ACTIVE}"), false).await? {
            if snapshots.iter().all(|known| known.uid != snapshot.uid) {
                snapshots.push(snapshot);
            }
        }
        Ok(snapshots)
    }

    async fn list(&self, selector: &str, selected: bool) -> Result<Vec<PodSnapshot>, TargetError> {
        let which = ListParams::default().labels(selector);
        let list = pages::all(&self.pods, which, |pod| Some(PodSnapshot::of(pod, selected))).await;
        let what = || format!("listing pods by \"{selector}\" in namespace {}", self.namespace);
        list.map_err(|error| TargetError::of(what(), &error))
    }

    /// Gives the label, and records the lock and the token under which the pod got it.
    pub(super) async fn give(&self, pod: &PodSnapshot, token: FencingToken) -> Result<Write, TargetError> {
        let token = token.0.to_string();
        let change = json!({
            "labels": { ROLE: ACTIVE },
            "annotations": { TOKEN: token, BY: self.by },
        });
        self.patch(pod, change, "labelling").await
    }

    pub(super) async fn take(&self, pod: &PodSnapshot) -> Result<Write, TargetError> {
        let mut change = json!({
            "labels": { ROLE: null },
            "annotations": { TOKEN: null, BY: null },
        });
        if let Some(manager) = &pod.template {
            change["annotations"][FROM_TEMPLATE] = json!(manager);
        }
        self.patch(pod, change, "removing the label").await
    }

    /// Writes the mark of this target, so that the pod gets a new version and an unanswered write for the earlier
    /// version is refused. Needs no permit: the label stays as it is, and a sibling whose write is refused repeats it.
    pub(super) async fn touch(&self, pod: &PodSnapshot) -> Result<Write, TargetError> {
        let change = json!({ "annotations": { BY: self.by } });
        self.patch(pod, change, "marking").await
    }

    async fn patch(
        &self,
        pod: &PodSnapshot,
        mut metadata: serde_json::Value,
        what: &str,
    ) -> Result<Write, TargetError> {
        metadata["uid"] = json!(pod.uid);
        metadata["resourceVersion"] = json!(pod.version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let answer = self
            .pods
            .patch_metadata(&pod.name, &managed_by(MANAGER), &patch)
            .await;
        let written = write::Write::of(answer, format!("{what} pod {}/{}", self.namespace, pod.name))?;
        Ok(match written {
            write::Write::Done(_) => Write::Done,
            write::Write::Missing | write::Write::Late => Write::Late,
        })
    }
}
