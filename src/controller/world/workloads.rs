//! The workloads of random worlds, and the targets that name them.

use fastrand::Rng;
use redlock_world::kubernetes::{ObjectKey, ResourceId};
use serde_json::{Value, json};

use super::{
    candidate,
    manifests::{self, NAMESPACE},
};

/// A kind of workload. Together, the kinds have all actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkloadKind {
    Deployment,
    StatefulSet,
    /// A CronJob that is suspended. Its runs take 20 s, and one begins each minute.
    CronJob,
    /// A CronJob each of whose runs takes place in one cluster.
    Schedule,
    /// A Job that does not end by itself.
    Job,
    /// Two pods in each cluster, one of which has the label in one cluster.
    Pool,
    /// A controller that runs in each cluster and elects a leader by a Lease.
    Lease,
    /// A Service whose selector is patched.
    Service,
}

/// A workload, with the lock that may name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) lock: &'static str,
    pub(super) kind: WorkloadKind,
}

/// The number of workloads of each lock in one world.
const OF_EACH_LOCK: usize = 2;

const WORKLOADS: [Workload; 9] = [
    Workload::new("web", "a", WorkloadKind::Deployment),
    Workload::new("store", "a", WorkloadKind::StatefulSet),
    Workload::new("pool", "a", WorkloadKind::Pool),
    Workload::new("leader", "a", WorkloadKind::Lease),
    Workload::new("api", "b", WorkloadKind::Deployment),
    Workload::new("batch", "b", WorkloadKind::CronJob),
    Workload::new("report", "b", WorkloadKind::Schedule),
    Workload::new("import", "b", WorkloadKind::Job),
    Workload::new("front", "b", WorkloadKind::Service),
];

/// Returns the workloads of a world.
pub(super) fn choose_workloads(seed: u64) -> Vec<Workload> {
    let mut random = Rng::with_seed(seed ^ 0x0a11);
    let mut all = WORKLOADS;
    random.shuffle(&mut all);
    let of = |lock: &'static str| all.into_iter().filter(move |workload| workload.lock == lock);
    let mut chosen: Vec<Workload> = of("a").take(OF_EACH_LOCK).collect();
    chosen.extend(of("b").take(OF_EACH_LOCK));
    chosen
}

/// Returns the selector of the Service where the lock is held, or everywhere else.
fn selector(active: bool) -> Value {
    json!({ "app": if active { "front" } else { "none" } })
}

impl Workload {
    const fn new(name: &'static str, lock: &'static str, kind: WorkloadKind) -> Self {
        Self { name, lock, kind }
    }

    pub(super) fn resource(self) -> ResourceId {
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::Pool => ResourceId::DEPLOYMENTS,
            WorkloadKind::StatefulSet => ResourceId::STATEFUL_SETS,
            WorkloadKind::CronJob | WorkloadKind::Schedule => ResourceId::CRON_JOBS,
            WorkloadKind::Job => ResourceId::JOBS,
            WorkloadKind::Lease => ResourceId::LEASES,
            WorkloadKind::Service => ResourceId::SERVICES,
        }
    }

    pub(super) fn key(self) -> ObjectKey {
        ObjectKey::new(self.resource(), NAMESPACE, self.name)
    }

    /// Returns the pod template of a workload that runs to completion.
    fn run_template(self, seconds: &str) -> Value {
        let mut template = manifests::deployment(NAMESPACE, self.name, 0, 3)["spec"]["template"].clone();
        template["metadata"]["annotations"] = json!({ "world/run-seconds": seconds });
        template["spec"]["restartPolicy"] = json!("Never");
        template
    }

    /// Returns the object without the field that the operator switches, as a tool applies it. `None` for a Lease, which no
    /// tool applies.
    pub(super) fn manifest(self) -> Option<Value> {
        let mut object = manifests::deployment(NAMESPACE, self.name, 2, 3);
        match self.kind {
            WorkloadKind::Pool => {}
            WorkloadKind::Deployment => drop(object["spec"].as_object_mut()?.remove("replicas")),
            WorkloadKind::StatefulSet => {
                object["spec"].as_object_mut()?.remove("replicas");
                object["kind"] = json!("StatefulSet");
                object["spec"]["serviceName"] = json!(self.name);
            }
            WorkloadKind::CronJob | WorkloadKind::Schedule => {
                object["apiVersion"] = json!("batch/v1");
                object["kind"] = json!("CronJob");
                object["spec"] = json!({
                    "schedule": "* * * * *",
                    "timeZone": "Etc/UTC",
                    "startingDeadlineSeconds": 30,
                    "jobTemplate": { "spec": { "template": self.run_template("20") } },
                });
                if self.kind == WorkloadKind::Schedule {
                    object["spec"]["jobTemplate"]["spec"]["suspend"] = json!(true);
                }
            }
            WorkloadKind::Job => {
                object["apiVersion"] = json!("batch/v1");
                object["kind"] = json!("Job");
                object["spec"] = json!({ "template": self.run_template("1000000") });
            }
            WorkloadKind::Service => {
                object["apiVersion"] = json!("v1");
                object["kind"] = json!("Service");
                object["spec"] = json!({ "ports": [{ "port": 80 }] });
            }
            WorkloadKind::Lease => return None,
        }
        Some(object)
    }

    /// Returns the object as it is created: stopped. `cluster` is the name of the cluster.
    pub(super) fn stopped(self, cluster: &str) -> Value {
        let Some(mut object) = self.manifest() else {
            return candidate::withheld_lease(self.name, cluster);
        };
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => object["spec"]["replicas"] = json!(0),
            WorkloadKind::CronJob | WorkloadKind::Job => object["spec"]["suspend"] = json!(true),
            WorkloadKind::Service => object["spec"]["selector"] = selector(false),
            WorkloadKind::Schedule | WorkloadKind::Pool | WorkloadKind::Lease => {}
        }
        object
    }

    /// Returns the change by which a person starts the workload; `None` where the object is the same in both states.
    pub(super) fn start(self) -> Option<Value> {
        let spec = match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => json!({ "replicas": 1 }),
            WorkloadKind::CronJob | WorkloadKind::Job => json!({ "suspend": false }),
            WorkloadKind::Service => json!({ "selector": selector(true) }),
            WorkloadKind::Lease => json!({ "holderIdentity": "" }),
            WorkloadKind::Schedule | WorkloadKind::Pool => return None,
        };
        Some(json!({ "spec": spec }))
    }

    /// Reports whether this object is declared to run.
    pub(super) fn is_started(self, object: &Value) -> bool {
        match self.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => object["spec"]["replicas"] != 0,
            WorkloadKind::CronJob | WorkloadKind::Job => object["spec"]["suspend"] == false,
            WorkloadKind::Service => object["spec"]["selector"] == selector(true),
            WorkloadKind::Schedule | WorkloadKind::Pool => true,
            WorkloadKind::Lease => !candidate::is_withheld(object),
        }
    }

    /// Returns the target of a lock that switches the workload.
    pub(super) fn target(self) -> Value {
        let (api_version, kind, action) = match self.kind {
            WorkloadKind::Deployment => ("apps/v1", "Deployment", "Scale"),
            WorkloadKind::StatefulSet => ("apps/v1", "StatefulSet", "Scale"),
            WorkloadKind::CronJob => ("batch/v1", "CronJob", "Suspend"),
            WorkloadKind::Job => ("batch/v1", "Job", "Suspend"),
            WorkloadKind::Lease => ("coordination.k8s.io/v1", "Lease", "Lease"),
            WorkloadKind::Service => return self.patch_target(),
            WorkloadKind::Pool => {
                let selector = json!({ "matchLabels": { "app": self.name } });
                return json!({ "name": self.name, "action": "LabelPods", "labelPods": { "selector": selector } });
            }
            WorkloadKind::Schedule => {
                let mut target = self.switch("batch/v1", "CronJob", "OncePerSchedule");
                target["oncePerSchedule"] = json!({ "maxSlotAgeSeconds": 120 });
                return target;
            }
        };
        let mut target = self.switch(api_version, kind, action);
        let seconds = if self.kind == WorkloadKind::Lease { 28 } else { 5 };
        target["stopSeconds"] = json!(seconds);
        target
    }

    fn switch(self, api_version: &str, kind: &str, action: &str) -> Value {
        let reference = json!({ "apiVersion": api_version, "kind": kind, "name": self.name });
        json!({ "name": self.name, "action": action, "ref": reference })
    }

    fn patch_target(self) -> Value {
        let mut target = self.switch("v1", "Service", "Patch");
        target["stopSeconds"] = json!(5);
        let field = json!({ "path": "/spec/selector", "active": selector(true), "standby": selector(false) });
        target["patch"] = json!({ "fields": [field] });
        target
    }
}
