//! Tests CronJobs and Jobs that run where the lock is held, with the real controllers of both and pods that end
//! slowly.

#[path = "suspend/cron_jobs.rs"]
mod cron_jobs;

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};

use crate::fixture::kubelet::{RUN_SECONDS, Recorder};
use crate::fixture::{BOUND, Kubelet, seed};
use crate::targets::replica;
use crate::versions::register;
use crate::world::{World, condition, lasting, lock, throughout, timed};
use redlock_testkit::eventually;

/// The values of the chart that grant the rights.
pub const RIGHTS: [&str; 4] = [
    "targetKinds[0].group=batch",
    "targetKinds[0].resource=cronjobs",
    "targetKinds[1].group=batch",
    "targetKinds[1].resource=jobs",
];
/// A time that is never due within a test.
const NEVER: &str = "0 0 29 2 *";
const ABANDONED: &str = "redlock.dev/abandoned";

struct Place<'a> {
    world: &'a World,
    recorder: Recorder,
}

fn guarded(name: &str, kind: &str) -> String {
    let target = format!(
        ", targets: [{{name: it, action: Suspend, stopSeconds: 1, \
         ref: {{apiVersion: batch/v1, kind: {kind}, name: {name}}}}}]"
    );
    lock(name, &target)
}

/// Returns the same lock, with a lease that just fits the grace period of the pod template.
fn by_template(guarded: &str) -> String {
    guarded
        .replace("stopSeconds: 1, ", "")
        .replace("leaseDurationSeconds: 6", "leaseDurationSeconds: 12")
}

/// Returns a pod template whose pod takes up to two seconds to end.
fn template(annotations: &str) -> String {
    format!(
        "template: {{metadata: {{annotations: {{{annotations}}}}}, spec: {{restartPolicy: Never, \
         terminationGracePeriodSeconds: 2, containers: [{{name: work, image: work}}]}}}}"
    )
}

fn job(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{{}}}\n",
        template(annotations)
    )
}

fn cron_job(name: &str, schedule: &str, more: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: {name}}}\nspec: {{schedule: '{schedule}', \
         concurrencyPolicy: Forbid{more}, jobTemplate: {{spec: {{{}}}}}}}\n",
        template("")
    )
}

impl<'a> Place<'a> {
    fn of(world: &'a World) -> Self {
        Self {
            world,
            recorder: Recorder::default(),
        }
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.world.plane.admin(), self.world.namespace.name())
    }

    fn cron_jobs(&self) -> Api<CronJob> {
        Api::namespaced(self.world.plane.admin(), self.world.namespace.name())
    }

    async fn is(&self, lock: &str, state: &str) -> Value {
        let what = format!("has its target {state}");
        let status = self.world.lock_status(lock, &what, |status| {
            status["targets"][0]["observed"] == state && status["targets"][0]["desired"] == state
        });
        status.await
    }

    /// Sets whether the candidates of this cluster contend for the lock or give it up.
    async fn wants(&self, lock: &str, wanted: bool) -> Value {
        let spec = if wanted {
            json!({"state": "Enabled", "reason": null})
        } else {
            json!({"state": "SteppedDown", "reason": "test"})
        };
        self.patch("leaderlock", lock, &json!({"spec": spec}));
        self.is(lock, if wanted { "Active" } else { "Standby" }).await
    }

    fn patch(&self, kind: &str, name: &str, patch: &Value) {
        self.world
            .kubectl(&["patch", kind, name, "--type=merge", "--patch", &patch.to_string()]);
    }

    /// Changes `suspend` as a user would by hand.
    fn suspend(&self, kind: &str, name: &str, suspend: bool) {
        self.patch(kind, name, &json!({"spec": {"suspend": suspend}}));
    }

    fn run(&self, cron_job: &str, name: &str) {
        self.world
            .kubectl(&["create", "job", name, &format!("--from=cronjob/{cron_job}")]);
    }

    /// Sets the condition that the controller of Jobs sets on a suspended Job.
    fn observe(&self, job: &str) {
        let now = jiff::Timestamp::now().to_string();
        let condition = json!({
            "type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": now,
        });
        let status = json!({"status": {"conditions": [condition]}}).to_string();
        self.world.kubectl(&[
            "patch",
            "job",
            job,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status,
        ]);
    }

    /// Acts as the controller: sets the condition again on a suspended Job that lost it.
    async fn observe_until_standby(&self, job: &str, lock: &str) {
        eventually(BOUND, &format!("{lock} has its target Standby"), async || {
            let found = self.jobs().get(job).await.unwrap();
            if is_suspended(&found) && !is_observed(&found) {
                self.observe(job);
            }
            let status = self.world.locks().get(lock).await.unwrap().status;
            let status = serde_json::to_value(status).unwrap();
            if status["targets"][0]["observed"] == "Standby" {
                Ok(())
            } else {
                Err(status)
            }
        })
        .await;
    }

    /// Acts as the controller until the lock is deleted.
    async fn observe_until_deleted(&self, job: &str, lock: &str) {
        eventually(BOUND, &format!("{lock} is deleted"), async || {
            let found = self.jobs().get(job).await.unwrap();
            if is_suspended(&found) && !is_observed(&found) {
                self.observe(job);
            }
            match self.world.locks().get_opt(lock).await.unwrap() {
                None => Ok(()),
                Some(lock) => Err(lock),
            }
        })
        .await;
    }

    async fn until_job(&self, name: &str, what: &str, wanted: impl Fn(&Job) -> bool) -> Duration {
        let jobs = self.jobs();
        let (_, took) = timed(&format!("Job {name} {what}"), async || {
            let found = jobs.get(name).await.unwrap();
            if wanted(&found) { Ok(()) } else { Err(found) }
        })
        .await;
        took
    }

    async fn until_cron_job(&self, name: &str, suspended: bool) -> CronJob {
        let cron_jobs = self.cron_jobs();
        let what = format!("CronJob {name} has suspend: {suspended}");
        let (found, _) = timed(&what, async || {
            let found = cron_jobs.get(name).await.unwrap();
            let spec = found.spec.as_ref().unwrap();
            if spec.suspend == Some(suspended) {
                Ok(found)
            } else {
                Err(())
            }
        })
        .await;
        found
    }

    /// Returns how many processes a Job has now, and how many it ever had.
    fn processes(&self, job: &str) -> (usize, usize) {
        let runs = self.recorder.runs();
        let of = runs.iter().filter(|run| run.owner == format!("Job {job}"));
        let all: Vec<_> = of.collect();
        (all.iter().filter(|run| run.end.is_none()).count(), all.len())
    }

    async fn until_it_runs(&self, job: &str) {
        self.until_running(job, 1).await;
    }

    async fn until_none_runs(&self, job: &str) {
        self.until_running(job, 0).await;
    }

    async fn until_running(&self, job: &str, wanted: usize) {
        eventually(
            BOUND,
            &format!("{wanted} processes of Job {job} run"),
            async || {
                let found = self.processes(job);
                if found.0 == wanted { Ok(()) } else { Err(found) }
            },
        )
        .await;
    }
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().unwrap().suspend == Some(true)
}

fn is_observed(job: &Job) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|condition| condition.type_ == "Suspended" && condition.status == "True")
}

fn is_abandoned(job: &Job) -> bool {
    is_suspended(job) && job.labels().contains_key(ABANDONED)
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_target_runs_only_where_the_lock_is_held() {
    let world = World::new(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &RIGHTS)
        .await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 12"));
    let place = Place::of(&world);
    let _kubelet = Kubelet::start(&world.plane, "here", seed(), &place.recorder);
    let _operator = replica(&world, "replica-1").await;
    tokio::join!(
        a_job(&place),
        a_job_that_ends(&place),
        cron_jobs::a_cron_job_and_its_jobs(&place),
        cron_jobs::a_missed_slot(&place),
        another_writer_that_suspends_it(&place),
    );
}

async fn a_job(place: &Place<'_>) {
    place.world.apply(&job("work", ""));
    // The Job that starts again has the token of one lease.
    place.world.apply(&lasting(&guarded("work", "Job")));
    place.is("work", "Active").await;
    place.until_it_runs("work").await;

    // The Job is stopped: its process has ended when the status shows it.
    place.wants("work", false).await;
    assert_eq!(place.processes("work").0, 0);
    // The Job is started again, under another lease.
    let status = place.wants("work", true).await;
    place.until_it_runs("work").await;
    let found = place.jobs().get("work").await.unwrap();
    let annotations = found.spec.unwrap().template.metadata.unwrap().annotations;
    assert_eq!(
        annotations.unwrap()["redlock.dev/fencing-token"],
        status["fencingToken"].to_string()
    );

    place.wants("work", false).await;
    // A user resumes the Job by hand.
    let before = Instant::now();
    place.suspend("job", "work", false);
    place
        .until_job("work", "resumed by hand is suspended again", is_suspended)
        .await;
    println!("            the command included: {:?}", before.elapsed());
    place.is("work", "Standby").await;
    // Another client deletes and creates it again.
    place.world.kubectl(&["delete", "job", "work"]);
    place.world.apply(&job("work", ""));
    place
        .until_job("work", "made anew is suspended", is_suspended)
        .await;
    // The status may still be that of the previous Job, and the process of this one takes its grace period.
    place.until_none_runs("work").await;
    place.is("work", "Standby").await;
}

async fn a_job_that_ends(place: &Place<'_>) {
    place
        .world
        .apply(&job("short", &format!("{RUN_SECONDS}: \"0.2\"")));
    place
        .until_job("short", "is complete", |job| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Complete"))
        })
        .await;
    place.world.apply(&by_template(&guarded("short", "Job")));
    let status = place.is("short", "Active").await;
    assert_eq!(status["timings"]["stopMilliseconds"], 7_000, "{status:#}");
    let is_enforced = |status: &Value| condition(status, "Enforced").0 == "True";
    place.world.lock_status("short", "is enforced", is_enforced).await;
    let note = place.world.event_message("short", "TargetEnded").await;
    assert!(note.contains("Complete"), "{note}");
    place.wants("short", false).await;
    let found = place.jobs().get("short").await.unwrap();
    assert!(!is_suspended(&found), "what has ended is left as it is");
}

async fn another_writer_that_suspends_it(place: &Place<'_>) {
    let manifest = cron_job("declared", NEVER, ", suspend: true");
    let apply = |manifest: &str| {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), manifest).unwrap();
        let path = file.path().display().to_string();
        let arguments = [
            "apply",
            "--server-side",
            "--field-manager=gitops",
            "--filename",
            &path,
        ];
        place.world.kubectl(&arguments);
    };
    apply(&manifest);
    place.world.apply(&by_template(&guarded("declared", "CronJob")));
    let note = place.world.event_message("declared", "EnforcementConflict").await;
    assert!(
        note.contains("\"gitops\"") && note.contains("spec.suspend"),
        "{note}"
    );
    let found = place.cron_jobs().get("declared").await.unwrap();
    assert_eq!(found.spec.unwrap().suspend, Some(true));
    apply(&manifest.replace("suspend: true", "suspend: false"));
    let status = place.is("declared", "Active").await;
    assert_eq!(status["timings"]["stopMilliseconds"], 7_000, "{status:#}");
    // The operator takes the field over when it has to stop the CronJob.
    place.wants("declared", false).await;
    place.until_cron_job("declared", true).await;
}

/// The test acts as the controller of Jobs, and follows late.
#[tokio::test(flavor = "multi_thread")]
async fn stop_is_confirmed_by_a_condition_that_is_newer_than_the_start() {
    let world = World::small(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &RIGHTS)
        .await;
    // The lease outlasts the waits of the test, because the end of a lost lease is never clean.
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 15"));
    let place = Place::of(&world);
    let _operator = replica(&world, "replica-1").await;
    // Not applied: an applied `suspend: true` would have a field manager.
    let manifest = job("work", "").replacen("spec: {", "spec: {suspend: true, ", 1);
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), manifest).unwrap();
    world.kubectl(&["create", "--filename", file.path().to_str().unwrap()]);
    place.observe("work");
    world.apply(&guarded("work", "Job").replace("DurationSeconds: 6", "DurationSeconds: 15"));
    place.is("work", "Active").await;
    place
        .until_job("work", "is resumed", |job| !is_suspended(job))
        .await;

    // The controller has not seen that it runs, and still reports it as suspended.
    let down = json!({"spec": {"state": "SteppedDown", "reason": "test"}});
    place.patch("leaderlock", "work", &down);
    place.until_job("work", "is suspended again", is_suspended).await;
    let marks = || {
        (
            register(&world, &format!("held:{}/work", world.namespace.name())),
            register(&world, &format!("clean:{}/work", world.namespace.name())),
        )
    };
    throughout(Duration::from_secs(3), || {
        let (held, clean) = marks();
        assert!(
            held > clean,
            "stopped by an old condition: held {held}, clean {clean}"
        );
    })
    .await;
    place.observe("work");
    place.is("work", "Standby").await;
    eventually(BOUND, "the end is clean", async || {
        let (held, clean) = marks();
        if held == clean { Ok(()) } else { Err((held, clean)) }
    })
    .await;
}

/// Covers the test of rights: all writes of the operator to such targets, in a cluster without controllers.
pub async fn use_every_right(world: &World) {
    let place = Place::of(world);
    world.apply(&cron_job("report", NEVER, ""));
    world.apply(&job("work", ""));
    for (name, kind) in [("report", "CronJob"), ("work", "Job")] {
        world.apply(&guarded(name, kind).replace(
            &format!("{{name: {name}}}\nspec"),
            &format!("{{name: switching-{name}}}\nspec"),
        ));
    }
    place.is("switching-report", "Active").await;
    place.run("report", "half-done");
    // Old conditions of an earlier suspension prove nothing.
    for name in ["work", "half-done"] {
        place.observe(name);
    }
    for name in ["report", "work"] {
        let spec = json!({"spec": {"state": "SteppedDown", "reason": "test"}});
        place.patch("leaderlock", &format!("switching-{name}"), &spec);
    }
    for (job, name) in [("half-done", "report"), ("work", "work")] {
        place
            .until_job(job, "is suspended", |job| is_suspended(job) && !is_observed(job))
            .await;
        place
            .observe_until_standby(job, &format!("switching-{name}"))
            .await;
        place.wants(&format!("switching-{name}"), true).await;
    }
    world.kubectl(&[
        "delete",
        "leaderlock",
        "switching-report",
        "switching-work",
        "--wait=false",
    ]);
    // The Job was resumed: the departure waits until its controller reports the suspension.
    place.observe_until_deleted("work", "switching-work").await;
}
