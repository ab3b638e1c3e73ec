use serde_json::{Value, json};

use super::{
    super::{
        ClusterObjects, ControllerKind,
        object::{count, is_deleting, is_true, name, text, time},
    },
    job,
    store::Cluster,
};

fn active(cluster: &Cluster) -> i64 {
    count(&cluster.get("Job", "load"), "/status/active")
}

fn suspend(cluster: &mut Cluster, suspend: bool) {
    cluster
        .store
        .edit("Job", "load", |job| job["spec"]["suspend"] = json!(suspend));
}

#[test]
fn a_job_completes() {
    let mut cluster = Cluster::new();
    cluster.create("Job", "load", job(false));
    cluster.until(|cluster| count(&cluster.get("Job", "load"), "/status/ready") == 1);
    let pod = cluster.pods().remove(0);
    assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "load");
    assert!(time(&cluster.get("Job", "load"), "/status/startTime").is_some());
    cluster.until(|cluster| is_true(&cluster.get("Job", "load"), "Complete"));
    let job = cluster.get("Job", "load");
    assert_eq!(
        (count(&job, "/status/succeeded"), count(&job, "/status/active")),
        (1, 0)
    );
    assert!(time(&job, "/status/completionTime").is_some());
    assert_eq!(text(&cluster.pods()[0], "/status/phase"), "Succeeded");
    cluster.is_at_rest();
}

#[test]
fn a_suspended_job_has_no_pod_until_it_is_resumed() {
    let mut cluster = Cluster::new();
    cluster.create("Job", "load", job(true));
    cluster.seconds(1.0);
    let suspended = cluster.get("Job", "load");
    assert!(is_true(&suspended, "Suspended") && suspended["status"]["startTime"].is_null());
    cluster.is_at_rest();
    suspend(&mut cluster, false);
    cluster.until(|cluster| active(cluster) == 1);
    cluster.seconds(3.0);
    assert!(!is_true(&cluster.get("Job", "load"), "Suspended"));
    suspend(&mut cluster, true);
    cluster.until(|cluster| is_true(&cluster.get("Job", "load"), "Suspended"));
    assert!(cluster.pods().iter().all(|pod| is_deleting(pod)));
    cluster.until(|cluster| cluster.pods().is_empty());
    cluster.seconds(1.0);
    let suspended = cluster.get("Job", "load");
    for field in ["active", "failed", "succeeded", "terminating", "ready"] {
        assert_eq!(count(&suspended, &format!("/status/{field}")), 0, "{field}");
    }
    suspend(&mut cluster, false);
    cluster.until(|cluster| is_true(&cluster.get("Job", "load"), "Complete"));
}

#[test]
fn a_removed_condition_is_written_again() {
    let mut cluster = Cluster::new();
    cluster.create("Job", "load", job(true));
    cluster.seconds(1.0);
    cluster
        .store
        .edit("Job", "load", |job| job["status"]["conditions"] = json!([]));
    cluster.seconds(1.0);
    assert!(is_true(&cluster.get("Job", "load"), "Suspended"));
}

#[test]
fn a_suspension_is_not_observed_while_the_controller_is_down() {
    let mut cluster = Cluster::new();
    cluster.create("Job", "load", job(false));
    cluster.until(|cluster| active(cluster) == 1);
    cluster.controllers.stop(ControllerKind::Job);
    suspend(&mut cluster, true);
    cluster.seconds(10.0);
    assert!(!is_true(&cluster.get("Job", "load"), "Suspended"));
    assert_eq!(cluster.controllers.running_pods(cluster.now).count(), 1);
}

#[test]
fn a_job_fails_beyond_its_limit() {
    let mut cluster = Cluster::new();
    let mut job = job(false);
    job["spec"]["backoffLimit"] = json!(1);
    job["spec"]["template"]["metadata"]["annotations"]["world/exit-code"] = json!("3");
    cluster.create("Job", "load", job);
    cluster.until(|cluster| is_true(&cluster.get("Job", "load"), "Failed"));
    assert_eq!(count(&cluster.get("Job", "load"), "/status/failed"), 2);
    cluster.is_at_rest();
}

#[test]
fn a_job_fails_at_its_deadline() {
    let mut cluster = Cluster::new();
    let mut job = job(false);
    job["spec"]["activeDeadlineSeconds"] = json!(5);
    cluster.create("Job", "load", job);
    cluster.until(|cluster| is_true(&cluster.get("Job", "load"), "Failed"));
    assert_eq!(
        cluster.controllers.running_pods(cluster.now).count(),
        0,
        "after the end of its pods"
    );
}

#[test]
fn all_completions_run_with_the_parallelism() {
    let mut cluster = Cluster::new();
    let mut job = job(false);
    (job["spec"]["parallelism"], job["spec"]["completions"]) = (json!(2), json!(5));
    cluster.create("Job", "load", job);
    while !is_true(&cluster.get("Job", "load"), "Complete") {
        cluster.seconds(0.1);
        assert!(cluster.controllers.running_pods(cluster.now).count() <= 2);
    }
    assert_eq!(count(&cluster.get("Job", "load"), "/status/succeeded"), 5);
    assert_eq!(cluster.pods().len(), 5);
}

#[test]
fn a_finished_job_is_deleted_after_its_time_to_live() {
    let mut cluster = Cluster::new();
    let mut job = job(false);
    job["spec"]["ttlSecondsAfterFinished"] = json!(30);
    cluster.create("Job", "load", job);
    cluster.until(|cluster| is_true(&cluster.get("Job", "load"), "Complete"));
    cluster.seconds(28.0);
    assert_eq!(cluster.names("Job").len(), 1);
    cluster.seconds(4.0);
    assert!(cluster.names("Job").is_empty() && cluster.pods().is_empty());
}

#[test]
fn a_job_of_another_controller_is_left_alone() {
    let mut cluster = Cluster::new();
    let mut job = job(false);
    job["spec"]["managedBy"] = json!("example.com/queue");
    cluster.create("Job", "load", job);
    cluster.is_at_rest();
    assert!(cluster.pods().is_empty());
}

fn cron_job(more: &Value) -> Value {
    let mut object = json!({"spec": {
        "schedule": "*/2 * * * *",
        "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": job(false)["spec"]},
    }});
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// 2026-01-01T12:00:00Z in minutes since 1970.
const NOON: i64 = 29_454_480;

fn slots(cluster: &Cluster) -> Vec<i64> {
    let slot = |job: &String| job.strip_prefix("load-").unwrap().parse::<i64>().unwrap() - NOON;
    cluster.names("Job").iter().map(slot).collect()
}

#[test]
fn a_cron_job_runs_its_slots() {
    let mut cluster = Cluster::new();
    cluster.create("CronJob", "load", cron_job(&json!({})));
    cluster.seconds(125.0);
    assert_eq!(slots(&cluster), [2]);
    let found = cluster.get("CronJob", "load");
    assert_eq!(found["status"]["lastScheduleTime"], "2026-01-01T12:02:00Z");
    assert_eq!(found["status"]["active"].as_array().unwrap().len(), 1);
    let made = cluster.store.list("Job").remove(0);
    let scheduled = &made["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(
        (scheduled.as_str(), &made["metadata"]["labels"]["a"]),
        (Some("2026-01-01T12:02:00Z"), &json!("b"))
    );
    cluster.seconds(600.0);
    assert_eq!(slots(&cluster), [6, 8, 10, 12], "the history");
    assert_eq!(cluster.pods().len(), 4, "not of deleted Jobs as well");
    assert_eq!(
        cluster.get("CronJob", "load")["status"]["lastSuccessfulTime"]
            .as_str()
            .unwrap()[..16],
        *"2026-01-01T12:10"
    );
}

#[test]
fn a_resumed_cron_job_runs_the_last_slot_that_it_missed() {
    for (deadline, wanted) in [(None, vec![6]), (Some(10), vec![])] {
        let mut cluster = Cluster::new();
        cluster.create(
            "CronJob",
            "load",
            cron_job(&json!({"suspend": true, "startingDeadlineSeconds": deadline})),
        );
        cluster.seconds(400.0);
        assert!(slots(&cluster).is_empty());
        cluster
            .store
            .edit("CronJob", "load", |found| found["spec"]["suspend"] = json!(false));
        cluster.seconds(2.0);
        assert_eq!(slots(&cluster), wanted);
    }
    let mut cluster = Cluster::new();
    cluster.create("CronJob", "load", cron_job(&json!({"suspend": true})));
    cluster.seconds(400.0);
    cluster.store.edit("CronJob", "load", |found| {
        found["status"] = json!({"lastScheduleTime": "2026-01-01T12:06:41Z"});
    });
    cluster
        .store
        .edit("CronJob", "load", |found| found["spec"]["suspend"] = json!(false));
    cluster.seconds(2.0);
    assert!(slots(&cluster).is_empty(), "passed by the operator");
    cluster.seconds(90.0);
    assert_eq!(slots(&cluster), [8]);
}

#[test]
fn concurrent_jobs_are_allowed_forbidden_or_replaced() {
    for (policy, wanted) in [
        ("Allow", vec![2, 4, 6]),
        ("Forbid", vec![2]),
        ("Replace", vec![6]),
    ] {
        let mut cluster = Cluster::new();
        let mut object = cron_job(&json!({"concurrencyPolicy": policy}));
        let template = &mut object["spec"]["jobTemplate"]["spec"]["template"];
        template["metadata"]["annotations"] = json!({"world/run-seconds": "900"});
        cluster.create("CronJob", "load", object);
        cluster.seconds(370.0);
        assert_eq!(slots(&cluster), wanted, "{policy}");
        let running = cluster.controllers.running_pods(cluster.now).count();
        assert_eq!(running, wanted.len(), "{policy}");
    }
}

#[test]
fn a_forbidden_slot_runs_once_the_earlier_job_is_over() {
    let mut cluster = Cluster::new();
    let mut object = cron_job(&json!({"concurrencyPolicy": "Forbid"}));
    let template = &mut object["spec"]["jobTemplate"]["spec"]["template"];
    template["metadata"]["annotations"] = json!({"world/run-seconds": "150"});
    cluster.create("CronJob", "load", object);
    cluster.seconds(300.0);
    assert_eq!(slots(&cluster), [2, 4]);
    assert_eq!(name(&cluster.store.list("Job")[1]), format!("load-{}", NOON + 4));
}
