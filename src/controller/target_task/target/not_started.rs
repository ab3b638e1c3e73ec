//! Decides why a target is not started: its kind cannot be switched, or its pod template is not known.

use tokio::time;

use super::{PATIENCE, Target, UNANSWERED};
use crate::{
    api::{
        lock_status::TargetState,
        plan::{AwaitedTemplate, TargetPlan},
    },
    clock,
    controller::{
        planted::{WorldMistake, plants},
        problem::Problem,
        target_task::turns::Lane,
    },
    targets::{ConditionReason, Step, check_kind},
};

/// Whether objects of the kind of a target can be switched in this cluster.
#[derive(Debug)]
pub(in crate::controller::target_task) enum KindFound {
    Served,
    Refused(Problem),
    /// The discovery failed.
    Unknown(Problem),
}

/// Returns why the pod template of a target is not known.
pub(super) fn awaits(declared: &TargetPlan) -> Option<AwaitedTemplate> {
    declared
        .awaits
        .filter(|_| !plants(WorldMistake::DeclaresAssumedTime))
}

impl Target {
    pub(in crate::controller::target_task) async fn find_kind(&self) -> KindFound {
        let problem = |reason, text: String| Problem::new(reason, format!("target {}: {text}", self.name));
        match time::timeout(PATIENCE, check_kind(&self.context, &self.work)).await {
            Ok(Ok(())) => KindFound::Served,
            Ok(Err(error)) if error.is_about_kind() => {
                KindFound::Refused(problem(error.reason(), error.to_string()))
            }
            Ok(Err(error)) => KindFound::Unknown(problem(error.reason(), error.to_string())),
            Err(_) => {
                let text = UNANSWERED.to_owned();
                KindFound::Unknown(problem(ConditionReason::TargetUnreachable, text))
            }
        }
    }

    /// Returns the step of a target whose template is not known, so that it is not started. The plan changes when the
    /// template is read.
    pub(super) async fn await_template(&mut self, awaits: AwaitedTemplate) -> Step {
        if awaits == AwaitedTemplate::Unread {
            self.turns.forgo();
            return Step::Working(self.observed);
        }
        if let Some(trouble) = self.back_off.rests(Lane::Start, clock::now()) {
            self.turns.forgo();
            return trouble;
        }
        if self.turns.wait(Lane::Start, clock::now()) {
            return Step::Working(self.observed);
        }
        let seen = time::timeout(PATIENCE, self.action.observe()).await;
        let missing = |state| {
            let left = if state == TargetState::Standby {
                ""
            } else {
                ", and its pods have not ended"
            };
            let text = format!("its object does not exist{left}; the operator starts it as soon as it does");
            Step::trouble(state, ConditionReason::TargetNotFound, text)
        };
        let end = seen.map(|seen| seen.map(missing));
        self.finish(end, Lane::Start, clock::now())
    }
}
