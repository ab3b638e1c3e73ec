//! The controller of Jobs, and of the time to live of finished ones.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan,
    object::{
        Condition, FieldPath, Object, condition, count, count_or, flag, is_deleting, is_pod_over,
        is_pod_ready, is_true, later, name, namespace, set_count, status_of, text, time, uid, written,
    },
    pod_template::{new_pod, pods_of, random_suffix, set_label},
    selector::Owner,
};

const KIND: &str = "Job";
const CONTROLLER: &str = "kubernetes.io/job-controller";

/// The effect of a pod on the counts of its Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodOutcome {
    Succeeded,
    Failed,
    /// The controller itself deleted the pod.
    Ignored,
}

type PodOutcomes = BTreeMap<String, PodOutcome>;

/// The outcomes of all pods of a Job, by the UIDs of the Job and of the pod. They take the place of the finalizer
/// `batch.kubernetes.io/job-tracking` of real pods.
#[derive(Debug, Default)]
pub(super) struct CountedPods(BTreeMap<String, PodOutcomes>);

/// Returns `Complete` or `Failed` if the Job has ended.
pub(super) fn finished(job: &Value) -> Option<&'static str> {
    ["Complete", "Failed"].into_iter().find(|kind| is_true(job, kind))
}

pub(super) fn reconcile(
    objects: &dyn ClusterObjects,
    counted: &mut CountedPods,
    random: &mut fastrand::Rng,
    now: Timestamp,
) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let jobs = objects.list(KIND);
    if jobs.is_empty() {
        return plan;
    }
    let pods = objects.list("Pod");
    counted
        .0
        .retain(|known, _| jobs.iter().any(|job| uid(job) == known));
    for job in &jobs {
        let manager = text(job, "/spec/managedBy");
        if !manager.is_empty() && manager != CONTROLLER {
            continue;
        }
        match finished(job) {
            Some(end) => expire(job, end, now, &mut plan),
            None => {
                let pods: Vec<&Object> = pods_of(&pods, job).collect();
                let counted = counted.0.entry(uid(job).to_owned()).or_default();
                let mut sync = JobSync::new(job, pods, counted, now);
                sync.advance(random, &mut plan);
                plan.update_status(KIND, job, sync.status);
            }
        }
    }
    plan
}

/// Deletes a Job whose time to live is over.
fn expire(job: &Value, end: &str, now: Timestamp, plan: &mut ControllerPlan) {
    let ttl = job.at("/spec/ttlSecondsAfterFinished").and_then(Value::as_u64);
    let ended = condition(job.get("status"), end).and_then(|end| time(end, "/lastTransitionTime"));
    if let (Some(ttl), Some(ended), false) = (ttl, ended, is_deleting(job)) {
        let expires = later(ended, Duration::from_secs(ttl));
        if expires <= now {
            plan.delete(KIND, job);
        } else {
            plan.wake_at(expires);
        }
    }
}

struct JobSync<'a> {
    job: &'a Value,
    status: Value,
    active: Vec<&'a Object>,
    terminating: i64,
    outcomes: &'a mut PodOutcomes,
    now: Timestamp,
}

impl<'a> JobSync<'a> {
    fn new(job: &'a Value, pods: Vec<&'a Object>, outcomes: &'a mut PodOutcomes, now: Timestamp) -> Self {
        let mut terminating = 0;
        let mut active = Vec::new();
        for pod in pods {
            let (over, deleting) = (is_pod_over(pod), is_deleting(pod));
            terminating += i64::from(!over && deleting);
            if !deleting && outcomes.get(uid(pod)) == Some(&PodOutcome::Ignored) {
                // The deletion was never written.
                outcomes.remove(uid(pod));
            }
            if !over && !deleting {
                active.push(pod);
                continue;
            }
            let outcome = match text(pod, "/status/phase") {
                "Succeeded" => PodOutcome::Succeeded,
                _ => PodOutcome::Failed,
            };
            outcomes.entry(uid(pod).to_owned()).or_insert(outcome);
        }
        let mut status = status_of(job);
        for (field, outcome) in [
            ("succeeded", PodOutcome::Succeeded),
            ("failed", PodOutcome::Failed),
        ] {
            let number = outcomes.values().filter(|one| **one == outcome).count();
            let before = count(&status, &format!("/{field}"));
            set_count(
                &mut status,
                field,
                before.max(i64::try_from(number).unwrap_or(i64::MAX)),
            );
        }
        Self {
            job,
            status,
            active,
            terminating,
            outcomes,
            now,
        }
    }

    fn advance(&mut self, random: &mut fastrand::Rng, plan: &mut ControllerPlan) {
        let suspended = flag(self.job, "/spec/suspend");
        if !suspended && time(&self.status, "/startTime").is_none() {
            self.status["startTime"] = json!(written(self.now));
        }
        match self.failure(plan) {
            Some(reason) => {
                self.delete_active(usize::MAX, plan);
                self.finish(("FailureTarget", "Failed"), reason);
            }
            None if is_deleting(self.job) => {}
            None => {
                self.manage(suspended, random, plan);
                if self.is_complete() {
                    self.finish(("SuccessCriteriaMet", "Complete"), "CompletionsReached");
                } else {
                    self.set_suspended(suspended);
                }
            }
        }
        let active = i64::try_from(self.active.len()).unwrap_or(i64::MAX);
        let ready = self.active.iter().filter(|pod| is_pod_ready(pod)).count();
        set_count(&mut self.status, "active", active);
        self.status["ready"] = json!(ready);
        self.status["terminating"] = json!(self.terminating);
    }

    /// Returns the reason for which the Job fails.
    fn failure(&self, plan: &mut ControllerPlan) -> Option<&'static str> {
        if count(&self.status, "/failed") > count_or(self.job, "/spec/backoffLimit", 6) {
            return Some("BackoffLimitExceeded");
        }
        let limit = self
            .job
            .at("/spec/activeDeadlineSeconds")
            .and_then(Value::as_u64)?;
        let started = time(&self.status, "/startTime")?;
        let deadline = later(started, Duration::from_secs(limit));
        if flag(self.job, "/spec/suspend") {
            return None;
        }
        if deadline <= self.now {
            return Some("DeadlineExceeded");
        }
        plan.wake_at(deadline);
        None
    }

    fn manage(&mut self, suspended: bool, random: &mut fastrand::Rng, plan: &mut ControllerPlan) {
        if suspended {
            return self.delete_active(usize::MAX, plan);
        }
        let parallelism = count_or(self.job, "/spec/parallelism", 1);
        let succeeded = count(&self.status, "/succeeded");
        let active = i64::try_from(self.active.len()).unwrap_or(i64::MAX);
        let wanted = match self.job.at("/spec/completions").and_then(Value::as_i64) {
            Some(completions) => parallelism.min(completions - succeeded).max(0),
            // Without completions, no pod is created after the first success.
            None if self.job.at("/spec/parallelism").is_some() && succeeded > 0 => active,
            None if succeeded > 0 => 0,
            None => parallelism,
        };
        if active > wanted {
            self.delete_active(usize::try_from(active - wanted).unwrap_or(0), plan);
        }
        for _ in active..wanted {
            plan.create("Pod", self.pod(random));
        }
    }

    /// Deletes active pods. A pod that the controller deletes counts as neither succeeded nor failed.
    fn delete_active(&mut self, number: usize, plan: &mut ControllerPlan) {
        let number = number.min(self.active.len());
        for pod in self.active.drain(..number) {
            self.outcomes.insert(uid(pod).to_owned(), PodOutcome::Ignored);
            self.terminating += 1;
            plan.delete("Pod", pod);
        }
    }

    fn pod(&self, random: &mut fastrand::Rng) -> Value {
        let job = self.job;
        let owner = Owner {
            object: job,
            api_version: "batch/v1",
            kind: KIND,
        };
        let pod_name = format!("{}-{}", name(job), random_suffix(random));
        let template = &job["spec"]["template"];
        let mut pod = new_pod(template, namespace(job), &pod_name, &owner.reference());
        for prefix in ["batch.kubernetes.io/", ""] {
            set_label(&mut pod, &format!("{prefix}job-name"), name(job));
            set_label(&mut pod, &format!("{prefix}controller-uid"), uid(job));
        }
        pod
    }

    fn is_complete(&self) -> bool {
        let succeeded = count(&self.status, "/succeeded");
        let wanted = count_or(self.job, "/spec/completions", 1);
        succeeded >= wanted && self.active.is_empty()
    }

    /// Sets the interim condition, and the final one once no pod is left that may still run.
    fn finish(&mut self, (interim, end): (&str, &str), reason: &str) {
        Condition::new(interim, true, reason, "").set(&mut self.status, self.now);
        if self.terminating == 0 {
            Condition::new(end, true, reason, "").set(&mut self.status, self.now);
            if end == "Complete" {
                self.status["completionTime"] = json!(written(self.now));
            }
        }
    }

    fn set_suspended(&mut self, suspended: bool) {
        let known = condition(Some(&self.status), "Suspended").is_some();
        let (reason, message) = match suspended {
            true => ("JobSuspended", "Job suspended"),
            false if known => ("JobResumed", "Job resumed"),
            false => return,
        };
        let condition = Condition::new("Suspended", suspended, reason, message);
        if condition.set(&mut self.status, self.now) {
            match suspended {
                // Kubernetes 1.36 removes the time; earlier versions replace it when the Job is resumed.
                true => drop(
                    self.status
                        .as_object_mut()
                        .and_then(|status| status.remove("startTime")),
                ),
                false => self.status["startTime"] = json!(written(self.now)),
            }
        }
    }
}
