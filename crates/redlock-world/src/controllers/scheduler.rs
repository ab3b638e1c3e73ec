//! The scheduler: binds each pod to the connected node with the fewest pods.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    ClusterObjects, ControllerPlan, ControllerWrite, ControllerWriter,
    object::{FieldPath, is_deleting, is_pod_over, later, name, namespace, text, uid},
};

/// The pods that are not bound yet, with the time of the binding.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    waiting: BTreeMap<String, Timestamp>,
}

impl Scheduler {
    pub(super) fn reconcile(
        &mut self,
        objects: &dyn ClusterObjects,
        nodes: &[String],
        mut delay: impl FnMut() -> Duration,
        now: Timestamp,
    ) -> ControllerPlan {
        let mut plan = ControllerPlan::default();
        let pods = objects.list("Pod");
        let node_of = |pod: &Value| text(pod, "/spec/nodeName").to_owned();
        let gated = |pod: &Value| {
            let gates = pod.at("/spec/schedulingGates").and_then(Value::as_array);
            gates.is_some_and(|gates| !gates.is_empty())
        };
        let waits =
            |pod: &Value| node_of(pod).is_empty() && !is_deleting(pod) && !is_pod_over(pod) && !gated(pod);
        let pending: Vec<_> = pods.iter().filter(|pod| waits(pod)).collect();
        self.waiting
            .retain(|waiting, _| pending.iter().any(|pod| uid(pod) == waiting));
        if pending.is_empty() {
            return plan;
        }
        let mut load: Vec<(usize, &String)> = nodes
            .iter()
            .map(|node| {
                let on_node = pods
                    .iter()
                    .filter(|pod| !is_pod_over(pod) && node_of(pod) == *node);
                (on_node.count(), node)
            })
            .collect();
        for pod in pending {
            let wanted = self.waiting.entry(uid(pod).to_owned());
            let at = *wanted.or_insert_with(|| later(now, delay()));
            if at > now {
                plan.wake_at(at);
                continue;
            }
            let Some(least) = load.iter_mut().min() else {
                continue;
            };
            least.0 += 1;
            let write = ControllerWrite::Bind {
                namespace: namespace(pod).to_owned(),
                name: name(pod).to_owned(),
                uid: uid(pod).to_owned(),
                node: least.1.clone(),
            };
            plan.writes.push((ControllerWriter::Scheduler, write));
        }
        plan
    }
}
