//! One target, and how far it is from where it should be.

use std::time::Duration;

use tokio::time;

use super::ready::Found;
use crate::{
    api::{
        lock_status::TargetState,
        plan::{TargetPlan, TargetWork},
    },
    lease::Moment,
    targets::{Action, Changes, Leave, Site, Step, TargetError, Trouble, action, is_same},
};

/// An API server that takes longer is not waited for: the next step looks again, and a lease may end meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Switch {
    pub(super) name: String,
    pub(super) observed: TargetState,
    pub(super) work: TargetWork,
    action: Box<dyn Action>,
}

impl Switch {
    pub(super) fn new(site: Site, target: &TargetPlan) -> Self {
        Self {
            name: target.name.clone(),
            observed: TargetState::Unknown,
            work: target.work.clone(),
            action: action(site, &target.work),
        }
    }

    /// Whether this is about the same object, switched in the same way; its numbers may be others, and its name, too,
    /// unless nothing is lost by beginning anew.
    pub(super) fn does(&self, target: &TargetPlan) -> bool {
        is_same(&self.work, &target.work) && (self.is_undone() || self.name == target.name)
    }

    /// Whether it must be undone before another cluster may begin.
    pub(super) fn is_undone(&self) -> bool {
        self.work.is_undone()
    }

    /// As it is declared now.
    pub(super) fn declared(mut self, target: &TargetPlan) -> Self {
        self.name.clone_from(&target.name);
        self.work.clone_from(&target.work);
        self.action.declare(&target.work);
        self
    }

    pub(super) fn changes(&self) -> Changes {
        self.action.changes()
    }

    /// Only looks.
    pub(super) async fn look(&mut self) {
        let looked = time::timeout(PATIENCE, self.action.look()).await;
        self.observed = match looked {
            Ok(Ok(state)) => state,
            Ok(Err(_)) | Err(_) => TargetState::Unknown,
        };
    }

    /// Whether what runs of it is ready.
    pub(super) async fn ready(&mut self) -> Found {
        match time::timeout(PATIENCE, self.action.ready()).await {
            Ok(Ok(None)) => Found::NoMatter,
            Ok(Ok(Some(true))) => Found::Ready,
            Ok(Ok(Some(false))) => Found::Unready,
            Ok(Err(_)) | Err(_) => Found::Unknown,
        }
    }

    pub(super) async fn start(&mut self, leave: &Leave) -> Step {
        let end = time::timeout(PATIENCE, self.action.start(leave)).await;
        self.found(end, TargetState::Active)
    }

    pub(super) async fn stop(&mut self, by: Option<Moment>) -> Step {
        let end = time::timeout(PATIENCE, self.action.stop(by)).await;
        self.found(end, TargetState::Standby)
    }

    /// What a step says of how the target is now.
    fn found(
        &mut self,
        end: Result<Result<Step, TargetError>, time::error::Elapsed>,
        goal: TargetState,
    ) -> Step {
        let step = match end {
            Ok(Ok(step)) => step,
            Ok(Err(error)) => Step::trouble(TargetState::Unknown, error.reason(), error.to_string()),
            Err(_) => {
                let text = "the API server does not answer in time".to_owned();
                Step::trouble(TargetState::Unknown, "TargetUnreachable", text)
            }
        };
        match step {
            Step::Done | Step::Waiting(_) => {
                self.observed = goal;
                step
            }
            Step::Working(state) => {
                self.observed = state;
                Step::Working(state)
            }
            Step::Trouble(Trouble { state, reason, text }) => {
                self.observed = state;
                Step::trouble(state, reason, format!("target {}: {text}", self.name))
            }
        }
    }
}
