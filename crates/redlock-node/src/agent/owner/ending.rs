//! Ends the agent once no pod needs it.

use redlock_client::clock;
use redlock_core::fence::State;

use super::Owner;
use crate::{
    agent::pod::Pod,
    ending::{EndReason, GuardedState, may_end},
    table::Heartbeat,
};

impl Owner<'_> {
    /// Notes that the process was asked to end. It continues to freeze its pods, and extends no permit.
    pub(super) fn begin_end(&mut self) {
        if self.ending.is_none() {
            self.ending = Some(clock::now());
            tracing::info!(
                pods = self.pods.len(),
                "the agent ends once a guardian guards its pods or no pod needs it"
            );
        }
    }

    /// Returns the reason why the process may end; `None` if it was not asked to, or while a pod needs it. A guardian that
    /// has reported since guards the pods alone: a guardian that is asked to end no longer reports.
    pub(super) fn may_end(&self) -> Option<EndReason> {
        let since = self.ending?;
        let heartbeat = self.shared.table.heartbeat();
        let succeeded = heartbeat.is_some_and(|heartbeat| {
            heartbeat.is_after(since)
                && heartbeat.node_unable.is_none()
                && self
                    .pods
                    .iter()
                    .all(|(uid, pod)| is_left_to_guardian(uid, pod, &heartbeat))
        });
        may_end(succeeded, self.pods.values().map(guarded_state))
    }
}

/// Reports whether the guardian guards a pod without this process. Only the ability of the guardian counts: an agent that
/// stays for a pod that it cannot freeze itself would let the permits of all other pods end.
fn is_left_to_guardian(uid: &str, pod: &Pod, guardian: &Heartbeat) -> bool {
    let acknowledged = pod.stored.as_ref().is_none_or(|stored| stored.acknowledged);
    pod.placement.is_elsewhere() || (acknowledged && !guardian.unable.contains_key(uid))
}

fn guarded_state(pod: &Pod) -> GuardedState {
    if pod.placement.is_elsewhere() {
        return GuardedState::OutOfReach;
    }
    match pod.record.state() {
        State::Released(_) => GuardedState::Released,
        State::Frozen { .. } | State::Killed { .. } if pod.freeze.is_shown() => GuardedState::Stopped,
        State::Frozen { .. }
        | State::Killed { .. }
        | State::Running(_)
        | State::Confirming { .. }
        | State::Storing { .. } => GuardedState::NeedsGuard,
        // No process of the pod has started.
        State::Waiting { .. } | State::Refused => GuardedState::Stopped,
    }
}
