//! Reports the state of the targets after a step.

use super::{TargetReport, TargetTask, goal::Goal, leases::observes, outcome::Outcome, target::Target};
use crate::{
    api::{
        leader_lock::Enforcement,
        lock_status::{TargetState, TargetStatus},
    },
    clock,
    controller::planted::{WorldMistake, plants},
    lease::BootInstant,
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
        let removed = |target: &Target| TargetStatus {
            name: target.name.clone(),
            desired: TargetState::Standby,
            observed: target.observed,
        };
        let all = || self.targets.iter().chain(&self.removed);
        TargetReport {
            key: self.config.key.clone(),
            targets: self.targets.iter().map(status).collect(),
            removed: self.removed.iter().map(removed).collect(),
            has: all()
                .filter(|_| self.config.plan.enforcement == Enforcement::Enforce)
                .map(|target| target.work.clone())
                .collect(),
            runs: !self.kinds.is_refused()
                && all().any(|target| target.is_undone() && target.observed != TargetState::Standby),
            wants_guard: outcome.wants_guard || self.lacks_guard(),
            wants_read: self.wants_read(),
            takeover: self.leases.takeover(clock::now()),
            settled: outcome.settled,
            trouble: outcome.trouble,
            unswitchable: self.kinds.is_refused(),
            unready: self.readiness.too_long,
            nodes: self.fencing.as_ref().and_then(|fencing| fencing.pods.nodes()),
            notes: std::iter::from_fn(|| self.notes.1.try_recv().ok()).collect(),
        }
    }

    /// Returns the time at or after which a consistent read of the object has to be sent, if one is missing.
    pub(super) fn wants_read(&self) -> Option<BootInstant> {
        let read = self.config.permissions.read;
        if plants(WorldMistake::DepartsUnrecorded) {
            return None;
        }
        let own = !observes(&self.config.plan) && self.stop_requests.active().is_none();
        let won = self.leases.won().filter(|_| own);
        let won = won.filter(|won| read.is_none_or(|read| read < *won));
        won.max(self.read_gate.wants(read))
    }

    /// Reports whether the finalizer is missing while this process holds the lock: a target may run, whether or not a
    /// start is postponed.
    fn lacks_guard(&self) -> bool {
        let permissions = self.config.permissions;
        self.leases.won().is_some()
            && self.kinds.allow_start()
            && !plants(WorldMistake::GuardsLate)
            && permissions.starts
            && !permissions.off
            && !permissions.guarded
            && self.wants_read().is_none()
            && self.targets.iter().chain(&self.removed).any(Target::is_undone)
    }
}
