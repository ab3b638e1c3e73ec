//! The writes of the controllers.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    ControllerKind,
    object::{name, namespace, uid},
};

/// The program that writes: the user that the API server sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerWriter {
    ControllerManager,
    Scheduler,
    /// The kubelet of the node of this name.
    Kubelet(String),
}

impl ControllerWriter {
    /// Returns the field manager, such as `kube-controller-manager`; a kubelet is named with its node.
    pub fn name(&self) -> String {
        match self {
            Self::ControllerManager => "kube-controller-manager".to_owned(),
            Self::Scheduler => "kube-scheduler".to_owned(),
            Self::Kubelet(node) => format!("kubelet-{node}"),
        }
    }
}

/// The effect of a deletion on the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    /// The API server adds the finalizer `foregroundDeletion`; the object goes after its dependents.
    Foreground,
}

/// One write of a controller.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerWrite {
    Create {
        kind: String,
        object: Value,
    },
    /// Replaces an object but for its status, if it still has the `resourceVersion` of `object`.
    Update {
        kind: String,
        object: Value,
    },
    /// Replaces the status of an object, if the object still has the `resourceVersion` of `object`.
    UpdateStatus {
        kind: String,
        object: Value,
    },
    /// Sets `spec.nodeName` of a pod that has none, and its condition `PodScheduled`.
    Bind {
        namespace: String,
        name: String,
        uid: String,
        node: String,
    },
    /// Deletes the object if it still has this UID. `grace_seconds` is set for pods only: 0 removes the pod, `None`
    /// means the grace period of the pod.
    Delete {
        kind: String,
        namespace: String,
        name: String,
        uid: String,
        grace_seconds: Option<u64>,
        propagation: Propagation,
    },
    /// Replaces `spec.finalizers` of a Namespace through its subresource `finalize`. A namespace that is being deleted
    /// and has none left is removed.
    FinalizeNamespace {
        object: Value,
    },
}

impl ControllerWrite {
    /// Returns the kind of the object that is written.
    pub fn kind(&self) -> &str {
        match self {
            Self::Create { kind, .. }
            | Self::Update { kind, .. }
            | Self::UpdateStatus { kind, .. }
            | Self::Delete { kind, .. } => kind,
            Self::Bind { .. } => "Pod",
            Self::FinalizeNamespace { .. } => "Namespace",
        }
    }
}

/// One write, with the controller that decided on it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedWrite {
    pub by: ControllerKind,
    pub writer: ControllerWriter,
    pub write: ControllerWrite,
}

/// The writes of one pass of a controller, and the time at which it wants to be called again without a change.
#[derive(Debug, Default)]
pub(super) struct ControllerPlan {
    pub(super) writes: Vec<(ControllerWriter, ControllerWrite)>,
    pub(super) wake: Option<Timestamp>,
}

impl ControllerPlan {
    pub(super) fn push(&mut self, write: ControllerWrite) {
        self.writes.push((ControllerWriter::ControllerManager, write));
    }

    pub(super) fn create(&mut self, kind: &str, object: Value) {
        let kind = kind.to_owned();
        self.push(ControllerWrite::Create { kind, object });
    }

    pub(super) fn update(&mut self, kind: &str, object: Value) {
        let kind = kind.to_owned();
        self.push(ControllerWrite::Update { kind, object });
    }

    /// Writes the status unless the object has it already.
    pub(super) fn update_status(&mut self, kind: &str, object: &Value, status: Value) {
        if object.get("status") != Some(&status) {
            let mut object = object.clone();
            object["status"] = status;
            let kind = kind.to_owned();
            self.push(ControllerWrite::UpdateStatus { kind, object });
        }
    }

    pub(super) fn delete(&mut self, kind: &str, object: &Value) {
        self.delete_by(kind, object, Propagation::Background);
    }

    pub(super) fn delete_by(&mut self, kind: &str, object: &Value, propagation: Propagation) {
        self.push(deletion(kind, object, None, propagation));
    }

    /// Removes a pod at once, as a kubelet does after its processes have ended.
    pub(super) fn remove_pod(&mut self, writer: ControllerWriter, pod: &Value) {
        let write = deletion("Pod", pod, Some(0), Propagation::Background);
        self.writes.push((writer, write));
    }

    pub(super) fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
    }
}

fn deletion(
    kind: &str,
    object: &Value,
    grace_seconds: Option<u64>,
    propagation: Propagation,
) -> ControllerWrite {
    ControllerWrite::Delete {
        kind: kind.to_owned(),
        namespace: namespace(object).to_owned(),
        name: name(object).to_owned(),
        uid: uid(object).to_owned(),
        grace_seconds,
        propagation,
    }
}
