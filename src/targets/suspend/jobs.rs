//! The Jobs of one CronJob and their pods.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{Stream, future::join_all, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde_json::json;

use super::{
    heed::{StopGuard, Suspensions},
    job::{JOB_NAME, is_suspended},
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
        slim::{ABANDONED, Job, cron_job, finished},
    },
};

pub(super) struct Jobs {
    context: TargetContext,
    /// Of the CronJob.
    name: String,
    /// As in `CronJob billing/report`.
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

    /// As the watch shows them, which may be behind; none while the first list is not complete.
    pub(super) fn known(&self) -> Result<Option<Vec<Arc<Job>>>, TargetError> {
        self.shared.known()
    }

    /// All of the namespace, by a list that began then or later.
    pub(super) async fn listed(&self, since: BootInstant) -> Result<Arc<Index>, TargetError> {
        self.shared.listed(since).await
    }

    /// Grows with each change of them.
    pub(super) fn changes(&self) -> u64 {
        self.shared.changes()
    }

    /// Whether none of them runs, as far as their own controller knows, too.
    pub(super) fn are_stopped(&self, own: &[Arc<Job>]) -> bool {
        own.iter()
            .all(|job| self.suspensions.is_heeded(job) && (finished(job).is_some() || is_suspended(job)))
    }

    /// Suspends and marks what has not ended, ahead of anything that resumes it. False if there was nothing to do.
    pub(super) async fn abandon(&self, own: &[Arc<Job>], permit: &StopPermit) -> Result<bool, TargetError> {
        self.suspensions.retain(own);
        let left = own
            .iter()
            .filter(|job| finished(job).is_none() && !(is_suspended(job) && is_abandoned(job)));
        // Each of them, whatever becomes of the others.
        let written = join_all(left.map(|job| self.abandon_one(job, permit))).await;
        let any = !written.is_empty();
        written.into_iter().collect::<Result<(), _>>()?;
        Ok(any)
    }

    /// Whatever version of it the watch shows: one that is behind must not hold up the stop, and no sibling resumes an
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
                "Job {name} of {} had not ended when this cluster had to stop it: it is suspended for good, and deleted \
                 when this cluster is active again",
                self.called
            );
            self.context.emit(EventReason::JobAbandoned, text);
        }
        Ok(())
    }

    /// Has the controller say anew of each that it has seen its suspension, where what it says may be old.
    pub(super) async fn renew(&self, own: &[Arc<Job>], permit: &StopPermit) -> Result<(), TargetError> {
        let renew = |job| self.suspensions.renew(&self.api, job, permit);
        let renewed = join_all(own.iter().map(|job| renew(job))).await;
        renewed.into_iter().collect()
    }

    /// On return: what is suspended would keep a CronJob with `concurrencyPolicy: Forbid` from ever running again. False
    /// if there was nothing to do: true also without the authority.
    pub(super) async fn delete_abandoned(&self, permit: &StartPermit) -> Result<bool, TargetError> {
        let which = ListParams::default().labels(ABANDONED);
        // One that ended nevertheless belongs to the history.
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
        // Another one by now is read again.
        let what = format!("deleting the abandoned Job {name} of {}", self.called);
        Write::of(deleted, what).map(drop)
    }

    /// The pods that have not ended.
    pub(super) async fn pods_left(&self, listed: Option<&Index>) -> Result<Vec<Left>, TargetError> {
        let made = |job: &str| match listed {
            Some(all) => all.is_of(&self.name, job),
            None => self.shared.is_known(job),
        };
        let belong = |job: &str| made(job).unwrap_or_else(|| self.would_make(job));
        let of = |labels: Option<&BTreeMap<String, String>>| {
            labels
                .and_then(|labels| labels.get(JOB_NAME))
                .is_some_and(|job| belong(job))
        };
        self.pods.left_of(JOB_NAME, |pod| of(pod.labels.as_ref())).await
    }

    /// By name, as the controller of CronJobs does it: those of a CronJob that was made anew are still its.
    fn made(&self, job: &ObjectMeta) -> bool {
        cron_job(job).is_some_and(|owner| owner.name == self.name)
    }

    /// Pods stay for a while when their Job is deleted; a scheduled one is called so.
    fn would_make(&self, job: &str) -> bool {
        let slot = job
            .strip_prefix(&self.name)
            .and_then(|rest| rest.strip_prefix('-'));
        slot.is_some_and(|slot| !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Every change of one of them.
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
