//! What the lock guards: an object of some kind, and the pods that run because of it.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use super::cluster::{Cluster, LOCK, NAMESPACE};
use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its pods end within the grace period of 1 s.
    Deployment,
    /// Its pods ignore SIGTERM and would be given 30 s.
    StubbornDeployment,
    /// Would run for ever.
    Job,
    /// Every minute, and whenever this test makes a Job of it where it is not suspended; each would run for ever.
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

    /// The object, which runs until the lock says otherwise: how it is switched is nobody else's to say.
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

    /// A lease of so many seconds, of which the targets may take one to stop.
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

    /// Whether the work goes on in a cluster. What only runs now and then is given something to do.
    pub async fn runs(self, cluster: &Cluster, recorder: &Recorder) -> bool {
        let runs = !recorder.running(cluster.name, NAMESPACE).is_empty();
        if self == Self::CronJob && !runs {
            // An API server that is away is asked again.
            let _ = due(cluster).await;
        }
        runs
    }
}

/// A Job as the controller of the CronJob makes one, where it is not suspended and none runs.
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
