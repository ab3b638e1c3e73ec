//! Decides whether the controller of Jobs has seen a suspension. Until then it may still create pods.
//!
//! A Job that was just resumed may still have the condition `Suspended` of the earlier suspension, which proves nothing
//! about the next one. The operator removes that condition before it suspends the Job again. A condition that exists
//! afterwards was written by a controller that has seen the new suspension, since its writes apply to the latest
//! version only. A condition that the operator leaves in place when it writes `suspend` is remembered as old, also in
//! an annotation of the Job: another writer may suspend a Job that was just resumed, and another replica may take over.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{api::batch::v1::JobCondition, apimachinery::pkg::apis::meta::v1::Time};
use kube::Api;
use serde_json::{Value, json};
use tokio::time;

use super::{
    job::{is_observed, is_suspended},
    write::{Write, patch, patch_status},
};
use crate::targets::{
    Found, StopPermit, TargetError,
    attempts::Precondition,
    slim::{Job, OLD_CONDITION},
};

/// The time limit for the removal of the condition. After it, the Job is suspended without the removal, since a stop
/// must not wait.
const BRIEFLY: Duration = Duration::from_millis(500);

/// The conditions for the suspension of a Job.
#[derive(Clone, Copy)]
pub(super) struct StopGuard<'a> {
    pub(super) permit: &'a StopPermit,
    pub(super) found: Found,
    /// The version or UID that the Job must still have.
    pub(super) precondition: Precondition,
}

/// The times of conditions of an earlier suspension that Jobs had when they were suspended or resumed, by the
/// UID of the Job.
#[derive(Debug, Default)]
pub(super) struct Suspensions(Mutex<BTreeMap<String, Option<Time>>>);

impl Suspensions {
    /// Reports whether the controller has seen the suspension, by a condition that is newer than the last start.
    pub(super) fn is_observed(&self, job: &Job) -> bool {
        is_observed(job) && !self.is_stale(job)
    }

    /// Suspends a Job with this change, if the guard allows the write.
    ///
    /// With `Precondition::Uid`, an old condition that cannot be removed at once is remembered.
    pub(super) async fn suspend(
        &self,
        api: &Api<Job>,
        job: &Job,
        change: &Value,
        what: &str,
        guard: StopGuard<'_>,
    ) -> Result<Write<Job>, TargetError> {
        let StopGuard {
            permit,
            found,
            precondition,
        } = guard;
        if !permit.holds(found) {
            return Ok(Write::Late);
        }
        let mut removed = None;
        if !is_suspended(job) && suspended(job).is_some() {
            match time::timeout(BRIEFLY, remove(api, job)).await {
                // The Job has another version: the controller may have seen that it runs.
                Ok(Ok(Write::Late | Write::Missing)) if precondition == Precondition::Version => {
                    return Ok(Write::Late);
                }
                Ok(Ok(Write::Done(now))) => removed = Some(now),
                // The condition is remembered below.
                Ok(_) | Err(_) => {}
            }
        }
        // The times of conditions are whole seconds. A condition that was removed is not remembered, since the next one
        // may have the same time.
        let job = removed.as_deref().unwrap_or(job);
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let mut change = change.clone();
        if !is_suspended(job) {
            annotate(&mut change, job);
        }
        precondition.require(&mut change, &job.metadata);
        if !permit.holds(found) {
            return Ok(Write::Late);
        }
        let written = patch(api, name, &change, what).await?;
        if let Write::Done(now) = &written
            && !is_suspended(job)
        {
            self.remember(now);
        }
        Ok(written)
    }

    /// Removes a condition that may be older than the suspension of the Job, so that the controller writes it again.
    pub(super) async fn renew(
        &self,
        api: &Api<Job>,
        job: &Job,
        permit: &StopPermit,
    ) -> Result<(), TargetError> {
        if is_suspended(job) && self.is_stale(job) && permit.holds(Found::Running) {
            remove(api, job).await?;
        }
        Ok(())
    }

    /// Forgets Jobs that are gone.
    pub(super) fn retain<J: Borrow<Job>>(&self, all: &[J]) {
        let has = |job: &Job, uid: &String| job.metadata.uid.as_ref() == Some(uid);
        let is = |uid: &String| all.iter().any(|job| has(job.borrow(), uid));
        self.known().retain(|uid, _| is(uid));
    }

    /// Remembers the condition of a Job after a write to `suspend`: it belongs to an earlier suspension.
    pub(super) fn remember(&self, job: &Job) {
        let uid = job.metadata.uid.clone().unwrap_or_default();
        match suspended(job) {
            Some(condition) => self.known().insert(uid, condition.last_transition_time.clone()),
            None => self.known().remove(&uid),
        };
    }

    fn is_stale(&self, job: &Job) -> bool {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let Some(condition) = suspended(job) else {
            return false;
        };
        let annotations = job.metadata.annotations.as_ref();
        let annotated = annotations.and_then(|all| all.get(OLD_CONDITION));
        annotated == Some(&time_of(condition))
            || self.known().get(uid) == Some(&condition.last_transition_time)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Option<Time>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the time of the condition that is left in place to a change of `suspend`.
pub(super) fn annotate(change: &mut Value, job: &Job) {
    if let Some(condition) = suspended(job) {
        change["metadata"]["annotations"][OLD_CONDITION] = json!(time_of(condition));
    }
}

fn time_of(condition: &JobCondition) -> String {
    let time = condition.last_transition_time.as_ref();
    time.map(|time| time.0.to_string()).unwrap_or_default()
}

/// Returns the condition by which the controller confirms a suspension.
fn suspended(job: &Job) -> Option<&JobCondition> {
    conditions(job).find(|condition| condition.type_ == SUSPENDED && condition.status == "True")
}

fn conditions(job: &Job) -> impl Iterator<Item = &JobCondition> {
    let status = job.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
        .iter()
}

const SUSPENDED: &str = "Suspended";

/// Removes the condition `Suspended` from this version of a Job.
async fn remove(api: &Api<Job>, job: &Job) -> Result<Write<Job>, TargetError> {
    let left: Vec<_> = conditions(job)
        .filter(|condition| condition.type_ != SUSPENDED)
        .collect();
    let change = json!({
        "metadata": { "resourceVersion": job.metadata.resource_version },
        "status": { "conditions": left },
    });
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let what = format!("removing the old condition {SUSPENDED} of Job {name}");
    patch_status(api, name, &change, &what).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{Router, routing};

    use super::*;
    use crate::targets::fake_server::fake_server;

    fn job(status: &str, at: &str) -> Job {
        let condition = json!({ "type": "Suspended", "status": status, "lastTransitionTime": at });
        let job = json!({
            "metadata": { "uid": "u" },
            "spec": { "suspend": true, "template": {} },
            "status": { "conditions": [condition] },
        });
        serde_json::from_value(job).unwrap()
    }

    /// Returns the API of a server with this Job, which answers patches of the Job and of its status, and the
    /// patches of the Job that it received.
    async fn server_of(first: Job) -> (Api<Job>, Arc<Mutex<Vec<Value>>>) {
        let bare = serde_json::to_value(Job {
            status: None,
            ..first
        })
        .unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (answer, suspended, seen) = (bare.clone(), bare, written.clone());
        let routes = Router::new()
            .route(
                "/apis/batch/v1/namespaces/n/jobs/j/status",
                routing::patch(async move || axum::Json(answer)),
            )
            .route(
                "/apis/batch/v1/namespaces/n/jobs/j",
                routing::patch(async move |axum::Json(change): axum::Json<Value>| {
                    seen.lock().unwrap().push(change);
                    axum::Json(suspended)
                }),
            );
        (Api::namespaced(fake_server(routes).await, "n"), written)
    }

    #[tokio::test]
    async fn condition_that_was_removed_is_not_remembered() {
        let mut running = job("True", THEN);
        running.metadata.name = Some("j".into());
        running.spec.as_mut().unwrap().suspend = Some(false);
        let (api, written) = server_of(running.clone()).await;
        let suspensions = Suspensions::default();
        let change = json!({ "spec": { "suspend": true } });
        let guard = StopGuard {
            permit: &StopPermit::new(|_| true),
            found: Found::Running,
            precondition: Precondition::Version,
        };
        let end = suspensions
            .suspend(&api, &running, &change, "suspending", guard)
            .await;
        assert!(matches!(end.unwrap(), Write::Done(_)));
        assert_eq!(*written.lock().unwrap(), [change], "no annotation");
        assert!(suspensions.is_observed(&job("True", THEN)), "of the same second");
    }

    const THEN: &str = "2026-01-01T12:00:00Z";
    const LATER: &str = "2026-01-01T12:00:05Z";

    #[test]
    fn condition_of_an_earlier_suspension_proves_nothing() {
        let bare: Job = serde_json::from_value(json!({ "metadata": { "uid": "u" } })).unwrap();
        for (at_the_write, now, observed) in [
            // The Job had no condition when it was suspended, or one that is not true.
            (bare.clone(), job("True", THEN), true),
            (job("False", THEN), job("True", THEN), true),
            (job("False", THEN), job("False", LATER), false),
            // The condition is older than the suspension.
            (job("True", THEN), job("True", THEN), false),
            (job("True", THEN), job("True", LATER), true),
            (job("True", THEN), job("False", LATER), false),
            (job("True", THEN), bare, false),
        ] {
            let suspensions = Suspensions::default();
            suspensions.remember(&at_the_write);
            assert_eq!(
                suspensions.is_observed(&now),
                observed,
                "{at_the_write:?}\n{now:?}"
            );
        }
        assert!(
            Suspensions::default().is_observed(&job("True", THEN)),
            "this replica did not suspend it"
        );
    }

    #[test]
    fn another_replica_finds_the_old_condition_by_the_annotation() {
        let mut change = json!({ "spec": { "suspend": true } });
        annotate(&mut change, &job("True", THEN));
        let annotated = |at| Job {
            metadata: serde_json::from_value(change["metadata"].clone()).unwrap(),
            ..job("True", at)
        };
        let other = Suspensions::default();
        assert!(!other.is_observed(&annotated(THEN)));
        assert!(other.is_observed(&annotated(LATER)));
        let mut unchanged = json!({});
        annotate(&mut unchanged, &job("False", THEN));
        assert_eq!(unchanged, json!({}));
    }

    #[test]
    fn jobs_that_are_gone_are_forgotten() {
        let suspensions = Suspensions::default();
        suspensions.remember(&job("True", THEN));
        suspensions.retain(&[job("True", THEN)]);
        assert!(suspensions.is_stale(&job("True", THEN)));
        suspensions.retain::<Job>(&[]);
        assert!(!suspensions.is_stale(&job("True", THEN)));
    }
}
