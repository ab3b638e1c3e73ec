//! The controller of ReplicaSets: keeps the number of pods.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan,
    object::{
        Object, annotation, condition, count, count_or, is_deleting, is_pod_active, is_pod_ready, name,
        namespace, set_count, status_of, text, time, uid,
    },
    pod_template::{new_pod, random_suffix},
    selector::Owner,
};

const KIND: &str = "ReplicaSet";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) fn reconcile(objects: &dyn ClusterObjects, random: &mut fastrand::Rng) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let sets = objects.list(KIND);
    if sets.is_empty() {
        return plan;
    }
    let mut pods = objects.list("Pod");
    pods.retain(|pod| is_pod_active(pod));
    for set in &sets {
        sync(set, &pods, random, &mut plan);
    }
    plan
}

fn sync(set: &Value, pods: &[Object], random: &mut fastrand::Rng, plan: &mut ControllerPlan) {
    let owner = Owner {
        object: set,
        api_version: "apps/v1",
        kind: KIND,
    };
    let mut claimed = owner.claim("Pod", pods, plan);
    let status = status(set, &claimed);
    if !is_deleting(set) {
        let wanted = usize::try_from(count_or(set, "/spec/replicas", 1)).unwrap_or(0);
        for _ in claimed.len()..wanted {
            let pod_name = format!("{}-{}", name(set), random_suffix(random));
            let template = &set["spec"]["template"];
            plan.create(
                "Pod",
                new_pod(template, namespace(set), &pod_name, &owner.reference()),
            );
        }
        if claimed.len() > wanted {
            let excess = claimed.len() - wanted;
            claimed.sort_by_cached_key(|pod| deletion_rank(pod));
            for pod in claimed.iter().take(excess) {
                plan.delete("Pod", pod);
            }
        }
    }
    plan.update_status(KIND, set, status);
}

/// The order in which pods are deleted, first to last: not scheduled, pending, not ready, lower deletion cost, ready for
/// less time, younger.
type DeletionRank = (
    bool,
    u8,
    bool,
    i64,
    Reverse<Timestamp>,
    Reverse<Timestamp>,
    String,
);

fn deletion_rank(pod: &Value) -> DeletionRank {
    let scheduled = !text(pod, "/spec/nodeName").is_empty();
    let phase = match text(pod, "/status/phase") {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let ready = is_pod_ready(pod);
    let cost = annotation(pod, DELETION_COST).and_then(|cost| cost.parse().ok());
    let since = condition(pod.get("status"), "Ready").filter(|_| ready);
    let since = since.and_then(|ready| time(ready, "/lastTransitionTime"));
    let created = time(pod, "/metadata/creationTimestamp");
    (
        scheduled,
        phase,
        ready,
        cost.unwrap_or(0),
        Reverse(since.unwrap_or(Timestamp::MIN)),
        Reverse(created.unwrap_or(Timestamp::MIN)),
        uid(pod).to_owned(),
    )
}

fn status(set: &Value, pods: &[Object]) -> Value {
    let mut status = status_of(set);
    let number = |pods: usize| i64::try_from(pods).unwrap_or(i64::MAX);
    let ready = number(pods.iter().filter(|pod| is_pod_ready(pod)).count());
    status["replicas"] = json!(pods.len());
    set_count(&mut status, "fullyLabeledReplicas", number(pods.len()));
    set_count(&mut status, "readyReplicas", ready);
    set_count(&mut status, "availableReplicas", ready);
    set_count(
        &mut status,
        "observedGeneration",
        count(set, "/metadata/generation"),
    );
    status
}
