//! What a warden tells of how the targets are.

use super::{TargetReport, TargetTask, goal::Goal, target::Switch};
use crate::api::{
    leader_lock::Enforcement,
    lock_status::{TargetState, TargetStatus},
};

impl TargetTask {
    pub(super) fn report(
        &mut self,
        goal: Goal,
        settled: bool,
        wants_guard: bool,
        trouble: Option<(&'static str, String)>,
    ) -> TargetReport {
        let status = |switch: &Switch| TargetStatus {
            name: switch.name.clone(),
            desired: match goal {
                Goal::Run => TargetState::Active,
                Goal::Stop(_) => TargetState::Standby,
                Goal::Keep(_) => switch.observed,
            },
            observed: switch.observed,
        };
        let all = || self.switches.iter().chain(&self.removed);
        TargetReport {
            key: self.config.key.clone(),
            targets: self.switches.iter().map(status).collect(),
            has: all()
                .filter(|_| self.config.plan.enforcement == Enforcement::Enforce)
                .map(|switch| switch.work.clone())
                .collect(),
            runs: all().any(|switch| switch.is_undone() && switch.observed != TargetState::Standby),
            wants_guard,
            settled,
            trouble,
            unready: self.readiness.too_long,
            notes: std::iter::from_fn(|| self.notes.1.try_recv().ok()).collect(),
        }
    }
}
