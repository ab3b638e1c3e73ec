use serde_json::{Value, json};

use super::*;

fn read(change: impl FnOnce(&mut Value)) -> Option<Job> {
    let mut object = json!({
        "metadata": {
            "name": "report-1", "uid": "u", "resourceVersion": "7",
            "annotations": {SCHEDULED: "2026-07-20T10:00:00+02:00"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": "c", "controller": true}],
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {"f:suspend": {}, "f:template": {}}}}],
        },
        "spec": {"suspend": true, "template": {}},
    });
    change(&mut object);
    job("report", serde_json::from_value(object).unwrap()).map(|(_, job)| job)
}

fn stage(change: impl FnOnce(&mut Value)) -> Stage {
    read(change).unwrap().stage
}

#[test]
fn a_slot_is_an_instant_in_any_time_zone() {
    let at = |text: &str| {
        let job = read(|job| job["metadata"]["annotations"][SCHEDULED] = json!(text)).unwrap();
        job.slot
    };
    assert_eq!(at("2026-07-20T08:00:00Z"), When::Scheduled(1_784_534_400));
    assert_eq!(at("2026-07-20T10:00:00+02:00"), at("2026-07-20T08:00:00Z"));
    assert_eq!(at("today"), When::Unreadable);
    assert_eq!(at("1960-01-01T00:00:00Z"), When::Unreadable);
    let manual = json!({"cronjob.kubernetes.io/instantiate": "manual"});
    let manual = read(|job| job["metadata"]["annotations"] = manual).unwrap();
    assert_eq!(manual.slot, When::Manual);
    assert!(When::Scheduled(1) < When::Scheduled(2) && When::Scheduled(2) < When::Manual);
}

#[test]
fn only_jobs_that_the_cron_job_controls_are_its() {
    assert!(read(|_| {}).is_some());
    assert!(read(|job| job["metadata"]["ownerReferences"][0]["name"] = json!("other")).is_none());
    assert!(read(|job| job["metadata"]["ownerReferences"][0]["kind"] = json!("Gate")).is_none());
    assert!(read(|job| job["metadata"]["ownerReferences"][0]["controller"] = json!(false)).is_none());
    assert!(read(|job| job["metadata"]["ownerReferences"] = json!([])).is_none());
}

#[test]
fn the_outcome_of_a_job_is_read_from_it() {
    let labelled = |job: &mut Value, text: &str| job["metadata"]["labels"] = json!({SLOT: text});
    let runs = |job: &mut Value| job["spec"]["suspend"] = json!(false);
    assert_eq!(stage(|_| {}), Stage::Waits { emitted: false });
    assert_eq!(
        stage(|job| labelled(job, "waits")),
        Stage::Waits { emitted: true }
    );
    assert_eq!(
        stage(|job| labelled(job, "unreadable")),
        Stage::Waits { emitted: true }
    );
    assert_eq!(stage(|job| labelled(job, "lost")), Stage::Lost);
    assert_eq!(stage(|job| labelled(job, "too-old")), Stage::Lost);
    assert_eq!(
        stage(|job| labelled(job, "mine")),
        Stage::Waits { emitted: false },
        "somebody's"
    );
    // The operator started the Job, and another writer suspended it: it is left alone.
    assert_eq!(stage(|job| labelled(job, "claimed")), Stage::Left);
    assert_eq!(
        stage(|job| {
            labelled(job, "claimed");
            runs(job);
        }),
        Stage::Runs
    );
    // The Job was created running, before its CronJob was a target.
    assert_eq!(stage(runs), Stage::Left);
    // The Job was just suspended, and its pods still exist.
    let started = json!({"startTime": "2026-07-20T10:00:01Z"});
    assert_eq!(stage(|job| job["status"] = started), Stage::Left);
    for kind in ["Complete", "Failed"] {
        let ended = json!({"conditions": [{"type": kind, "status": "True"}]});
        assert_eq!(stage(|job| job["status"] = ended), Stage::Over);
    }
    assert_eq!(
        stage(|job| job["metadata"]["deletionTimestamp"] = json!("2026-07-20T10:00:01Z")),
        Stage::Over
    );
}

#[test]
fn manager_that_resumed_a_job_is_named() {
    let hand = |job: &mut Value, manager: &str| {
        job["spec"]["suspend"] = json!(false);
        job["metadata"]["managedFields"] = json!([
            {"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {"f:template": {}}}},
            {"manager": manager, "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        ]);
    };
    assert_eq!(
        stage(|job| hand(job, "kubectl-patch")),
        Stage::ByHand("kubectl-patch".into())
    );
    assert_eq!(stage(|job| hand(job, MANAGER)), Stage::Left);
}

#[test]
fn a_cron_job_whose_jobs_would_run_everywhere_is_not_safe() {
    let read = |schedule: &str, suspend: Value| {
        let object = json!({
            "metadata": {"name": "report", "uid": "c"},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": {"suspend": suspend, "template": {}}}},
        });
        cron(serde_json::from_value(object).unwrap()).unwrap()
    };
    assert_eq!(read("*/5 * * * *", json!(true)).unsafe_because, None);
    let why = read("*/5 * * * *", json!(null)).unsafe_because.unwrap();
    let yaml = why.split_once('\n').unwrap().1;
    let pasted: Value = serde_yaml::from_str(yaml).unwrap();
    assert_eq!(pasted["spec"]["jobTemplate"]["spec"]["suspend"], true);
    assert!(read("*/5 * * * *", json!(false)).unsafe_because.is_some());
    let why = read("@every 5m", json!(true)).unsafe_because.unwrap();
    assert!(why.contains("\"@every 5m\""), "{why}");
}

#[test]
fn a_cron_job_is_read_with_whether_it_makes_slots_and_in_which_time_zone() {
    let read = |change: Value| {
        let mut spec =
            json!({"schedule": "0 1 * * *", "jobTemplate": {"spec": {"suspend": true, "template": {}}}});
        spec.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let object = json!({"metadata": {"name": "report", "uid": "c"}, "spec": spec});
        let cron = cron(serde_json::from_value(object).unwrap()).unwrap();
        (cron.suspended, cron.zoned)
    };
    assert_eq!(read(json!({})), (false, false));
    assert_eq!(read(json!({"suspend": true})), (true, false));
    assert_eq!(read(json!({"timeZone": "Etc/UTC"})), (false, true));
}
