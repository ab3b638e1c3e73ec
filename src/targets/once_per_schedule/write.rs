//! Writes to Jobs. Each write applies only to the version of the Job that was read.

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, Preconditions},
};
use serde_json::{Value, json};

use super::job::{Job, Mark};
use crate::{
    lease::FencingToken,
    targets::{
        TargetError,
        slim::{Job as BatchJob, SLOT},
        write::{Write, managed_by},
    },
};

/// The field manager that owns `spec.suspend`, the label and the token of Jobs.
pub(super) const MANAGER: &str = "redlock-operator-once-per-schedule";
/// The annotation with the token, for the workload: the downward API passes it to the containers.
const TOKEN: &str = "redlock.dev/fencing-token";

#[derive(Clone, Debug)]
pub(super) struct Jobs {
    api: Api<BatchJob>,
    namespace: String,
}

impl Jobs {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
        }
    }

    /// Names the Job in messages, as in `Job billing/report-29384`.
    pub(super) fn called(&self, job: &Job) -> String {
        format!("Job {}/{}", self.namespace, job.name)
    }

    /// Starts the Job. One write changes all fields, so that no reader sees a part of the change.
    pub(super) async fn start(
        &self,
        job: &Job,
        token: Option<FencingToken>,
    ) -> Result<Write<BatchJob>, TargetError> {
        let token = token.map(|token| token.to_string());
        let patch = json!({
            "metadata": { "labels": { SLOT: Mark::Claimed.text() } },
            "spec": { "suspend": false, "template": { "metadata": { "annotations": { TOKEN: token } } } },
        });
        self.patch(job, "starting", patch).await
    }

    pub(super) async fn mark(&self, job: &Job, mark: Mark) -> Result<Write<BatchJob>, TargetError> {
        let patch = json!({ "metadata": { "labels": { SLOT: mark.text() } } });
        self.patch(job, "labelling", patch).await
    }

    pub(super) async fn suspend(&self, job: &Job) -> Result<Write<BatchJob>, TargetError> {
        self.patch(job, "suspending", json!({ "spec": { "suspend": true } }))
            .await
    }

    async fn patch(&self, job: &Job, what: &str, mut patch: Value) -> Result<Write<BatchJob>, TargetError> {
        patch["metadata"]["resourceVersion"] = json!(job.version);
        let answer = self
            .api
            .patch(&job.name, &managed_by(MANAGER), &Patch::Merge(&patch))
            .await;
        Write::of(answer, format!("{what} {}", self.called(job)))
    }

    /// Deletes the Job. Returns false if it has changed since it was read.
    pub(super) async fn delete(&self, job: &Job) -> Result<bool, TargetError> {
        let preconditions = Preconditions {
            uid: Some(job.uid.clone()),
            resource_version: Some(job.version.clone()),
        };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::background()
        };
        let deleted = self.api.delete(&job.name, &parameters).await;
        let deleted = Write::of(deleted, format!("deleting {}", self.called(job)))?;
        Ok(!matches!(deleted, Write::Late))
    }
}
