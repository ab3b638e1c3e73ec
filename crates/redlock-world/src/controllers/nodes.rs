//! The nodes, and the controllers that react to a lost one: its pods become not ready, and are deleted later.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    ClusterObjects, ControllerPlan,
    object::{Condition, FieldPath, is_deleting, is_pod_over, is_pod_ready, later, status_of, text},
};

/// The time without a heartbeat after which a node counts as not ready.
const NOT_READY_AFTER: Duration = Duration::from_secs(40);
/// The default toleration of pods for a node that is not ready.
const EVICTED_AFTER: Duration = Duration::from_secs(300);

/// The nodes of the cluster.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) names: Vec<String>,
    /// The lost nodes, with the time of the loss.
    pub(super) lost: BTreeMap<String, Timestamp>,
}

impl Nodes {
    /// Returns the nodes on which the scheduler places pods.
    pub(super) fn ready(&self, now: Timestamp) -> Vec<String> {
        let ready = |name: &&String| {
            let lost = self.lost.get(*name);
            lost.is_none_or(|lost| later(*lost, NOT_READY_AFTER) > now)
        };
        self.names.iter().filter(ready).cloned().collect()
    }

    /// Marks the pods of lost nodes as not ready, and deletes them later: they stay until the node is back.
    pub(super) fn reconcile(&self, objects: &dyn ClusterObjects, now: Timestamp) -> ControllerPlan {
        let mut plan = ControllerPlan::default();
        if self.lost.is_empty() {
            return plan;
        }
        for pod in objects.list("Pod") {
            let Some(lost) = self.lost.get(text(&pod, "/spec/nodeName")) else {
                continue;
            };
            let not_ready = later(*lost, NOT_READY_AFTER);
            if not_ready > now {
                plan.wake_at(not_ready);
                continue;
            }
            if is_pod_ready(&pod) {
                let mut status = status_of(&pod);
                Condition::new("Ready", false, "", "").set(&mut status, now);
                plan.update_status("Pod", &pod, status);
            }
            let evicted = later(not_ready, toleration(&pod));
            if is_pod_over(&pod) || is_deleting(&pod) || evicted == Timestamp::MAX {
                continue;
            }
            if evicted > now {
                plan.wake_at(evicted);
            } else {
                plan.delete("Pod", &pod);
            }
        }
        plan
    }
}

/// Returns the time for which a pod tolerates an unreachable node.
fn toleration(pod: &Value) -> Duration {
    let all = pod.at("/spec/tolerations").and_then(Value::as_array);
    let mut all = all.into_iter().flatten();
    let found = all.find(|one| one["key"] == "node.kubernetes.io/unreachable");
    match found.map(|found| found["tolerationSeconds"].as_u64()) {
        None => EVICTED_AFTER,
        Some(Some(seconds)) => Duration::from_secs(seconds),
        Some(None) => Duration::MAX,
    }
}
