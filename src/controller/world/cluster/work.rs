//! The work of a cluster, from its pods and objects alone.

use redlock_world::kubernetes::ResourceId;

use super::{ClusterWorld, now};
use crate::controller::world::{
    manifests::NAMESPACE,
    workloads::{Workload, WorkloadKind},
};

impl ClusterWorld {
    /// Returns the names of the running pods of a workload, as their nodes run them.
    pub(in crate::controller::world) fn running_pod_names(&self, workload: &str) -> Vec<String> {
        let prefix = format!("{workload}-");
        let state = self.state();
        let pods = state.controllers.running_pods(now());
        let own = pods.filter(|pod| pod.namespace == NAMESPACE && pod.name.starts_with(&prefix));
        own.map(|pod| pod.name).collect()
    }

    /// Returns the number of running pods of a workload, as their nodes run them.
    pub(in crate::controller::world) fn running_pods(&self, workload: &str) -> usize {
        self.running_pod_names(workload).len()
    }

    /// Returns the number of pods of a pool with the label of the active one.
    pub(in crate::controller::world) fn labelled_pods(&self, pool: &str) -> usize {
        let pods = self.api.all(&ResourceId::PODS);
        let labelled = pods.iter().filter(|pod| {
            let labels = &pod["metadata"]["labels"];
            labels["app"] == pool && labels["redlock.dev/role"] == "active"
        });
        labelled.count()
    }

    /// Reports whether the object of a workload declares that it works, or a pod of a pool has the label.
    pub(in crate::controller::world) fn is_declared(&self, workload: Workload) -> bool {
        match workload.kind {
            WorkloadKind::Pool => self.labelled_pods(workload.name) > 0,
            WorkloadKind::Schedule => self.running_pods(workload.name) > 0,
            WorkloadKind::Deployment
            | WorkloadKind::StatefulSet
            | WorkloadKind::CronJob
            | WorkloadKind::Job
            | WorkloadKind::Lease
            | WorkloadKind::Service => self.starts(workload),
        }
    }

    /// Reports whether a workload works in this cluster now.
    pub(in crate::controller::world) fn works(&self, workload: Workload) -> bool {
        match workload.kind {
            WorkloadKind::Deployment
            | WorkloadKind::StatefulSet
            | WorkloadKind::CronJob
            | WorkloadKind::Schedule
            | WorkloadKind::Job => self.running_pods(workload.name) > 0,
            WorkloadKind::Pool => self.labelled_pods(workload.name) > 0,
            WorkloadKind::Lease => self.candidate.leads(),
            WorkloadKind::Service => self.starts(workload),
        }
    }
}
