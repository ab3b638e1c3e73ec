//! Decides whether the containers of a pod have ended, by its last status. Pure.

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

    /// Reports whether the controller that collects pods of lost nodes set the phase. It knows nothing of the containers:
    /// they may run.
    fn is_collected(&self) -> bool {
        let mut conditions = self.conditions.iter().flatten();
        conditions.any(|condition| {
            condition.type_ == "DisruptionTarget" && condition.reason.as_deref() == Some("DeletionByPodGC")
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

/// Reports whether the pod runs nowhere: its kubelet has reported the end of all its containers, or it is bound to no node.
///
/// A kubelet reports the phase `Succeeded` or `Failed` once no container runs or is started again, also of a deleted pod
/// before it removes the pod. A phase alone proves nothing: other controllers set it for pods of lost nodes.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let status = &pod.status;
    if pod.spec.node_name.is_none() {
        return true;
    }
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return false;
    }
    let mut containers = status.containers();
    if status.is_collected() {
        // What the kubelet of a lost node did since its last report is not known.
        return status.containers().next().is_some() && containers.all(is_terminated);
    }
    // A pod that its kubelet refused has no container that was started.
    containers.all(|container| is_terminated(container) || never_started(container))
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
        let collected = json!({"conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"},
        ]});
        let node = Some("n");
        for (what, pod, wanted) in [
            ("never bound", pod(None, "Pending", &json!([]), &none), true),
            ("runs", pod(node, "Running", &json!([running]), &none), false),
            (
                "succeeded",
                pod(node, "Succeeded", &json!([terminated]), &none),
                true,
            ),
            (
                "failed",
                pod(node, "Failed", &json!([terminated, terminated]), &none),
                true,
            ),
            // A restart may be under way that was not reported yet.
            (
                "between restarts",
                pod(node, "Running", &json!([terminated]), &none),
                false,
            ),
            (
                "one of two",
                pod(node, "Failed", &json!([terminated, running]), &none),
                false,
            ),
            (
                "refused by its kubelet",
                pod(node, "Failed", &json!(null), &none),
                true,
            ),
            (
                "failed while it started",
                pod(node, "Failed", &json!([waiting]), &none),
                true,
            ),
            (
                "not started yet",
                pod(node, "Pending", &json!([waiting]), &none),
                false,
            ),
            (
                "in a back-off",
                pod(node, "Failed", &json!([backoff]), &none),
                false,
            ),
            (
                "of a lost node",
                pod(node, "Failed", &json!([running]), &collected),
                false,
            ),
            (
                "of a lost node, starting",
                pod(node, "Failed", &json!([waiting]), &collected),
                false,
            ),
            (
                "of a lost node, unreported",
                pod(node, "Failed", &json!(null), &collected),
                false,
            ),
            (
                "of a lost node, ended before",
                pod(node, "Failed", &json!([terminated]), &collected),
                true,
            ),
            (
                "an init container runs",
                pod(
                    node,
                    "Failed",
                    &json!([waiting]),
                    &json!({"initContainerStatuses": [running]}),
                ),
                false,
            ),
            (
                "an ephemeral container runs",
                pod(
                    node,
                    "Failed",
                    &json!([terminated]),
                    &json!({"ephemeralContainerStatuses": [running]}),
                ),
                false,
            ),
        ] {
            assert_eq!(has_ended(&pod), wanted, "{what}");
        }
    }
}
