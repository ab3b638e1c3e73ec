//! Tests many Jobs in one namespace: their cost for a replica whose locks switch a few of its CronJobs.

use futures_util::{StreamExt, stream};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::memory::memory;
use crate::suspend::RIGHTS;
use crate::world::{World, condition, lock};

/// Number of locks, each with its own CronJob.
const LOCKS: usize = 10;
/// The memory limit of a replica with all Jobs, in MiB.
const BOUND: f64 = 150.0;

/// Creates Jobs of 4 KiB of a CronJob that is not a target. Every second Job has ended.
async fn make(world: &World, count: usize) {
    let jobs = Api::<Job>::namespaced(world.plane.admin(), world.namespace.name());
    let crons = Api::<CronJob>::namespaced(world.plane.admin(), world.namespace.name());
    let uid = crons.get("other").await.unwrap().metadata.uid.unwrap();
    let note = "x".repeat(3_000);
    let one = async |index: usize| {
        let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "other", "uid": uid, "controller": true});
        let job: Job = serde_json::from_value(json!({
            "metadata": {
                "name": format!("other-{index}"),
                "annotations": {"note": note},
                "ownerReferences": [owner],
            },
            "spec": {"suspend": true, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "work", "image": "work"}],
            }}},
        }))
        .unwrap();
        jobs.create(&PostParams::default(), &job).await.unwrap();
        if index.is_multiple_of(2) {
            let now = jiff::Timestamp::now().to_string();
            let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
            let status = json!({"status": {"startTime": now, "conditions": [
                condition("FailureTarget"), condition("Failed"),
            ]}});
            let name = format!("other-{index}");
            let patch = Patch::Merge(&status);
            jobs.patch_status(&name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    };
    let all: Vec<()> = stream::iter(0..count)
        .map(one)
        .buffer_unordered(32)
        .collect()
        .await;
    assert_eq!(all.len(), count);
}

fn cron_job(name: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: {name}}}\nspec: {{schedule: '0 0 29 2 *', \
         startingDeadlineSeconds: 60, jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, \
         containers: [{{name: work, image: work}}]}}}}}}}}}}\n"
    )
}

async fn all_are(world: &World, state: &str) {
    for index in 0..LOCKS {
        world
            .lock_status(&format!("lock-{index}"), &format!("is {state}"), |status| {
                status["targets"][0]["observed"] == state && condition(status, "Enforced").0 == "True"
            })
            .await;
    }
}

/// Set `REDLOCK_JOBS=20000` to measure, as in docs/targets.md.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_namespace_cost_one_watch_and_bounded_memory() {
    let count: usize = std::env::var("REDLOCK_JOBS").map_or(1_200, |count| count.parse().unwrap());
    let world = World::small(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &RIGHTS)
        .await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 60"));
    world.apply(&cron_job("other"));
    make(&world, count).await;
    let operator = world.operator("replica-1").await;
    println!("{count} Jobs; {:?} MiB resident and at most", memory(&operator));
    for index in 0..LOCKS {
        world.apply(&cron_job(&format!("cron-{index}")));
        let target = format!(
            ", targets: [{{name: it, action: Suspend, stopSeconds: 5, \
             ref: {{apiVersion: batch/v1, kind: CronJob, name: cron-{index}}}}}]"
        );
        let lock = lock(&format!("lock-{index}"), &target);
        world.apply(&lock.replace("leaseDurationSeconds: 6", "leaseDurationSeconds: 30"));
    }
    all_are(&world, "Active").await;
    println!("all active; {:?} MiB", memory(&operator));
    for index in 0..LOCKS {
        let down = json!({"spec": {"state": "SteppedDown", "reason": "test"}}).to_string();
        let name = format!("lock-{index}");
        world.kubectl(&["patch", "ll", &name, "--type=merge", "--patch", &down]);
    }
    all_are(&world, "Standby").await;
    let (resident, most) = memory(&operator);
    println!("all stopped; {resident:.0} MiB, at most {most:.0} MiB");

    let of_jobs = |verb: &str| {
        let is = |event: &crate::fixture::audit::Event| {
            event.verb == verb
                && event
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.resource == "jobs")
        };
        let all = world.requests().into_iter().filter(is);
        all.filter(|event| event.stage == "ResponseStarted" || verb != "watch")
            .collect::<Vec<_>>()
    };
    let watches = of_jobs("watch");
    let lists = of_jobs("list");
    println!(
        "{} watches of jobs, {} pages of lists",
        watches.len(),
        lists.len()
    );
    assert_eq!(watches.len(), 1, "{watches:#?}");
    assert!(lists.iter().all(|list| list.uri.contains("limit=")), "{lists:#?}");
    assert!(most < BOUND, "{most} MiB");
}
