//! Decides when a process that was asked to end may end. Pure.
//!
//! A shutdown of the node asks agent and guardian to end at once, while their pods may still run.

/// The reason why a process may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// Another process has reported since that it guards the pods.
    Succeeded,
    /// No pod has a record.
    NoRecord,
    /// Each permit has ended, and no process of a pod runs.
    AllStopped,
}

/// A pod with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardedState {
    /// The permit has not ended, or the pod is not known to stand still.
    NeedsGuard,
    /// The permit has ended, and the cgroup shows that no process of the pod runs.
    Stopped,
    /// An administrator lets the pod run without a permit.
    Released,
    /// The processes of the pod run outside its cgroup, where no freeze of this process reaches them.
    OutOfReach,
}

/// Returns the reason why a process that was asked to end may end now; `None` while a pod needs it (P-117).
pub(crate) fn may_end(succeeded: bool, pods: impl IntoIterator<Item = GuardedState>) -> Option<EndReason> {
    if succeeded {
        return Some(EndReason::Succeeded);
    }
    let mut reason = EndReason::NoRecord;
    for pod in pods {
        match pod {
            GuardedState::NeedsGuard => return None,
            GuardedState::Stopped => reason = EndReason::AllStopped,
            GuardedState::Released | GuardedState::OutOfReach => {}
        }
    }
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_only_where_no_pod_needs_it() {
        use GuardedState::{NeedsGuard, OutOfReach, Released, Stopped};
        for (succeeded, pods, wanted) in [
            (false, vec![], Some(EndReason::NoRecord)),
            (false, vec![Released], Some(EndReason::NoRecord)),
            (false, vec![Stopped, Released], Some(EndReason::AllStopped)),
            (false, vec![OutOfReach], Some(EndReason::NoRecord)),
            (false, vec![Stopped, NeedsGuard], None),
            (false, vec![OutOfReach, NeedsGuard], None),
            (true, vec![NeedsGuard], Some(EndReason::Succeeded)),
        ] {
            assert_eq!(may_end(succeeded, pods.clone()), wanted, "{succeeded} {pods:?}");
        }
    }
}
