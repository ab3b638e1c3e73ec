//! The Jobs of one CronJob and their pods.

use std::collections::BTreeMap;

use futures_util::{
    Stream, StreamExt,
    future::{join_all, ready},
};
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde_json::json;

use super::{
    job::{JOB_NAME, finished, is_heeded, is_suspended},
    write::{Write, patch},
};
use crate::{
    clock,
    targets::{
        Pause, Site, TargetError,
        pods::{Left, Pods},
    },
};

/// On a Job that was stopped in the middle: since when, as unix seconds. It is never resumed.
const ABANDONED: &str = "redlock.dev/abandoned";

pub(super) struct Jobs {
    site: Site,
    /// Of the CronJob.
    name: String,
    /// As in `CronJob billing/report`.
    called: String,
    api: Api<Job>,
    pub(super) pods: Pods,
}

impl Jobs {
    pub(super) fn new(site: &Site, name: &str, called: &str) -> Self {
        Self {
            site: site.clone(),
            name: name.to_owned(),
            called: called.to_owned(),
            api: Api::namespaced(site.client.clone(), &site.namespace),
            pods: Pods::new(&site.client, &site.namespace, called),
        }
    }

    /// All of the namespace: who made a Job is in its owner references only, which cannot be selected by.
    pub(super) async fn all(&self) -> Result<Vec<Job>, TargetError> {
        self.list(&ListParams::default()).await
    }

    async fn list(&self, which: &ListParams) -> Result<Vec<Job>, TargetError> {
        let list = self.api.list(which).await;
        let list = list.map_err(|error| self.error("listing the Jobs", &error))?;
        Ok(list.items)
    }

    /// Whether none of them runs, as far as their own controller knows, too.
    pub(super) fn are_stopped(&self, all: &[Job]) -> bool {
        let mut own = all.iter().filter(|job| self.made(&job.metadata));
        own.all(|job| is_heeded(job) && (finished(job).is_some() || is_suspended(job)))
    }

    /// Suspends and marks what has not ended, ahead of anything that resumes it. False if there was nothing to do.
    pub(super) async fn abandon(&self, all: &[Job]) -> Result<bool, TargetError> {
        let left = all.iter().filter(|job| self.made(&job.metadata));
        let left = left.filter(|job| finished(job).is_none() && !(is_suspended(job) && is_abandoned(job)));
        // Each of them, whatever becomes of the others.
        let written = join_all(left.map(|job| self.abandon_one(job))).await;
        let any = !written.is_empty();
        written.into_iter().collect::<Result<(), _>>()?;
        Ok(any)
    }

    async fn abandon_one(&self, job: &Job) -> Result<(), TargetError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let mut metadata = json!({ "uid": job.metadata.uid });
        if !is_abandoned(job) {
            metadata["labels"] = json!({ ABANDONED: clock::unix_time().as_secs().to_string() });
        }
        let change = json!({ "metadata": metadata, "spec": { "suspend": true } });
        let what = format!("suspending Job {name} of {}", self.called);
        let written = patch(&self.api, name, &change, &what).await?;
        if matches!(written, Write::Done(_)) && !is_abandoned(job) {
            let text = format!(
                "Job {name} of {} had not ended when this cluster had to stop it: it is suspended for good, and deleted \
                 when this cluster is active again",
                self.called
            );
            self.site.warn("JobAbandoned", text);
        }
        Ok(())
    }

    /// On return: what is suspended would keep a CronJob with `concurrencyPolicy: Forbid` from ever running again. False
    /// if there was nothing to do.
    pub(super) async fn delete_abandoned(&self) -> Result<bool, TargetError> {
        let marked = self.list(&ListParams::default().labels(ABANDONED)).await?;
        let left = marked.iter().filter(|job| self.made(&job.metadata));
        // One that ended nevertheless belongs to the history.
        let left = left.filter(|job| finished(job).is_none() && job.metadata.deletion_timestamp.is_none());
        let deleted = join_all(left.map(|job| self.delete(&job.metadata))).await;
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
        match self.api.delete(name, &parameters).await {
            Ok(_) => Ok(()),
            // Another one by now: looked at again.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(self.error(&format!("deleting the abandoned Job {name}"), &error)),
        }
    }

    /// The pods that have not ended.
    pub(super) async fn pods_left(&self, all: &[Job]) -> Result<Vec<Left>, TargetError> {
        let named = |job: &Job| Some((job.metadata.name.clone()?, self.made(&job.metadata)));
        let known: BTreeMap<String, bool> = all.iter().filter_map(named).collect();
        let belong = |job: &str| known.get(job).copied().unwrap_or_else(|| self.would_make(job));
        let of = |labels: Option<&BTreeMap<String, String>>| {
            labels
                .and_then(|labels| labels.get(JOB_NAME))
                .is_some_and(|job| belong(job))
        };
        self.pods
            .left_of(JOB_NAME, |pod| of(pod.metadata.labels.as_ref()))
            .await
    }

    /// By name, as the controller of CronJobs does it: those of a CronJob that was made anew are still its.
    fn made(&self, job: &ObjectMeta) -> bool {
        is_made_by(&self.name, job)
    }

    /// Pods stay for a while when their Job is deleted; a scheduled one is called so.
    fn would_make(&self, job: &str) -> bool {
        let slot = job
            .strip_prefix(&self.name)
            .and_then(|rest| rest.strip_prefix('-'));
        slot.is_some_and(|slot| !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Every change of one of them.
    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + 'static {
        let jobs = Api::<PartialObjectMeta<Job>>::namespaced(self.site.client.clone(), &self.site.namespace);
        let name = self.name.clone();
        let events = watcher::watcher(jobs, watcher::Config::default()).backoff(Pause::default());
        events.filter_map(move |event| {
            let of = match &event {
                Ok(Event::Apply(job) | Event::InitApply(job) | Event::Delete(job)) => {
                    is_made_by(&name, &job.metadata)
                }
                Ok(Event::Init | Event::InitDone) | Err(_) => false,
            };
            ready(of.then_some(()))
        })
    }

    fn error(&self, doing: &str, error: &kube::Error) -> TargetError {
        TargetError::of(format!("{doing} of {}", self.called), error)
    }
}

fn is_made_by(cron_job: &str, job: &ObjectMeta) -> bool {
    let owners = job.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| {
        owner.controller == Some(true)
            && owner.kind == "CronJob"
            && owner.api_version.starts_with("batch/")
            && owner.name == cron_job
    })
}

fn is_abandoned(job: &Job) -> bool {
    let labels = job.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(ABANDONED))
}
