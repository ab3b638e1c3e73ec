//! Reports the state of the targets after a step.

use super::{TargetReport, TargetTask, goal::Goal, outcome::Outcome, target::Target};
use crate::api::{
    leader_lock::Enforcement,
    lock_status::{TargetState, TargetStatus},
};

impl TargetTask {
    pub(super) fn report(&mut self, goal: Goal, outcome: Outcome) -> TargetReport {
        let status = |target: &Target| TargetStatus {
            name: target.name.clone(),
            desired: match goal {
                Goal::Run => TargetState::Active,
                Goal::Stop(_) => TargetState::Standby,
                Goal::Keep(_) => target.observed,
            },
            observed: target.observed,
        };
        let all = || self.targets.iter().chain(&self.removed);
        TargetReport {
            key: self.config.key.clone(),
            targets: self.targets.iter().map(status).collect(),
            has: all()
                .filter(|_| self.config.plan.enforcement == Enforcement::Enforce)
                .map(|target| target.work.clone())
                .collect(),
            runs: all().any(|target| target.is_undone() && target.observed != TargetState::Standby),
            wants_guard: outcome.wants_guard,
            settled: outcome.settled,
            trouble: outcome.trouble,
            unready: self.readiness.too_long,
            nodes: self.fencing.as_ref().and_then(|fencing| fencing.pods.nodes()),
            notes: std::iter::from_fn(|| self.notes.1.try_recv().ok()).collect(),
        }
    }
}
