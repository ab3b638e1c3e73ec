//! Passes the calls of the kubelet to the agent.

use redlock_csi::{PublishError, PublishRequest, UnpublishError, UnpublishRequest, Volumes};
use redlock_node::{
    agent::{self, Agent},
    table::PodName,
};

/// The volumes of the pods of this node.
pub(super) struct Gate {
    agent: Agent,
}

impl Gate {
    pub(super) const fn new(agent: Agent) -> Self {
        Self { agent }
    }
}

impl Volumes for Gate {
    async fn publish(&self, request: PublishRequest) -> Result<(), PublishError> {
        let pod = request.pod;
        let call = agent::PublishRequest {
            pod: PodName {
                namespace: pod.namespace,
                name: pod.name,
                uid: pod.uid,
            },
            lock: request.lock,
            target: request.target.path().to_owned(),
        };
        self.agent.publish(call).await.map_err(|error| refusal(&error))
    }

    async fn unpublish(&self, request: UnpublishRequest) -> Result<(), UnpublishError> {
        let target = &request.target;
        let unpublished = self.agent.unpublish(target.uid(), target.path()).await;
        unpublished.map_err(|error| UnpublishError(sentence(&error)))
    }

    /// The driver also answers calls while no guardian runs: the refusal names the guardian.
    fn ready(&self) -> bool {
        true
    }
}

fn refusal(error: &agent::PublishError) -> PublishError {
    let text = sentence(error);
    match error {
        agent::PublishError::OtherLock { .. } => PublishError::Invalid(text),
        // The record is already stored: the kubelet must unpublish the volume if the pod is deleted now.
        agent::PublishError::Stopped | agent::PublishError::Volume(_) => PublishError::Unavailable(text),
        agent::PublishError::Cgroup(_)
        | agent::PublishError::Lock(_)
        | agent::PublishError::Spec(_)
        | agent::PublishError::Quorum { .. }
        | agent::PublishError::NoPermit { .. }
        | agent::PublishError::CannotFreeze { .. }
        | agent::PublishError::Replaced => PublishError::NotYet(text),
    }
}

/// Returns the error with its causes on one line, as an event needs it.
fn sentence(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", sentence(cause)),
        None => error.to_string(),
    }
}
