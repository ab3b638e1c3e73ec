//! Judges the object of a pod for the agent of its node. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use redlock_node::resolver::{ContainersShown, ObjectShown};

use crate::{lease::fence::Presence, targets::RuntimeClasses};

fn is_of(object: &Pod, uid: &str) -> bool {
    object.metadata.uid.as_deref() == Some(uid)
}

/// Returns whether the object of a pod exists, and whether such a pod can be fenced. `object` has the name of the pod.
pub(super) fn shown(object: Option<&Pod>, uid: &str, allowed: &RuntimeClasses) -> ObjectShown {
    // Another pod may have the name.
    let Some(object) = object.filter(|object| is_of(object, uid)) else {
        return ObjectShown::Presence(Presence::Gone);
    };
    let class = object
        .spec
        .as_ref()
        .and_then(|spec| spec.runtime_class_name.as_deref());
    match allowed.refused(class) {
        None => ObjectShown::Presence(Presence::Exists),
        Some(class) => ObjectShown::CannotBeFenced {
            reason: format!(
                "it has runtimeClassName {class:?}, and a freeze may not reach the processes of such a runtime; add it to \
                 fencing.runtimeClasses of the chart if its containers are processes in the cgroup of their pod"
            ),
        },
    }
}

/// Returns whether a container of a pod runs. A pod without an object has no status that shows one.
pub(super) fn containers(object: Option<&Pod>, uid: &str) -> ContainersShown {
    let status = object
        .filter(|object| is_of(object, uid))
        .and_then(|object| object.status.as_ref());
    let Some(status) = status else {
        return ContainersShown::Unknown;
    };
    let of_kind = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let runs = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    };
    if of_kind.into_iter().flatten().flatten().any(runs) {
        ContainersShown::Run
    } else {
        ContainersShown::NoneRuns
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &serde_json::Value, status: &serde_json::Value) -> Pod {
        let pod = json!({"metadata": {"name": "report-0", "uid": "uid-1"}, "spec": spec, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_of_another_uid_or_runtime_does_not_start() {
        let allowed: RuntimeClasses = std::iter::once("nvidia".to_owned()).collect();
        let of_class = |class| pod(&json!({"containers": [], "runtimeClassName": class}), &json!({}));
        let exists = ObjectShown::Presence(Presence::Exists);
        let gone = ObjectShown::Presence(Presence::Gone);
        assert_eq!(shown(Some(&of_class(None::<&str>)), "uid-1", &allowed), exists);
        assert_eq!(shown(Some(&of_class(Some("nvidia"))), "uid-1", &allowed), exists);
        assert_eq!(shown(Some(&of_class(None)), "uid-2", &allowed), gone);
        assert_eq!(shown(None, "uid-1", &allowed), gone);
        let refused = shown(Some(&of_class(Some("kata"))), "uid-1", &allowed);
        assert!(
            matches!(&refused, ObjectShown::CannotBeFenced { reason } if reason.contains("kata")),
            "{refused:?}"
        );
    }

    #[test]
    fn a_container_of_any_kind_that_runs_is_shown() {
        let running = json!([{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]);
        let waiting = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}}}]);
        let spec = json!({"containers": []});
        for (status, wanted) in [
            (json!({}), ContainersShown::NoneRuns),
            (json!({"containerStatuses": waiting}), ContainersShown::NoneRuns),
            (json!({"containerStatuses": running}), ContainersShown::Run),
            (
                json!({"containerStatuses": waiting, "initContainerStatuses": running}),
                ContainersShown::Run,
            ),
            (
                json!({"ephemeralContainerStatuses": running}),
                ContainersShown::Run,
            ),
        ] {
            let pod = pod(&spec, &status);
            assert_eq!(containers(Some(&pod), "uid-1"), wanted, "{status}");
            assert_eq!(containers(Some(&pod), "uid-2"), ContainersShown::Unknown);
        }
        assert_eq!(containers(None, "uid-1"), ContainersShown::Unknown);
    }
}
