//! The Jobs of one CronJob and their pods.

use std::sync::Arc;

use futures_util::{Stream, future::join_all, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde_json::json;

use super::{
    job::{JOB_NAME, is_suspended},
    observed::{StopGuard, Suspensions},
    write::Write,
};
use crate::{
    clock,
    lease::BootInstant,
    targets::{
        EventReason, Found, StartPermit, StopPermit, TargetContext, TargetError,
        attempts::Precondition,
        pages,
        pods::{Left, Pods},
        shared::{Index, JobsOf},
        slim::{ABANDONED, Job, finished, maker, scheduler},
    },
};

pub(super) struct Jobs {
    context: TargetContext,
    /// The name of the CronJob.
    name: String,
    /// The name of the CronJob in messages, as in `CronJob billing/report`.
    called: String,
    api: Api<Job>,
    shared: JobsOf,
    suspensions: Suspensions,
    pub(super) pods: Pods,
}

impl Jobs {
    pub(super) fn new(context: &TargetContext, name: &str, called: &str) -> Self {
        Self {
            context: context.clone(),
            name: name.to_owned(),
            called: called.to_owned(),
            api: Api::namespaced(context.client.clone(), &context.namespace),
            shared: context.shared.jobs_of(&context.namespace, name),
            suspensions: Suspensions::default(),
            pods: Pods::new(&context.client, &context.namespace, called),
        }
    }

    /// Returns the Jobs that the watch shows, which may be behind; `None` while the first list is not complete.
    pub(super) fn known(&self) -> Result<Option<Vec<Arc<Job>>>, TargetError> {
        self.shared.known()
    }

    /// Returns all Jobs of the namespace, from a list that began at this time or later.
    pub(super) async fn listed(&self, since: BootInstant) -> Result<Arc<Index>, TargetError> {
        self.shared.listed(since).await
    }

    /// Returns a counter that grows with each change of the Jobs.
    pub(super) fn changes(&self) -> u64 {
        self.shared.changes()
    }

    /// Reports whether no Job runs and the controller of the Jobs has seen that as well.
    pub(super) fn are_stopped(&self, own: &[Arc<Job>]) -> bool {
        own.iter()
            .all(|job| self.suspensions.is_observed(job) && (finished(job).is_some() || is_suspended(job)))
    }

    /// Suspends and marks all Jobs that have not ended, before another writer resumes one of them. Returns false if
    /// there was nothing to do.
    pub(super) async fn abandon(&self, own: &[Arc<Job>], permit: &StopPermit) -> Result<bool, TargetError> {
        self.suspensions.retain(own);
        let left = own
            .iter()
            .filter(|job| finished(job).is_none() && !(is_suspended(job) && is_abandoned(job)));
        // A failed write does not hold up the other Jobs.
        let written = join_all(left.map(|job| self.abandon_one(job, permit))).await;
        let any = !written.is_empty();
        written.into_iter().collect::<Result<(), _>>()?;
        Ok(any)
    }

    /// Suspends the Job in any version: an outdated watch must not hold up the stop, and no sibling resumes an
    /// abandoned Job.
    async fn abandon_one(&self, job: &Job, permit: &StopPermit) -> Result<(), TargetError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let mut metadata = json!({ "uid": job.metadata.uid });
        if !is_abandoned(job) {
            metadata["labels"] = json!({ ABANDONED: clock::unix_time().as_secs().to_string() });
        }
        let change = json!({ "metadata": metadata, "spec": { "suspend": true } });
        let what = format!("suspending Job {name} of {}", self.called);
        let guard = StopGuard {
            permit,
            found: Found::Running,
            precondition: Precondition::Uid,
        };
        let written = self
            .suspensions
            .suspend(&self.api, job, &change, &what, guard)
            .await?;
        if matches!(written, Write::Done(_)) && !is_abandoned(job) {
            let text = format!(
                "Job {name} of {} had not ended when this cluster had to stop it: the Job stays suspended, and is \
                 deleted when this cluster is active again",
                self.called
            );
            self.context.emit(EventReason::JobAbandoned, text);
        }
        Ok(())
    }

    /// Makes the controller confirm again each suspension whose condition may be old.
    pub(super) async fn renew(&self, own: &[Arc<Job>], permit: &StopPermit) -> Result<(), TargetError> {
        let renew = |job| self.suspensions.renew(&self.api, job, permit);
        let renewed = join_all(own.iter().map(|job| renew(job))).await;
        renewed.into_iter().collect()
    }

    /// Deletes the abandoned Jobs, since a suspended one would keep a CronJob with `concurrencyPolicy: Forbid` from
    /// ever running again. Returns false if there was nothing to do, and true if the authority is gone.
    pub(super) async fn delete_abandoned(&self, permit: &StartPermit) -> Result<bool, TargetError> {
        let which = ListParams::default().labels(ABANDONED);
        // A marked Job that has ended despite the mark belongs to the history.
        let left = |job: &Job| finished(job).is_none() && job.metadata.deletion_timestamp.is_none();
        let marked = pages::all(&self.api, which, |job| {
            (self.made(&job.metadata) && left(&job)).then_some(job)
        });
        let marked = marked.await;
        let left = marked.map_err(|error| self.error("listing the Jobs", &error))?;
        if !permit.holds() {
            return Ok(true);
        }
        let deleted = join_all(left.iter().map(|job| self.delete(&job.metadata))).await;
        let any = !deleted.is_empty();
        deleted.into_iter().collect::<Result<(), _>>()?;
        Ok(any)
    }

    async fn delete(&self, job: &ObjectMeta) -> Result<(), TargetError> {
        let name = job.name.as_deref().unwrap_or_default();
        let as_seen = Preconditions {
            uid: job.uid.clone(),
            resource_version: job.resource_version.clone(),
        };
        let parameters = DeleteParams::background().preconditions(as_seen);
        let deleted = self.api.delete(name, &parameters).await;
        // A Job that has changed is read again by the next step.
        let what = format!("deleting the abandoned Job {name} of {}", self.called);
        Write::of(deleted, what).map(drop)
    }

    /// Returns the pods that have not ended.
    pub(super) async fn pods_left(&self, listed: Option<&Index>) -> Result<Vec<Left>, TargetError> {
        self.pods
            .left_of(JOB_NAME, |pod| self.made_pod(listed, pod))
            .await
    }

    /// Reports whether the pod belongs to a Job of the CronJob.
    pub(super) fn made_pod(&self, listed: Option<&Index>, pod: &ObjectMeta) -> bool {
        let made = |job: &str| match listed {
            Some(all) => all.is_of(&self.name, job),
            None => self.shared.is_known(job),
        };
        let job = pod.labels.as_ref().and_then(|labels| labels.get(JOB_NAME));
        job.is_some_and(|job| made(job).unwrap_or_else(|| self.would_make(job)))
    }

    /// Matches by name, as the CronJob controller does: the Jobs of a deleted CronJob belong to a new one of its name.
    fn made(&self, job: &ObjectMeta) -> bool {
        maker(job) == Some(&*self.name)
    }

    /// Reports whether the CronJob would give a Job this name. The pods of a deleted Job remain for a while.
    fn would_make(&self, job: &str) -> bool {
        scheduler(job) == Some(&*self.name)
    }

    /// Returns one item for each change of the Jobs.
    pub(super) fn follow(&self) -> impl Stream<Item = ()> + Send + 'static {
        stream::unfold(self.shared.clone(), |mut shared| async {
            shared.changed().await;
            Some(((), shared))
        })
    }

    fn error(&self, doing: &str, error: &kube::Error) -> TargetError {
        TargetError::of(format!("{doing} of {}", self.called), error)
    }
}

fn is_abandoned(job: &Job) -> bool {
    let labels = job.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(ABANDONED))
}
