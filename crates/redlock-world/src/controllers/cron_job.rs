//! The controller of CronJobs.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan,
    cron_schedule::CronSchedule,
    job::finished,
    object::{
        FieldPath, Object, count_or, flag, is_deleting, later, name, namespace, set_metadata, status_of,
        text, time, uid, written,
    },
    selector::{Owner, is_controlled_by},
};

const KIND: &str = "CronJob";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The delay after a scheduled time, so that the clock has certainly reached it.
const AFTER_SLOT: Duration = Duration::from_millis(100);

pub(super) fn reconcile(objects: &dyn ClusterObjects, now: Timestamp) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let cron_jobs = objects.list(KIND);
    if cron_jobs.is_empty() {
        return plan;
    }
    let jobs = objects.list("Job");
    for cron_job in &cron_jobs {
        let own: Vec<&Object> = jobs
            .iter()
            .filter(|job| is_controlled_by(job, cron_job))
            .collect();
        let mut sync = CronSync {
            cron_job,
            jobs: &jobs,
            own,
            status: status_of(cron_job),
            now,
        };
        sync.clean_history(&mut plan);
        sync.settle_active();
        if !is_deleting(cron_job) && !flag(cron_job, "/spec/suspend") {
            sync.run(&mut plan);
        }
        plan.update_status(KIND, cron_job, sync.status);
    }
    plan
}

struct CronSync<'a> {
    cron_job: &'a Value,
    jobs: &'a [Object],
    own: Vec<&'a Object>,
    status: Value,
    now: Timestamp,
}

impl CronSync<'_> {
    /// Removes Jobs that ended or are gone from the list of active ones.
    fn settle_active(&mut self) {
        let runs = |active: &Value| {
            let job = self.own.iter().find(|job| active["uid"] == uid(job));
            job.is_some_and(|job| finished(job).is_none())
        };
        let active = self.status["active"].as_array().into_iter().flatten();
        let active: Vec<Value> = active.filter(|one| runs(one)).cloned().collect();
        self.set_active(active);
        let ends = self.own.iter().filter(|job| finished(job) == Some("Complete"));
        let last = ends.filter_map(|job| time(job, "/status/completionTime")).max();
        if let Some(last) = last.filter(|last| time(&self.status, "/lastSuccessfulTime") < Some(*last)) {
            self.status["lastSuccessfulTime"] = json!(written(last));
        }
    }

    fn set_active(&mut self, active: Vec<Value>) {
        if !active.is_empty() {
            self.status["active"] = Value::Array(active);
        } else if let Value::Object(fields) = &mut self.status {
            fields.remove("active");
        }
    }

    fn active(&self) -> &[Value] {
        self.status["active"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    fn run(&mut self, plan: &mut ControllerPlan) {
        let Some(schedule) = CronSchedule::parse(text(self.cron_job, "/spec/schedule")) else {
            return;
        };
        if let Some(slot) = self.due(schedule) {
            self.run_slot(slot, plan);
        }
        if let Some(next) = schedule.next(self.now) {
            plan.wake_at(later(next, AFTER_SLOT));
        }
    }

    /// Returns the latest slot that was not processed and is not too late.
    fn due(&self, schedule: CronSchedule) -> Option<Timestamp> {
        let created = time(self.cron_job, "/metadata/creationTimestamp");
        let last = time(&self.status, "/lastScheduleTime");
        let after = last.or(created).unwrap_or(self.now);
        let deadline = self
            .cron_job
            .at("/spec/startingDeadlineSeconds")
            .and_then(Value::as_u64);
        let slot = schedule.latest(after, self.now)?;
        let late = |deadline| later(slot, Duration::from_secs(deadline)) < self.now;
        (!deadline.is_some_and(late)).then_some(slot)
    }

    fn run_slot(&mut self, slot: Timestamp, plan: &mut ControllerPlan) {
        let job_name = format!("{}-{}", name(self.cron_job), slot.as_second() / 60);
        let space = namespace(self.cron_job);
        let existing = self
            .jobs
            .iter()
            .find(|job| name(job) == job_name && namespace(job) == space);
        if let Some(job) = existing {
            // The Job was created by an earlier pass, and is recorded now. A foreign Job of this name is left alone.
            if is_controlled_by(job, self.cron_job) && finished(job).is_none() {
                let mut active = self.active().to_vec();
                if active.iter().all(|one| one["uid"] != uid(job)) {
                    active.push(reference(job));
                }
                self.set_active(active);
                self.status["lastScheduleTime"] = json!(written(slot));
            } else if is_controlled_by(job, self.cron_job) {
                self.status["lastScheduleTime"] = json!(written(slot));
            }
            return;
        }
        match text(self.cron_job, "/spec/concurrencyPolicy") {
            "Forbid" if !self.active().is_empty() => return,
            "Replace" => {
                let is_active = |job: &&&Object| self.active().iter().any(|one| one["uid"] == uid(job));
                for job in self.own.iter().filter(is_active).filter(|job| !is_deleting(job)) {
                    plan.delete("Job", job);
                }
            }
            _ => {}
        }
        plan.create("Job", self.job(&job_name, slot));
    }

    fn job(&self, job_name: &str, slot: Timestamp) -> Value {
        let cron_job = self.cron_job;
        let owner = Owner {
            object: cron_job,
            api_version: "batch/v1",
            kind: KIND,
        };
        let template = &cron_job["spec"]["jobTemplate"];
        let metadata = |field: &str| {
            let map = template.at(&format!("/metadata/{field}"));
            map.cloned().unwrap_or_else(|| json!({}))
        };
        let mut job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": job_name,
                "namespace": namespace(cron_job),
                "labels": metadata("labels"),
                "annotations": metadata("annotations"),
                "ownerReferences": [owner.reference()],
            },
            "spec": template["spec"].clone(),
        });
        set_metadata(&mut job, "annotations", SCHEDULED, &written(slot));
        job
    }

    /// Deletes the oldest finished Jobs beyond the limits.
    fn clean_history(&self, plan: &mut ControllerPlan) {
        for (end, field, default) in [
            ("Complete", "/spec/successfulJobsHistoryLimit", 3),
            ("Failed", "/spec/failedJobsHistoryLimit", 1),
        ] {
            let limit = usize::try_from(count_or(self.cron_job, field, default)).unwrap_or(0);
            let ended = self.own.iter().filter(|job| finished(job) == Some(end));
            let mut ended: Vec<_> = ended.filter(|job| !is_deleting(job)).collect();
            let excess = ended.len().saturating_sub(limit);
            ended.sort_by_key(|job| (text(job, "/status/startTime"), name(job)));
            for job in ended.into_iter().take(excess) {
                plan.delete("Job", job);
            }
        }
    }
}

fn reference(job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": namespace(job),
        "name": name(job),
        "uid": uid(job),
        "resourceVersion": text(job, "/metadata/resourceVersion"),
    })
}
