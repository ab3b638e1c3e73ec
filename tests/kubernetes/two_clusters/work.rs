//! What the lock guards: an object of some kind, and the pods that run because of it.

use serde_json::{Value, json};

use super::cluster::{Cluster, LOCK, NAMESPACE};
use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its pods end within the grace period of 1 s.
    Deployment,
    /// Its pods ignore SIGTERM and would be given 30 s.
    StubbornDeployment,
}

impl Work {
    /// Values of the chart.
    pub const fn rights(self) -> &'static [&'static str] {
        match self {
            Self::Deployment | Self::StubbornDeployment => {
                &["targetKinds[0].group=apps", "targetKinds[0].resource=deployments"]
            }
        }
    }

    /// The object. How many replicas it has is the lock's to say: until then one, the default.
    pub fn object(self) -> Value {
        let (grace, annotations) = match self {
            Self::Deployment => (1, json!({})),
            Self::StubbornDeployment => (30, json!({IGNORES_SIGTERM: "true"})),
        };
        let template = json!({
            "metadata": {"labels": {"app": LOCK}, "annotations": annotations},
            "spec": {
                "terminationGracePeriodSeconds": grace,
                "containers": [{"name": LOCK, "image": LOCK}],
            },
        });
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": LOCK, "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"app": LOCK}},
                "template": template,
            },
        })
    }

    /// A lease of 4 s, of which the targets may take 1 s to stop.
    pub fn lock(self) -> Value {
        let target = match self {
            Self::Deployment | Self::StubbornDeployment => json!({
                "name": "work",
                "action": "Scale",
                "stopSeconds": 1,
                "ref": {"apiVersion": "apps/v1", "kind": "Deployment", "name": LOCK},
            }),
        };
        json!({
            "apiVersion": "redlock.dev/v1alpha1",
            "kind": "LeaderLock",
            "metadata": {"name": LOCK, "namespace": NAMESPACE},
            "spec": {
                "quorumRef": {"name": "default"},
                "leaseDurationSeconds": 4,
                "takeoverDelaySeconds": 3,
                "enforcement": "Observe",
                "targets": [target],
            },
        })
    }

    /// Whether the work goes on in a cluster.
    pub fn runs(self, cluster: &Cluster, recorder: &Recorder) -> bool {
        !recorder.running(cluster.name, NAMESPACE).is_empty()
    }
}
