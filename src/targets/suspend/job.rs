//! Switches a Job: it runs in the cluster that holds the lock, and is suspended in every other cluster.

use futures_util::StreamExt;
use k8s_openapi::api::batch::v1::JobCondition;
use kube::{Api, core::Selector};
use serde_json::{Value, json};

use super::{
    TRIES, conflict, contested, missing,
    observed::{StopGuard, Suspensions, annotate},
    write::{Write, resume},
};
use crate::{
    api::lock_status::TargetState,
    lease::{BootInstant, FencingToken},
    targets::{
        Changes, EventReason, Found, StartPermit, Step, StopPermit, TargetContext, TargetError,
        attempts::Attempts,
        fencing::{not_fenced, unfenced},
        in_flight::InFlight,
        owner::{declared_by, suspends},
        pods::{Left, Pods},
        read::Place,
        slim::{Job, JobSpec, finished},
    },
};

/// The label on every pod of a Job, with the name of the Job.
pub(super) const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The controller that confirms a suspension by a condition. For a Job of another controller, the suspension counts as
/// seen at once.
const CONTROLLER: &str = "kubernetes.io/job-controller";
/// The annotation that passes the fencing token of the lease to the pods.
const TOKEN: &str = "redlock.dev/fencing-token";

pub(in crate::targets) struct OneJob {
    context: TargetContext,
    name: String,
    /// The name of the Job in messages, as in `Job billing/report`.
    called: String,
    jobs: Api<Job>,
    place: Place,
    pods: Pods,
    suspensions: Suspensions,
    in_flight: InFlight,
    /// The UID of the Job whose end was reported.
    ended: Option<String>,
    /// Whether the Job, as it was last read, disappears by itself: it has ended, or ends and is then deleted.
    may_disappear: bool,
    /// The lease under which the Job ran, and the UID of that Job.
    ran: Option<(FencingToken, Option<String>)>,
    /// The UID of the Job that was suspended since the last start.
    stopped: Option<String>,
    attempts: Attempts,
}

impl OneJob {
    pub(in crate::targets) fn new(context: TargetContext, name: &str) -> Self {
        let called = format!("Job {}/{name}", context.namespace);
        Self {
            name: name.to_owned(),
            jobs: Api::namespaced(context.client.clone(), &context.namespace),
            place: super::place::<Job>(&context, name),
            pods: Pods::new(&context.client, &context.namespace, &called),
            called,
            suspensions: Suspensions::default(),
            in_flight: InFlight::default(),
            ended: None,
            may_disappear: false,
            ran: None,
            stopped: None,
            attempts: Attempts::default(),
            context,
        }
    }

    async fn read(&mut self) -> Result<Option<Job>, TargetError> {
        let found = self.get().await?;
        if let Some(job) = &found {
            self.may_disappear = may_disappear(job);
        }
        Ok(found)
    }

    async fn get(&self) -> Result<Option<Job>, TargetError> {
        let found = self.jobs.get(&self.name).await;
        let what = || format!("reading {}", self.called);
        self.place.settle(what, found).await
    }

    async fn left(&self, job: Option<&Job>) -> Result<Vec<Left>, TargetError> {
        self.pods.left(&selector(&self.name, job)).await
    }

    pub(in crate::targets) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let job = self.read().await?;
        let job = job.as_ref();
        if job.is_some_and(|job| finished(job).is_none() && !is_suspended(job)) {
            return Ok(TargetState::Active);
        }
        let observed = job.is_none_or(|job| self.suspensions.is_observed(job));
        Ok(if observed && self.left(job).await?.is_empty() {
            TargetState::Standby
        } else {
            TargetState::Changing
        })
    }

    pub(in crate::targets) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        self.stopped = None;
        self.attempts.settle();
        let Some(job) = self.read().await? else {
            // A Job that has ended and is gone needs no start; another Job of its name is noticed by the watch.
            let ended = self.may_disappear && !self.in_flight.is_open();
            return Ok(if ended { Step::Done } else { missing(&self.called) });
        };
        if let Some(how) = finished(&job) {
            self.emit_end(&job, how);
        } else if let Some(step) = self.not_fenced(&job).await? {
            return Ok(step);
        } else if is_suspended(&job) {
            let this = (permit.token(), job.metadata.uid.clone());
            let revived = self.ran.as_ref() == Some(&this);
            let step = self.resume(&job, permit).await?;
            if step != Step::Done {
                return Ok(step);
            }
            self.ran = Some(this);
            return Ok(if revived {
                Step::Contested(format!("{} was suspended by another writer", self.called))
            } else {
                step
            });
        } else {
            self.ran = Some((permit.token(), job.metadata.uid.clone()));
        }
        self.in_flight.settle();
        Ok(Step::Done)
    }

    async fn not_fenced(&self, job: &Job) -> Result<Option<Step>, TargetError> {
        let state = if is_suspended(job) {
            TargetState::Standby
        } else {
            TargetState::Active
        };
        not_fenced(&self.context, &self.place, (&self.name, &self.called), state).await
    }

    async fn resume(&mut self, job: &Job, permit: &StartPermit) -> Result<Step, TargetError> {
        if let Some(controller) = suspends(&job.metadata) {
            return Ok(contested(&self.called, &controller));
        }
        if let Some(owner) = declared_by(&job.metadata, &["spec", "suspend"]) {
            return Ok(conflict(&self.called, &owner));
        }
        let mut change = json!({
            "metadata": { "resourceVersion": job.metadata.resource_version },
            "spec": { "suspend": false },
        });
        if may_carry_token(job) {
            let annotations = json!({ TOKEN: permit.token().0.to_string() });
            change["spec"]["template"] = json!({ "metadata": { "annotations": annotations } });
        }
        annotate(&mut change, job);
        let names = (&*self.name, &*self.called);
        let written = resume(&self.jobs, names, &change, &mut self.in_flight, permit).await?;
        Ok(match written {
            Write::Done(resumed) => {
                // Another writer may suspend the Job before its controller has seen that it was resumed.
                self.suspensions.remember(&resumed);
                Step::Done
            }
            Write::Missing => missing(&self.called),
            Write::Late => Step::Working(TargetState::Standby),
        })
    }

    /// Suspends the Job. Done when the pods are gone, not when the field is written.
    pub(in crate::targets) async fn stop(
        &mut self,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        self.ran = None;
        let runs = |job: &&Job| finished(job).is_none() && !is_suspended(job);
        let mut tries = 0;
        let job = loop {
            let job = self.read().await?;
            let Some(running) = job.as_ref().filter(runs) else {
                break job;
            };
            tries += 1;
            match self.suspend(running, permit).await? {
                Some(step) => return Ok(step),
                None if tries < TRIES => {}
                None => return Ok(Step::Working(TargetState::Changing)),
            }
        };
        self.attempts.settle();
        let left = self.left(job.as_ref()).await?;
        let observed = job.as_ref().is_none_or(|job| self.suspensions.is_observed(job));
        if observed && left.is_empty() && !self.in_flight.is_open() {
            self.in_flight.settle();
            return Ok(Step::Done);
        }
        self.pods.hurry(&left, by, permit).await?;
        if let Some(job) = &job {
            self.suspensions.renew(&self.jobs, job, permit).await?;
        }
        Ok(Step::Working(TargetState::Changing))
    }

    /// Suspends the Job. Returns `None` if it has changed since it was read.
    async fn suspend(&mut self, job: &Job, permit: &StopPermit) -> Result<Option<Step>, TargetError> {
        let what = format!("suspending {}", self.called);
        let uid = job.metadata.uid.clone();
        let again = uid.is_some() && self.stopped == uid;
        let found = Found::of(again);
        let guard = StopGuard {
            permit,
            found,
            precondition: self.attempts.send(),
        };
        let written = self
            .suspensions
            .suspend(&self.jobs, job, &suspension(), &what, guard)
            .await?;
        match written {
            // An unanswered start was for an earlier version, and can no longer apply.
            Write::Done(_) => {
                self.in_flight.settle();
                self.attempts.settle();
            }
            Write::Missing => {}
            Write::Late if permit.holds(found) => return Ok(None),
            Write::Late => {
                self.attempts.settle();
                return Ok(Some(Step::Working(TargetState::Active)));
            }
        }
        self.stopped = uid;
        Ok(Some(if again {
            Step::Contested(format!("{} was resumed by another writer", self.called))
        } else {
            Step::Working(TargetState::Changing)
        }))
    }

    /// Reports once for each Job that it has ended: a start then has no effect.
    fn emit_end(&mut self, job: &Job, how: &str) {
        if self.ended == job.metadata.uid {
            return;
        }
        self.ended.clone_from(&job.metadata.uid);
        let text = format!("{} has ended ({how}): it is not started", self.called);
        self.context.emit(EventReason::TargetEnded, text);
    }
}

impl OneJob {
    pub(in crate::targets) fn late(&self) -> Option<String> {
        self.pods.late()
    }

    /// Returns a running pod that is not fenced.
    pub(in crate::targets) async fn unfenced(&self) -> Result<Option<String>, TargetError> {
        let job = self.get().await?;
        let selector = selector(&self.name, job.as_ref());
        unfenced(&self.context, (&selector, &self.called), |_| true).await
    }

    pub(in crate::targets) fn changes(&self) -> Changes {
        let followed = self.context.shared.job(&self.context.namespace, &self.name);
        followed.changes().boxed()
    }
}

pub(super) fn suspension() -> Value {
    json!({ "spec": { "suspend": true } })
}

pub(super) fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

/// Reports whether the controller has seen the suspension of the Job. Until then it may still create pods: a
/// controller that lost its connection to the API server may take half a minute to follow the Job again.
pub(super) fn is_observed(job: &Job) -> bool {
    let elsewhere = |spec: &JobSpec| spec.managed_by.as_deref().is_some_and(|by| by != CONTROLLER);
    finished(job).is_some()
        || job.metadata.deletion_timestamp.is_some()
        || job.spec.as_ref().is_some_and(elsewhere)
        || conditions(job).any(|condition| condition == "Suspended")
}

/// Reports whether a Job that was read and is missing later has ended: it had ended already, or its controllers delete it
/// at its end.
fn may_disappear(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    let expires = spec.is_some_and(|spec| spec.ttl_seconds_after_finished.is_some());
    finished(job).is_some() || (expires && !is_suspended(job))
}

/// Returns the types of the conditions that are true.
fn conditions(job: &Job) -> impl Iterator<Item = &str> {
    let status = job.status.as_ref();
    let all = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let holds = |condition: &&JobCondition| condition.status == "True";
    all.iter().filter(holds).map(|condition| &*condition.type_)
}

/// Reports whether the template may be changed: the API server rejects the change for a Job that runs, or ran before it
/// was suspended.
fn may_carry_token(job: &Job) -> bool {
    job.status
        .as_ref()
        .is_none_or(|status| status.start_time.is_none())
}

/// Returns the selector of the pods of a Job, even if the Job is gone or was replaced by another of its name.
fn selector(name: &str, job: Option<&Job>) -> String {
    let spec = job.and_then(|job| job.spec.as_ref());
    let own = spec.filter(|spec| spec.manual_selector == Some(true));
    let own = own.and_then(|spec| Selector::try_from(spec.selector.clone()?).ok());
    own.map_or_else(|| format!("{JOB_NAME}={name}"), |own| own.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(value: Value) -> Job {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn it_has_ended_when_a_condition_reports_its_end() {
        let with = |kind: &str, status: &str| {
            job(json!({ "status": { "conditions": [{ "type": kind, "status": status }] } }))
        };
        assert_eq!(finished(&with("Complete", "True")), Some("Complete"));
        assert_eq!(finished(&with("Failed", "True")), Some("Failed"));
        assert_eq!(finished(&with("Complete", "False")), None);
        assert_eq!(
            finished(&with("FailureTarget", "True")),
            None,
            "its pods still go"
        );
        assert_eq!(finished(&Job::default()), None);
        assert!(is_observed(&with("Suspended", "True")) && is_observed(&with("Complete", "True")));
        assert!(!is_observed(&with("Suspended", "False")) && !is_observed(&Job::default()));
    }

    #[test]
    fn job_that_has_ended_or_is_deleted_at_its_end_may_disappear() {
        let ended = json!([{"type": "Complete", "status": "True"}]);
        for (spec, conditions, wanted) in [
            (json!({}), json!([]), false),
            (json!({}), ended.clone(), true),
            (json!({"ttlSecondsAfterFinished": 0}), json!([]), true),
            // A suspended Job does not end.
            (
                json!({"ttlSecondsAfterFinished": 0, "suspend": true}),
                json!([]),
                false,
            ),
            (
                json!({"ttlSecondsAfterFinished": 9, "suspend": true}),
                ended,
                true,
            ),
        ] {
            let found = job(json!({"spec": spec, "status": {"conditions": conditions}}));
            assert_eq!(may_disappear(&found), wanted, "{found:?}");
        }
    }

    #[test]
    fn its_pods_are_found_also_when_it_is_gone() {
        assert_eq!(selector("work", None), "batch.kubernetes.io/job-name=work");
        let own = job(json!({ "spec": {
            "manualSelector": true, "selector": { "matchLabels": { "app": "work" } }, "template": {},
        } }));
        assert_eq!(selector("work", Some(&own)), "app=work");
    }
}
