//! Defines the interface of the part that decides when a pod may start.

use std::future::Future;

use crate::target::Target;

/// The pod of a volume, from the volume context that the kubelet adds (`podInfoOnMount`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A checked call of NodePublishVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRequest {
    pub pod: Pod,
    /// The LeaderLock in the namespace of the pod.
    pub lock: String,
    pub volume_id: String,
    pub target: Target,
}

/// A checked call of NodeUnpublishVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpublishRequest {
    pub volume_id: String,
    /// Names the UID of the pod; the kubelet passes nothing else about the pod.
    pub target: Target,
}

/// The reason why a pod does not start now. The text of a variant is one sentence, which is shown in the
/// event FailedMount of the pod.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The volume of this pod can never be published.
    #[error("{0}")]
    Invalid(String),
    /// The pod must not start yet: its cluster does not hold the lock, or a person must change a condition.
    #[error("{0}")]
    NotYet(String),
    /// The state is not known yet. The kubelet keeps the directory and tries again.
    #[error("{0}")]
    Unavailable(String),
}

/// A volume that could not be unpublished. The kubelet tries again, and the pod stays Terminating until then.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnpublishError(pub String);

/// Decides when a pod may start, and follows the pod until its volume is unpublished.
pub trait Volumes: Send + Sync + 'static {
    /// Returns when the pod may start. For a known pod, returns at once: a restarted kubelet publishes its
    /// volumes again. The directory of the target is created after the call, unless the call has created it.
    ///
    /// The call continues if the kubelet gives it up, and its result is that of the next call. The call is
    /// dropped at an await point only if the volume is unpublished in the meantime, and
    /// [`unpublish`](Self::unpublish) follows, or if the driver ends.
    ///
    /// The kubelet does not unpublish a volume that was refused as `Invalid` or `NotYet`, even when the pod
    /// was deleted during the call: such a refusal must leave no state.
    fn publish(&self, request: PublishRequest) -> impl Future<Output = Result<(), PublishError>> + Send;

    /// Forgets the pod of the volume, and removes its directory with all that the kubelet created in it. An unknown
    /// volume, or one without a directory, is not an error.
    fn unpublish(&self, request: UnpublishRequest)
    -> impl Future<Output = Result<(), UnpublishError>> + Send;

    /// Reports whether volumes can be published, for Probe.
    fn ready(&self) -> bool;
}
