//! The workload that the lock guards: an object of some kind, and its pods.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use super::cluster::{Cluster, LOCK, NAMESPACE};
use crate::fixture::FENCING;
use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its pods end within their grace period of 1 s.
    Deployment,
    /// Its pods ignore SIGTERM and have a grace period of 30 s.
    StubbornDeployment,
    /// A Job that would run forever.
    Job,
    /// Runs every minute, and whenever this test creates a Job from it while it is not suspended. Each Job
    /// would run forever.
    CronJob,
    /// Its pods are processes that mount the volume of node fencing, with the default timings of such a lock.
    Fenced,
    /// The same without node fencing, with the delay of the other kinds: its overlaps show what fencing prevents.
    Unfenced,
}

impl Work {
    pub const fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced)
    }

    pub const fn has_processes(self) -> bool {
        matches!(self, Self::Fenced | Self::Unfenced)
    }

    /// Returns the values of the chart that grant the rights.
    pub const fn rights(self) -> &'static [&'static str] {
        match self {
            Self::Fenced => &[
                FENCING,
                "targetKinds[0].group=apps",
                "targetKinds[0].resource=deployments",
            ],
            Self::Deployment | Self::StubbornDeployment | Self::Unfenced => {
                &["targetKinds[0].group=apps", "targetKinds[0].resource=deployments"]
            }
            Self::Job => &["targetKinds[0].group=batch", "targetKinds[0].resource=jobs"],
            Self::CronJob => &["targetKinds[0].group=batch", "targetKinds[0].resource=cronjobs"],
        }
    }

    const fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StubbornDeployment | Self::Fenced | Self::Unfenced => "apps/v1",
            Self::Job | Self::CronJob => "batch/v1",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Deployment | Self::StubbornDeployment | Self::Fenced | Self::Unfenced => "Deployment",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Deployment | Self::StubbornDeployment | Self::Fenced | Self::Unfenced => "Scale",
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
        if self.is_fenced() {
            template["spec"]["volumes"] = json!([{"name": "redlock", "csi": {
                "driver": "fencing.redlock.dev", "readOnly": true, "volumeAttributes": {"lock": LOCK},
            }}]);
            template["spec"]["containers"][0]["volumeMounts"] =
                json!([{"name": "redlock", "mountPath": "/run/redlock", "readOnly": true}]);
        }
        let spec = match self {
            Self::Deployment | Self::StubbornDeployment | Self::Fenced | Self::Unfenced => {
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

    /// Returns a lock with a lease of this many seconds, of which the targets may take one second to stop. A
    /// fenced lock has the default timings.
    pub fn lock(self, lease: u64) -> Value {
        let mut lock = json!({
            "apiVersion": "redlock.dev/v1alpha1",
            "kind": "LeaderLock",
            "metadata": {"name": LOCK, "namespace": NAMESPACE},
            "spec": {
                "quorumRef": {"name": "default"},
                "targets": [{
                    "name": "work",
                    "action": self.action(),
                    "ref": {"apiVersion": self.api_version(), "kind": self.kind(), "name": LOCK},
                }],
            },
        });
        let spec = &mut lock["spec"];
        if self.is_fenced() {
            spec["fencing"] = "Node".into();
        } else {
            spec["enforcement"] = "Observe".into();
            spec["leaseDurationSeconds"] = lease.into();
            spec["takeoverDelaySeconds"] = 3.into();
            spec["targets"][0]["stopSeconds"] = 1.into();
        }
        lock
    }

    /// Reports whether the work runs in a cluster. A CronJob gets a Job first.
    pub async fn runs(self, cluster: &Cluster, recorder: &Recorder) -> bool {
        if let Some(node) = &cluster.node {
            return node.writers.is_writing();
        }
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
    let is_started = |job: &Job| {
        let suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        !suspended && job.metadata.deletion_timestamp.is_none()
    };
    if spec.suspend == Some(true) || found.iter().any(is_started) {
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
