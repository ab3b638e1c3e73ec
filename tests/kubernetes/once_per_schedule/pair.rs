//! Two clusters that share masters, a lock and a CronJob; the test creates the Jobs, like the CronJob controller.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::{BOUND, Operator, Options};
use crate::world::{World, condition, lasting, lock, quorum_of};
use redlock_testkit::{RedisServer, ServerOptions, eventually, patient};

pub const NAMES: [&str; 2] = ["eu-1", "eu-2"];
/// The name of the lock and of the CronJob.
pub const NAME: &str = "report";
pub const REGISTER: &str = "slot:shared/report/report";
const TARGET: &str = ", lockName: shared/report, targets: [{name: nightly, action: OncePerSchedule, \
                      ref: {apiVersion: batch/v1, kind: CronJob, name: report}}]";

pub struct Pair {
    pub clusters: [World; 2],
}

/// Returns a CronJob with this schedule, whose Jobs run for this many seconds.
pub fn cron_job(schedule: &str, policy: &str, seconds: u64) -> String {
    format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: report}}\nspec:\n  schedule: \"{schedule}\"\n  \
         timeZone: Etc/UTC\n  concurrencyPolicy: {policy}\n  successfulJobsHistoryLimit: 1000\n  jobTemplate:\n    spec:\n      \
         suspend: true\n      backoffLimit: 0\n      template:\n        \
         metadata: {{annotations: {{test.example/run-seconds: \"{seconds}\"}}}}\n        \
         spec: {{restartPolicy: Never, containers: [{{name: work, image: work}}]}}\n"
    )
}

/// Returns a CronJob with a schedule that is never due.
pub fn yearly() -> String {
    cron_job("0 0 1 1 *", "Allow", 0)
}

/// Returns a lock whose lease outlasts a pause of a busy machine: the slots run in the cluster that has it.
pub fn declared() -> String {
    lasting(&lock(NAME, TARGET))
}

impl Pair {
    /// Starts with this many masters, which have been in use for a long time.
    pub async fn new(masters: usize, options: Options) -> Self {
        let masters = (0..masters)
            .map(|_| RedisServer::start(&ServerOptions::default()).unwrap())
            .collect();
        let (first, second) = tokio::join!(
            World::of(masters, options.clone()),
            World::of(Vec::new(), options)
        );
        let clusters = [first, second];
        let urls: Vec<String> = clusters[0].masters.iter().map(RedisServer::url).collect();
        for world in &clusters {
            let kinds = ["targetKinds[0].group=batch", "targetKinds[0].resource=cronjobs"];
            world
                .plane
                .install_rbac_with(world.namespace.name(), &kinds)
                .await;
            let more = format!(
                "  firstStart: Immediate\n  sharedLockNames:\n  - {{prefix: shared/, namespaces: [{}]}}\n",
                world.namespace.name()
            );
            world.apply(&lasting(&quorum_of("default", &urls, &more)));
        }
        Self { clusters }
    }

    pub fn masters(&self) -> &[RedisServer] {
        &self.clusters[0].masters
    }

    /// Starts a replica of the operator of a cluster.
    pub async fn operator(&self, cluster: usize, identity: &str) -> Operator {
        self.clusters[cluster].operator_of(NAMES[cluster], identity).await
    }

    /// Permits claims of past slots: new masters refuse those of their first minute.
    pub async fn forget_first_start(&self) {
        let ready = |status: &Value| condition(status, "Ready").0 == "True";
        self.clusters[0].quorum_status("default", "is ready", ready).await;
        self.set_registers("slotFloor", "1").await;
    }

    pub async fn set_registers(&self, field: &str, value: &str) {
        for master in self.masters() {
            let client = redis::Client::open(master.url()).unwrap();
            let mut connection = patient(&client).await.unwrap();
            let set: redis::RedisResult<()> = redis::cmd("HSET")
                .arg(&["redlock:meta", field, value])
                .query_async(&mut connection)
                .await;
            set.unwrap();
        }
    }

    pub fn jobs(&self, cluster: usize) -> Api<Job> {
        let world = &self.clusters[cluster];
        Api::namespaced(world.plane.admin(), world.namespace.name())
    }

    /// Creates a Job like the CronJob controller would at that time.
    pub async fn schedule(&self, cluster: usize, name: &str, slot: i64) -> Job {
        let at = Timestamp::from_second(slot).unwrap().to_string();
        let annotations = json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": at});
        make_job(&self.clusters[cluster], name, &annotations).await
    }

    pub async fn job(&self, cluster: usize, name: &str) -> Option<Job> {
        self.jobs(cluster).get_opt(name).await.unwrap()
    }

    pub async fn all_jobs(&self, cluster: usize) -> BTreeMap<String, Job> {
        let jobs = self.jobs(cluster).list(&ListParams::default()).await.unwrap();
        let jobs = jobs.items.into_iter();
        jobs.map(|job| (job.metadata.name.clone().unwrap(), job))
            .collect()
    }

    /// Waits until a Job is allowed to run.
    pub async fn runs(&self, cluster: usize, name: &str) -> Job {
        let what = format!("{name} runs in {}", NAMES[cluster]);
        eventually(BOUND, &what, async || {
            let job = self.job(cluster, name).await;
            job.filter(|job| !suspended(job)).ok_or(())
        })
        .await
    }

    pub async fn is_gone(&self, cluster: usize, name: &str) {
        let what = format!("{name} is gone from {}", NAMES[cluster]);
        eventually(BOUND, &what, async || match self.job(cluster, name).await {
            None => Ok(()),
            Some(job) => Err(job),
        })
        .await;
    }

    /// Waits until this cluster has the lock.
    pub async fn is_active(&self, cluster: usize) -> Value {
        let what = format!("is active in {}", NAMES[cluster]);
        self.clusters[cluster]
            .lock_status(NAME, &what, |status| status["role"] == "Active")
            .await
    }

    pub async fn is_standby(&self, cluster: usize) -> Value {
        let what = format!("stands by in {}", NAMES[cluster]);
        let standby =
            |status: &Value| status["role"] == "Standby" && status["holderCluster"] == NAMES[1 - cluster];
        self.clusters[cluster].lock_status(NAME, &what, standby).await
    }
}

/// Creates a Job of the CronJob with these annotations.
pub async fn make_job(world: &World, name: &str, annotations: &Value) -> Job {
    let namespace = world.namespace.name();
    let crons = Api::<CronJob>::namespaced(world.plane.admin(), namespace);
    let cron = crons.get(NAME).await.unwrap();
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": NAME, "uid": cron.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let template = cron.spec.unwrap().job_template.spec;
    let job = json!({
        "metadata": {"name": name, "annotations": annotations, "ownerReferences": [owner]},
        "spec": template,
    });
    let job: Job = serde_json::from_value(job).unwrap();
    let jobs = Api::<Job>::namespaced(world.plane.admin(), namespace);
    jobs.create(&PostParams::default(), &job).await.unwrap()
}

pub fn suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// Returns the slot in the label of a Job.
pub fn label(job: &Job) -> Option<&str> {
    let labels = job.metadata.labels.as_ref()?;
    labels.get("redlock.dev/slot").map(String::as_str)
}

pub fn token(job: &Job) -> Option<&str> {
    let template = job.spec.as_ref()?.template.metadata.as_ref()?;
    let token = template.annotations.as_ref()?.get("redlock.dev/fencing-token")?;
    Some(token)
}
