//! Emits an event about each pod that is frozen, thawed or killed.

use k8s_openapi::api::core::v1::ObjectReference;
use redlock_node::agent::{Change, ChangeKind};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    api::vocabulary::EventReason,
    controller::events::{EventRecord, Events},
};

/// Runs until the agent has ended, and then waits: the end of the agent is reported by its task.
pub(super) async fn emit(mut changes: broadcast::Receiver<Change>, events: Events, node: String) {
    loop {
        match changes.recv().await {
            Ok(change) => {
                if let Some(record) = record(&change, &node) {
                    events.emit(record);
                }
            }
            Err(RecvError::Lagged(count)) => {
                tracing::debug!(count, "events dropped: too many pods changed at once");
            }
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Returns the event of a change. A start has no event, because the kubelet emits its own.
fn record(change: &Change, node: &str) -> Option<EventRecord> {
    let lock = &change.lock;
    let (reason, note) = match change.kind {
        ChangeKind::Started => return None,
        ChangeKind::Fenced => (
            EventReason::Fenced,
            format!("node {node} froze the pod: the masters no longer guarantee lock {lock} to this cluster"),
        ),
        ChangeKind::NotFrozen => (
            EventReason::NotFrozen,
            format!(
                "the permit of lock {lock} has ended, and node {node} does not show the pod as frozen: {}; its processes may run \
                 while another cluster runs the same work",
                change.why
            ),
        ),
        ChangeKind::NotFenced => (
            EventReason::NotFenced,
            format!(
                "node {node} cannot fence the pod for lock {lock}, and extends its permit no further: {}",
                change.why
            ),
        ),
        ChangeKind::Thawed => (
            EventReason::Thawed,
            format!("node {node} thawed the pod: the masters guarantee lock {lock} to this cluster again"),
        ),
        ChangeKind::Released => (
            EventReason::FenceReleased,
            format!(
                "node {node} lets the pod run without a permit of lock {lock}, released by hand: {}; another cluster may run \
                 the same work",
                change.why
            ),
        ),
        ChangeKind::Killed => (
            EventReason::FencedKilled,
            format!(
                "node {node} killed the processes of the pod: another cluster may have held lock {lock} meanwhile, or \
                 the pod was frozen for too long; its containers start afresh when this cluster holds the lock"
            ),
        ),
    };
    Some(EventRecord {
        reason,
        object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(change.pod.namespace.clone()),
            name: Some(change.pod.name.clone()),
            uid: Some(change.pod.uid.clone()),
            ..ObjectReference::default()
        },
        note,
    })
}
