//! The workloads of random worlds, and the targets that name them.

use redlock_world::kubernetes::{ObjectKey, ResourceId};
use serde_json::{Value, json};

use super::manifests::{self, NAMESPACE};

/// A kind of workload; each kind has an action that switches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkloadKind {
    Deployment,
    StatefulSet,
    /// Its runs take 20 s, and one begins each minute.
    CronJob,
}

/// A workload, with the lock that may name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) lock: &'static str,
    pub(super) kind: WorkloadKind,
}

pub(super) const WORKLOADS: [Workload; 4] = [
    Workload::new("web", "a", WorkloadKind::Deployment),
    Workload::new("store", "a", WorkloadKind::StatefulSet),
    Workload::new("batch", "b", WorkloadKind::CronJob),
    Workload::new("api", "b", WorkloadKind::Deployment),
];

impl Workload {
    const fn new(name: &'static str, lock: &'static str, kind: WorkloadKind) -> Self {
        Self { name, lock, kind }
    }

    pub(super) fn resource(self) -> ResourceId {
        match self.kind {
            WorkloadKind::Deployment => ResourceId::DEPLOYMENTS,
            WorkloadKind::StatefulSet => ResourceId::STATEFUL_SETS,
            WorkloadKind::CronJob => ResourceId::CRON_JOBS,
        }
    }

    pub(super) fn key(self) -> ObjectKey {
        ObjectKey::new(self.resource(), NAMESPACE, self.name)
    }

    /// Returns the object without the field that the operator switches, as a tool applies it.
    pub(super) fn manifest(self) -> Value {
        let mut object = manifests::deployment(NAMESPACE, self.name, 0, 3);
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("replicas");
        }
        match self.kind {
            WorkloadKind::Deployment => object,
            WorkloadKind::StatefulSet => {
                object["kind"] = json!("StatefulSet");
                object["spec"]["serviceName"] = json!(self.name);
                object
            }
            WorkloadKind::CronJob => {
                let mut template = object["spec"]["template"].clone();
                template["metadata"]["annotations"] = json!({ "world/run-seconds": "20" });
                template["spec"]["restartPolicy"] = json!("Never");
                json!({
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "metadata": object["metadata"],
                    "spec": {
                        "schedule": "* * * * *",
                        "timeZone": "Etc/UTC",
                        "startingDeadlineSeconds": 30,
                        "jobTemplate": { "spec": { "template": template } },
                    },
                })
            }
        }
    }

    /// Returns the object as it is created: stopped.
    pub(super) fn stopped(self) -> Value {
        let mut object = self.manifest();
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => object["spec"]["replicas"] = json!(0),
            WorkloadKind::CronJob => object["spec"]["suspend"] = json!(true),
        }
        object
    }

    /// Returns the change by which a person starts the workload.
    pub(super) fn start(self) -> Value {
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => json!({ "spec": { "replicas": 1 } }),
            WorkloadKind::CronJob => json!({ "spec": { "suspend": false } }),
        }
    }

    /// Reports whether this object is declared to run.
    pub(super) fn is_started(self, object: &Value) -> bool {
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => object["spec"]["replicas"] != 0,
            WorkloadKind::CronJob => object["spec"]["suspend"] == false,
        }
    }

    /// Returns the target of a lock that switches the workload.
    pub(super) fn target(self) -> Value {
        let (api_version, kind, action) = match self.kind {
            WorkloadKind::Deployment => ("apps/v1", "Deployment", "Scale"),
            WorkloadKind::StatefulSet => ("apps/v1", "StatefulSet", "Scale"),
            WorkloadKind::CronJob => ("batch/v1", "CronJob", "Suspend"),
        };
        json!({
            "name": self.name,
            "action": action,
            "stopSeconds": 5,
            "ref": { "apiVersion": api_version, "kind": kind, "name": self.name },
        })
    }
}
