//! The controller of DaemonSets: one pod on each node.

use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan,
    object::{
        Object, count, is_deleting, is_pod_over, is_pod_ready, label, name, namespace, set_count, status_of,
        text,
    },
    pod_template::{new_pod, random_suffix, set_label, template_hash},
    selector::Owner,
};

const KIND: &str = "DaemonSet";
const HASH: &str = "controller-revision-hash";

pub(super) fn reconcile(
    objects: &dyn ClusterObjects,
    nodes: &[String],
    random: &mut fastrand::Rng,
) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let sets = objects.list(KIND);
    if sets.is_empty() {
        return plan;
    }
    let pods = objects.list("Pod");
    for set in &sets {
        let owner = Owner {
            object: set,
            api_version: "apps/v1",
            kind: KIND,
        };
        let claimed = owner.claim("Pod", &pods, &mut plan);
        let hash = template_hash(&set["spec"]["template"]);
        if !is_deleting(set) {
            place_pods(owner, &claimed, (nodes, &hash), random, &mut plan);
        }
        plan.update_status(KIND, set, status(set, &claimed, nodes.len(), &hash));
    }
    plan
}

fn place_pods(
    owner: Owner<'_>,
    pods: &[Object],
    (nodes, hash): (&[String], &str),
    random: &mut fastrand::Rng,
    plan: &mut ControllerPlan,
) {
    let set = owner.object;
    let rolls = text(set, "/spec/updateStrategy/type") != "OnDelete";
    // One pod at a time is unavailable during an update.
    let mut may_replace = rolls && pods.iter().all(|pod| is_pod_ready(pod) && !is_deleting(pod));
    for node in nodes {
        let here: Vec<_> = pods
            .iter()
            .filter(|pod| text(pod, "/spec/nodeName") == node)
            .collect();
        if here.is_empty() {
            let pod_name = format!("{}-{}", name(set), random_suffix(random));
            let template = &set["spec"]["template"];
            let mut pod = new_pod(template, namespace(set), &pod_name, &owner.reference());
            set_label(&mut pod, HASH, hash);
            // The affinity to the node, with the decision of the scheduler.
            pod["spec"]["nodeName"] = json!(node);
            plan.create("Pod", pod);
        }
        for pod in here.into_iter().filter(|pod| !is_deleting(pod)) {
            let outdated = may_replace && label(pod, HASH) != Some(hash);
            if is_pod_over(pod) || outdated {
                may_replace &= !outdated;
                plan.delete("Pod", pod);
            }
        }
    }
}

fn status(set: &Value, pods: &[Object], nodes: usize, hash: &str) -> Value {
    let mut status = status_of(set);
    let number = |is: &dyn Fn(&Value) -> bool| {
        let pods = pods.iter().filter(|pod| !is_deleting(pod) && is(pod));
        i64::try_from(pods.count()).unwrap_or(i64::MAX)
    };
    let ready = number(&is_pod_ready);
    status["desiredNumberScheduled"] = json!(nodes);
    status["currentNumberScheduled"] = json!(number(&|_| true));
    status["numberMisscheduled"] = json!(0);
    status["numberReady"] = json!(ready);
    for (field, number) in [
        ("observedGeneration", count(set, "/metadata/generation")),
        (
            "updatedNumberScheduled",
            number(&|pod| label(pod, HASH) == Some(hash)),
        ),
        ("numberAvailable", ready),
    ] {
        set_count(&mut status, field, number);
    }
    status
}
