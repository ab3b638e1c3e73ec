//! Tests CronJobs, and the Jobs that their controller creates from them.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{NEVER, Place, RIGHTS, cron_job, guarded, is_abandoned, is_suspended};
use crate::fixture::BOUND;
use crate::world::{World, condition, lasting, lock, throughout};
use redlock_testkit::eventually;

/// The annotation of a Job with its slot.
const SLOT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
const EVERY_MINUTE: &str = "* * * * *";

fn made_by(cron_job: &str, job: &Job) -> bool {
    job.owner_references().iter().any(|owner| owner.name == cron_job)
}

async fn made(place: &Place<'_>, cron_job: &str) -> Vec<Job> {
    let mut jobs = place.jobs().list(&ListParams::default()).await.unwrap().items;
    jobs.retain(|job| made_by(cron_job, job));
    jobs
}

pub(super) async fn a_cron_job_and_its_jobs(place: &Place<'_>) {
    let world = place.world;
    world.apply(&cron_job("report", NEVER, ""));
    world.apply(&lasting(&guarded("report", "CronJob")));
    place.is("report", "Active").await;
    let note = world.event_message("report", "NoStartingDeadline").await;
    assert!(note.contains("startingDeadlineSeconds: 60"), "{note}");
    place.run("report", "half-done");
    place.until_it_runs("half-done").await;

    // Its process has ended when the status shows that it is stopped.
    place.wants("report", false).await;
    assert_eq!(place.processes("half-done"), (0, 1));
    place.until_cron_job("report", true).await;
    place.until_job("half-done", "is abandoned", is_abandoned).await;
    world.event_message("report", "JobAbandoned").await;

    // The CronJob and a Job are resumed by hand, and the controller creates another Job slightly late.
    place.suspend("cronjob", "report", false);
    place.until_cron_job("report", true).await;
    place.suspend("job", "half-done", false);
    place
        .until_job("half-done", "resumed by hand is suspended again", is_suspended)
        .await;
    place.run("report", "late");
    place.until_job("late", "is abandoned", is_abandoned).await;
    place.is("report", "Standby").await;

    // When the lock returns, no Job keeps the CronJob from running, and none of its Jobs runs again.
    place.wants("report", true).await;
    let found = place.until_cron_job("report", false).await;
    assert_eq!(owners(&found), ["redlock-operator-suspend"]);
    let left: Vec<String> = made(place, "report")
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(left, Vec::<String>::new());
    println!(
        "            processes of the late Job: {}",
        place.processes("late").1
    );
    place.patch("cronjob", "report", &json!({"spec": {"schedule": "@every 1s"}}));
    until_it_ran(place, "report").await;
}

/// Returns the managers of `spec.suspend`.
fn owners(found: &CronJob) -> Vec<&str> {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0["f:spec"].get("f:suspend").is_some())
    };
    let entries = found.managed_fields().iter().filter(owns);
    entries.filter_map(|entry| entry.manager.as_deref()).collect()
}

/// Waits for runs, despite `concurrencyPolicy: Forbid`.
async fn until_it_ran(place: &Place<'_>, name: &str) -> Vec<Timestamp> {
    eventually(BOUND, &format!("CronJob {name} runs"), async || {
        let found = slots(place, name).await;
        if found.is_empty() { Err(()) } else { Ok(found) }
    })
    .await
}

/// Sets the time of the last run of the CronJob to long ago.
fn long_ago(place: &Place<'_>, name: &str) {
    let time = Timestamp::now() - SignedDuration::from_mins(10);
    let status = json!({"status": {"lastScheduleTime": time.to_string()}}).to_string();
    place.world.kubectl(&[
        "patch",
        "cronjob",
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &status,
    ]);
}

/// Returns the slots that the CronJob has run.
async fn slots(place: &Place<'_>, name: &str) -> Vec<Timestamp> {
    let jobs = made(place, name).await;
    let slots = jobs.iter().map(|job| job.annotations()[SLOT].parse().unwrap());
    slots.collect()
}

pub(super) async fn a_missed_slot(place: &Place<'_>) {
    let world = place.world;
    for name in ["missed", "control"] {
        world.apply(&cron_job(name, NEVER, ""));
    }
    world.apply(&guarded("missed", "CronJob"));
    place.is("missed", "Active").await;
    place.wants("missed", false).await;
    place.suspend("cronjob", "control", true);
    // Both have missed ten slots now, and run none of them.
    for name in ["missed", "control"] {
        long_ago(place, name);
        place.patch("cronjob", name, &json!({"spec": {"schedule": EVERY_MINUTE}}));
    }

    let before = Timestamp::now();
    place.wants("missed", true).await;
    place.until_cron_job("missed", false).await;
    // The control is resumed later, in the same state, without the lock: it runs the missed slot at once.
    place.suspend("cronjob", "control", false);
    let control = until_it_ran(place, "control").await;
    println!("            without a lock it ran {control:?}, resumed after {before}");
    let ran = slots(place, "missed").await;
    assert!(
        ran.iter().all(|slot| *slot > before),
        "missed slots were run: {ran:?}, resumed after {before}"
    );

    // The CronJob runs the slots that become due from now on.
    place.patch("cronjob", "missed", &json!({"spec": {"schedule": "@every 1s"}}));
    let next = until_it_ran(place, "missed").await;
    assert!(
        next.iter().all(|slot| *slot > before),
        "{next:?}, resumed after {before}"
    );
}

/// A step of all targets needs more requests than the limit allows at once.
#[tokio::test(flavor = "multi_thread")]
async fn many_targets_come_to_rest_within_the_limit_of_requests() {
    const TARGETS: usize = 8;
    let world = World::small(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &RIGHTS)
        .await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    let names: Vec<String> = (0..TARGETS).map(|number| format!("report-{number}")).collect();
    let target = |name: &String| {
        format!(
            "{{name: {name}, action: Suspend, stopSeconds: 1, ref: {{apiVersion: batch/v1, kind: CronJob, name: {name}}}}}"
        )
    };
    for name in &names {
        world.apply(&cron_job(name, NEVER, ""));
    }
    let targets: Vec<String> = names.iter().map(target).collect();
    let many = lock("many", &format!(", targets: [{}]", targets.join(", ")));
    world.apply(&lasting(&many));
    let _operator = world
        .operator_with("replica-1", |command| {
            command.args(["--api-requests-per-second", "10"]);
        })
        .await;
    let all_run = |status: &Value| condition(status, "Enforced") == ("True", "AsDeclared");
    world.lock_status("many", "runs all targets", all_run).await;
    let reads = || {
        let requests = world.requests();
        let of_targets = requests.iter().filter(|event| {
            let object = event.object_ref.as_ref();
            event.verb == "get" && object.is_some_and(|object| object.resource == "cronjobs")
        });
        of_targets.count()
    };
    // The targets may be read once more after the status is written.
    let (mut last, mut since) = (reads(), Instant::now());
    let before = eventually(BOUND, "the targets are at rest", async || {
        let now = reads();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() >= Duration::from_secs(2) {
            Ok(now)
        } else {
            Err(now)
        }
    })
    .await;
    throughout(Duration::from_secs(3), || ()).await;
    assert_eq!(reads(), before, "targets at rest are not read");
}
