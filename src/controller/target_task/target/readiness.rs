//! Decides whether a target is ready, and whether its start was refused.

use tokio::time;

use super::{PATIENCE, Target};
use crate::{
    api::lock_status::TargetState,
    clock,
    controller::{
        planted::{WorldMistake, plants},
        target_task::{ready::PodsReady, turns::Lane},
    },
    targets::{ConditionReason, Step},
};

impl Target {
    /// Returns whether the running pods of the target are ready.
    pub(in crate::controller::target_task) async fn ready(&mut self) -> PodsReady {
        self.turns.count(Lane::Start, clock::now());
        match time::timeout(PATIENCE, self.action.ready()).await {
            Ok(Ok(Some(true))) => PodsReady::Ready,
            Ok(Ok(None | Some(false))) if self.is_start_refused() => PodsReady::Unready,
            Ok(Err(error)) if self.is_start_refused() && error.is_refusal() => PodsReady::Unready,
            Ok(Ok(None)) => PodsReady::NotApplicable,
            Ok(Ok(Some(false))) => PodsReady::Unready,
            Ok(Err(_)) | Err(_) => PodsReady::Unknown,
        }
    }

    /// Reports whether the last start failed by an answer of the API server: the object is missing, or a request was refused.
    pub(in crate::controller::target_task) fn is_start_refused(&self) -> bool {
        self.start_refused && !plants(WorldMistake::CountsStartedTargets)
    }
}

/// Reports whether a target does not run because its object is missing, or because a request was refused.
pub(super) fn is_start_refused(step: &Step) -> bool {
    let Step::Trouble(trouble) = step else {
        return false;
    };
    trouble.state != TargetState::Active
        && matches!(
            trouble.reason,
            ConditionReason::TargetNotFound
                | ConditionReason::Forbidden
                | ConditionReason::RequestDenied
                | ConditionReason::KindUnknown
                | ConditionReason::NoScaleSubresource
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_refused_where_the_target_does_not_run_and_the_server_gave_the_reason() {
        let trouble = |state, reason| Step::trouble(state, reason, "no".into());
        for (step, refused) in [
            (
                trouble(TargetState::Standby, ConditionReason::TargetNotFound),
                true,
            ),
            (
                trouble(TargetState::Unknown, ConditionReason::RequestDenied),
                true,
            ),
            // It runs, and only a watch is not permitted.
            (trouble(TargetState::Active, ConditionReason::Forbidden), false),
            (
                trouble(TargetState::Unknown, ConditionReason::TargetUnreachable),
                false,
            ),
            (Step::Working(TargetState::Standby), false),
            (Step::Done, false),
        ] {
            assert_eq!(is_start_refused(&step), refused, "{step:?}");
        }
    }
}
