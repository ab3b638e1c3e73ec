//! The workload that the lock guards: an object of some kind, and its pods.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use super::cluster::{Cluster, LOCK, NAMESPACE};
use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its pods end within their grace period of 1 s.
    Deployment,
    /// Its pods ignore SIGTERM and have a grace period of 30 s.
    StubbornDeployment,
    /// Would run for ever.
    Job,
    /// Runs every minute, and whenever this test creates a Job from it while it is not suspended; each Job would run
    /// for ever.
    CronJob,
}

impl Work {
    /// Values of the chart.
    pub const fn rights(self) -> &'static [&'static str] {
        match self {
            Self::Deployment | Self::StubbornDeployment => {
                &["targetKinds[0].group=apps", "targetKinds[0].resource=deployments"]
            }
            Self::Job => &["targetKinds[0].group=batch", "targetKinds[0].resource=jobs"],
            Self::CronJob => &["targetKinds[0].group=batch", "targetKinds[0].resource=cronjobs"],
        }
    }

    const fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StubbornDeployment => "apps/v1",
            Self::Job | Self::CronJob => "batch/v1",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Deployment | Self::StubbornDeployment => "Deployment",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Deployment | Self::StubbornDeployment => "Scale",
            Self::Job | Self::CronJob => "Suspend",
        }
    }

    /// Returns the object, which runs until the lock stops it: no other field manager owns the field that is
    /// switched.
    pub fn object(self) -> Value {
        let (grace, annotations) = match self {
            Self::StubbornDeployment => (30, json!({IGNORES_SIGTERM: "true"})),
            _ => (1, json!({})),
        };
        let mut template = json!({
            "metadata": {"labels": {"app": LOCK}, "annotations": annotations},
            "spec": {
                "terminationGracePeriodSeconds": grace,
                "containers": [{"name": LOCK, "image": LOCK}],
            },
        });
        let spec = match self {
            Self::Deployment | Self::StubbornDeployment => {
                json!({"selector": {"matchLabels": {"app": LOCK}}, "template": template})
            }
            Self::Job | Self::CronJob => {
                template["spec"]["restartPolicy"] = "Never".into();
                let job = json!({"backoffLimit": 1_000_000, "template": template});
                if self == Self::Job {
                    job
                } else {
                    json!({
                        "schedule": "* * * * *",
                        "concurrencyPolicy": "Forbid",
                        "startingDeadlineSeconds": 60,
                        "jobTemplate": {"spec": job},
                    })
                }
            }
        };
        json!({
            "apiVersion": self.api_version(),
            "kind": self.kind(),
            "metadata": {"name": LOCK, "namespace": NAMESPACE},
            "spec": spec,
        })
    }

    /// Returns a lock with a lease of so many seconds, of which the targets may take one to stop.
    pub fn lock(self, lease: u64) -> Value {
        json!({
            "apiVersion": "redlock.dev/v1alpha1",
            "kind": "LeaderLock",
            "metadata": {"name": LOCK, "namespace": NAMESPACE},
            "spec": {
                "quorumRef": {"name": "default"},
                "leaseDurationSeconds": lease,
                "takeoverDelaySeconds": 3,
                "enforcement": "Observe",
                "targets": [{
                    "name": "work",
                    "action": self.action(),
                    "stopSeconds": 1,
                    "ref": {"apiVersion": self.api_version(), "kind": self.kind(), "name": LOCK},
                }],
            },
        })
    }

    /// Reports whether the work runs in a cluster. A CronJob gets a Job first.
    pub async fn runs(self, cluster: &Cluster, recorder: &Recorder) -> bool {
        let runs = !recorder.running(cluster.name, NAMESPACE).is_empty();
        if self == Self::CronJob && !runs {
            // A request that fails during an outage of the API server is retried.
            let _ = due(cluster).await;
        }
        runs
    }
}

/// Creates a Job like the controller of the CronJob, where it is not suspended and no Job runs.
async fn due(cluster: &Cluster) -> kube::Result<()> {
    let schedule = Api::<CronJob>::namespaced(cluster.client.clone(), NAMESPACE);
    let schedule = schedule.get(LOCK).await?;
    let jobs = Api::<Job>::namespaced(cluster.client.clone(), NAMESPACE);
    let spec = schedule.spec.as_ref().expect("a spec");
    let found = jobs.list(&ListParams::default()).await?;
    let is_going = |job: &Job| {
        let suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        !suspended && job.metadata.deletion_timestamp.is_none()
    };
    if spec.suspend == Some(true) || found.iter().any(is_going) {
        return Ok(());
    }
    let job = json!({
        "metadata": {
            "generateName": format!("{LOCK}-"),
            "ownerReferences": [{
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "name": LOCK,
                "uid": schedule.uid(),
                "controller": true,
            }],
        },
        "spec": spec.job_template.spec,
    });
    let job: Job = serde_json::from_value(job).map_err(kube::Error::SerdeError)?;
    jobs.create(&PostParams::default(), &job).await.map(|_| ())
}
