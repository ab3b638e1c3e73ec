//! Decides whether the containers of a pod have ended, from its last status. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use serde::{Deserialize, Serialize};

use super::Pod;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

impl PodStatus {
    fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let all = [
            &self.container_statuses,
            &self.init_container_statuses,
            &self.ephemeral_container_statuses,
        ];
        all.into_iter().flatten().flatten()
    }

    /// Reports whether the kubelet reported the terminal phase: only the kubelet writes this reason together
    /// with the phase. The pod garbage collector, which handles pods of lost nodes, sets a phase without such
    /// a condition.
    fn is_reported(&self) -> bool {
        let mut conditions = self.conditions.iter().flatten();
        conditions.any(|condition| {
            condition.type_ == "ContainersReady"
                && condition.status == "False"
                && matches!(condition.reason.as_deref(), Some("PodFailed" | "PodCompleted"))
        })
    }
}

fn is_terminated(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.terminated.is_some())
}

/// Reports whether no status shows that the container was ever started.
fn never_started(container: &ContainerStatus) -> bool {
    let runs = container
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some());
    let ran = container
        .last_state
        .as_ref()
        .is_some_and(|state| state.terminated.is_some());
    !runs && !ran && container.container_id.is_none() && container.restart_count == 0
}

/// Reports whether the pod runs on no node: its kubelet has reported the end of all its containers, or the
/// pod is not bound to a node.
///
/// A kubelet reports the phase `Succeeded` or `Failed` once no container runs or will be restarted, and for a
/// deleted pod before it removes the pod. The phase alone proves nothing, and neither do containers that
/// ended earlier: other controllers set the phase for pods of lost nodes, whose kubelet may have started
/// containers since its last report. A restarted kubelet may reject a pod whose containers run, so a rejected
/// pod has not ended (P-115).
pub(super) fn has_ended(pod: &Pod) -> bool {
    let status = &pod.status;
    if pod.spec.node_name.is_none() {
        return true;
    }
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return false;
    }
    let mut containers = status.containers();
    let none_runs = containers.all(|container| is_terminated(container) || never_started(container));
    status.is_reported() && none_runs
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: Option<&str>, phase: &str, containers: &Value, more: &Value) -> Pod {
        let mut status = json!({"phase": phase, "containerStatuses": containers});
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    fn container(state: &Value, more: &Value) -> Value {
        let mut status =
            json!({"name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 0});
        status["state"] = state.clone();
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        status
    }

    /// The condition that a kubelet writes with a terminal phase.
    fn reported(reason: &str) -> Value {
        json!({"conditions": [{"type": "ContainersReady", "status": "False", "reason": reason}]})
    }

    #[test]
    fn only_the_report_of_a_kubelet_shows_that_a_pod_has_ended() {
        let none = json!({});
        let terminated = container(&json!({"terminated": {"exitCode": 0}}), &none);
        let running = container(&json!({"running": {}}), &none);
        let waiting = container(&json!({"waiting": {"reason": "PodInitializing"}}), &none);
        let backoff = container(
            &json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            &json!({"restartCount": 3, "lastState": {"terminated": {"exitCode": 1}}}),
        );
        let (failed, completed) = (reported("PodFailed"), reported("PodCompleted"));
        let rejected = json!({"message": "Pod was rejected: Node didn't have enough resource: cpu"});
        let mut init_runs = failed.clone();
        init_runs["initContainerStatuses"] = json!([running]);
        let mut ephemeral_runs = failed.clone();
        ephemeral_runs["ephemeralContainerStatuses"] = json!([running]);
        let one = |container: &Value| json!([container]);
        let both = json!([terminated, terminated]);
        let one_of_two = json!([terminated, running]);
        let unreported = json!(null);
        for (what, phase, containers, more, wanted) in [
            ("runs", "Running", one(&running), &none, false),
            ("succeeded", "Succeeded", one(&terminated), &completed, true),
            ("failed", "Failed", both, &failed, true),
            // A restart may be in progress that has not been reported yet.
            ("between restarts", "Running", one(&terminated), &none, false),
            ("one of two", "Failed", one_of_two, &failed, false),
            ("rejected", "Failed", unreported, &rejected, false),
            ("rejected, but runs", "Failed", one(&running), &rejected, false),
            ("failed at its start", "Failed", one(&waiting), &failed, true),
            ("not started yet", "Pending", one(&waiting), &none, false),
            ("in a back-off", "Failed", one(&backoff), &failed, false),
            (
                "an init container runs",
                "Failed",
                one(&waiting),
                &init_runs,
                false,
            ),
            (
                "an ephemeral one runs",
                "Failed",
                one(&terminated),
                &ephemeral_runs,
                false,
            ),
        ] {
            let pod = pod(Some("n"), phase, &containers, more);
            assert_eq!(has_ended(&pod), wanted, "{what}");
        }
        assert!(has_ended(&pod(None, "Pending", &json!([]), &none)), "never bound");
    }

    #[test]
    fn a_phase_that_a_controller_set_shows_no_end() {
        let none = json!({});
        let terminated = container(&json!({"terminated": {"exitCode": 0}}), &none);
        let running = container(&json!({"running": {}}), &none);
        let waiting = container(&json!({"waiting": {"reason": "ContainerCreating"}}), &none);
        let collected = json!({"conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"},
            {"type": "ContainersReady", "status": "True"},
        ]});
        // The node has the out-of-service taint: a controller sets the phase and adds no condition.
        let unmarked = json!({"conditions": [
            {"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady"},
        ]});
        let other = json!({"message": "Pod is terminating due to a taint"});
        for containers in [
            json!(null),
            json!([]),
            json!([running]),
            json!([waiting]),
            // The container may have been restarted since the last report.
            json!([terminated]),
        ] {
            for more in [&none, &collected, &unmarked, &other] {
                let pod = pod(Some("n"), "Failed", &containers, more);
                assert!(!has_ended(&pod), "{containers} {more}");
            }
        }
    }
}
