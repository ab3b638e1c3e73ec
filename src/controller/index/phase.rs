//! Tracks the phase of a lock, from its first plan until it is given up.

use std::{mem, sync::Arc};

use super::drain::Drain;
use crate::{
    api::{leader_lock::Enforcement, plan::LockPlan},
    controller::target_task::TargetReport,
    lease::BootInstant,
};

#[derive(Debug, Default)]
pub(super) enum LockPhase {
    /// No plan is applied: the lock cannot be contended for, or not yet.
    #[default]
    Idle,
    /// The lock is contended for.
    Contending(Applied, Contention),
    /// The lock cannot be contended for. Targets that an earlier operator may have left running are stopped.
    StoppingLeftovers(Applied),
    /// The lock is being given up, if it is contended for.
    Leaving(Applied, Option<Contention>, DepartureStage),
    /// The lock is given up, and its object is being deleted: only the finalizer may still have to be removed.
    Left,
}

/// The progress of a departure. The lease is kept until the departure is recorded on the API server: its next holder
/// then sees the committed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DepartureStage {
    /// The targets are being stopped.
    Stopping,
    /// The targets are stopped, and the finalizer is being removed; at this time, the lock is given up without the record.
    Recording(BootInstant),
}

/// A plan in force, and the task that switches its targets.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) plan: Arc<LockPlan>,
    pub(super) task: Option<TargetTask>,
}

#[derive(Debug)]
pub(super) struct Contention {
    /// The time since which the lock has been contended for, regardless of the plan.
    pub(super) since: BootInstant,
    /// The drain under way, after which the lease is handed over.
    draining: Option<Drain>,
}

/// The known state of the task that switches the targets of a lock.
#[derive(Debug, Default)]
pub(super) struct TargetTask {
    pub(super) last: Option<TargetReport>,
    /// Whether the task ended unexpectedly, and has to be started again.
    pub(super) broken: bool,
}

impl TargetTask {
    /// Reports whether targets run, or may run.
    pub(super) fn runs(&self) -> bool {
        self.last.as_ref().is_none_or(|report| report.runs)
    }
}

impl LockPhase {
    /// Contends for the lock under this plan. Returns the task that stopped leftovers: it does not know the state of
    /// the lock, and has to end.
    pub(super) fn contend(&mut self, plan: Arc<LockPlan>, now: BootInstant) -> Option<TargetTask> {
        if let Self::Contending(applied, _) = self {
            applied.plan = plan;
            return None;
        }
        let ended = self.take_task();
        let contention = Contention {
            since: now,
            draining: None,
        };
        *self = Self::Contending(Applied { plan, task: None }, contention);
        ended
    }

    pub(super) fn stop_leftovers(&mut self, plan: Arc<LockPlan>) {
        *self = Self::StoppingLeftovers(Applied { plan, task: None });
    }

    /// Ends the stop of leftovers. Returns the task that stopped them.
    pub(super) fn forget_leftovers(&mut self) -> Option<TargetTask> {
        if !matches!(self, Self::StoppingLeftovers(_)) {
            return None;
        }
        let task = self.take_task();
        *self = Self::Idle;
        task
    }

    /// Reverts to idle because the quorum of the lock was not opened. A lock is activated only on a quorum that is open
    /// or being opened, and a quorum closes only when no lock is left on it: so this lock was activated in the present
    /// batch, and has neither a lease nor a target task, stop or drain that could be lost.
    pub(super) fn take_back(&mut self) {
        if matches!(self, Self::Contending(..)) {
            *self = Self::Idle;
        }
    }

    /// Begins to stop the targets, in order to give the lock up.
    pub(super) fn leave(&mut self) {
        *self = match mem::take(self) {
            Self::Contending(applied, contention) => {
                Self::Leaving(applied, Some(contention), DepartureStage::Stopping)
            }
            Self::StoppingLeftovers(applied) => Self::Leaving(applied, None, DepartureStage::Stopping),
            other => other,
        };
    }

    /// Records that the targets are stopped, and that the departure is to be recorded by this time.
    pub(super) fn record_by(&mut self, until: BootInstant) {
        if let Self::Leaving(.., stage) = self {
            *stage = DepartureStage::Recording(until);
        }
    }

    /// Returns the time by which the departure is to be recorded; `None` before the targets are stopped.
    pub(super) const fn recorded_by(&self) -> Option<BootInstant> {
        match self {
            Self::Leaving(.., DepartureStage::Recording(until)) => Some(*until),
            Self::Leaving(.., DepartureStage::Stopping)
            | Self::Idle
            | Self::Contending(..)
            | Self::StoppingLeftovers(_)
            | Self::Left => None,
        }
    }

    /// Reverts a departure whose stop was not carried out: it is decided again.
    pub(super) fn resume(&mut self) {
        *self = match mem::take(self) {
            Self::Leaving(applied, Some(contention), DepartureStage::Stopping) => {
                Self::Contending(applied, contention)
            }
            Self::Leaving(applied, None, DepartureStage::Stopping) => Self::StoppingLeftovers(applied),
            other => other,
        };
    }

    /// Reverts the deletion of the object: it was created again, or etcd was restored from a backup taken before the
    /// deletion.
    pub(super) fn undelete(&mut self) {
        if matches!(self, Self::Left) {
            *self = Self::Idle;
        }
    }

    /// Returns the plan in force, whether or not the lock is contended for.
    pub(super) fn plan(&self) -> Option<&Arc<LockPlan>> {
        self.applied().map(|applied| &applied.plan)
    }

    /// Returns the plan under which the lock is contended for.
    pub(super) fn active_plan(&self) -> Option<&Arc<LockPlan>> {
        self.contention().and_then(|_| self.plan())
    }

    pub(super) fn contention(&self) -> Option<&Contention> {
        match self {
            Self::Contending(_, contention) | Self::Leaving(_, Some(contention), _) => Some(contention),
            Self::Idle | Self::StoppingLeftovers(_) | Self::Leaving(_, None, _) | Self::Left => None,
        }
    }

    /// Reports whether the lock is being given up, so that no further decision about it is made.
    pub(super) const fn is_leaving(&self) -> bool {
        matches!(self, Self::Leaving(..) | Self::Left)
    }

    /// Returns the drain under way.
    pub(super) fn draining(&self) -> Option<&Drain> {
        self.contention()?.draining.as_ref()
    }

    pub(super) fn drain(&mut self, drain: Drain) {
        if let Self::Contending(_, contention) | Self::Leaving(_, Some(contention), _) = self {
            contention.draining = Some(drain);
        }
    }

    /// Ends this drain. A drain that began later stays.
    pub(super) fn end_drain(&mut self, ended: &Drain) {
        if let Self::Contending(_, contention) | Self::Leaving(_, Some(contention), _) = self {
            contention.draining.take_if(|draining| draining == ended);
        }
    }

    pub(super) fn task(&self) -> Option<&TargetTask> {
        self.applied()?.task.as_ref()
    }

    pub(super) fn task_mut(&mut self) -> Option<&mut TargetTask> {
        self.applied_mut()?.task.as_mut()
    }

    /// Reports whether targets run, or may run. The target task starts shortly after the lock becomes active; until
    /// then, each target that has to be undone may run.
    pub(super) fn may_run(&self) -> bool {
        match self.task() {
            Some(task) => task.runs(),
            None => self
                .plan()
                .is_some_and(|plan| plan.guards() && plan.enforcement == Enforcement::Enforce),
        }
    }

    /// Returns the last report of the target task.
    pub(super) fn report(&self) -> Option<&TargetReport> {
        self.task()?.last.as_ref()
    }

    /// Records that a task was started, replacing an earlier one.
    pub(super) fn start_task(&mut self) {
        if let Some(applied) = self.applied_mut() {
            applied.task = Some(TargetTask::default());
        }
    }

    pub(super) fn take_task(&mut self) -> Option<TargetTask> {
        self.applied_mut()?.task.take()
    }

    fn applied(&self) -> Option<&Applied> {
        match self {
            Self::Contending(applied, _) | Self::StoppingLeftovers(applied) | Self::Leaving(applied, ..) => {
                Some(applied)
            }
            Self::Idle | Self::Left => None,
        }
    }

    fn applied_mut(&mut self) -> Option<&mut Applied> {
        match self {
            Self::Contending(applied, _) | Self::StoppingLeftovers(applied) | Self::Leaving(applied, ..) => {
                Some(applied)
            }
            Self::Idle | Self::Left => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::drain::Purpose;
    use super::*;
    use crate::api::plan::tests::plan_of;

    const TARGET: &str = ", targets: [{name: t, action: Scale, stopSeconds: 5, ref: {apiVersion: apps/v1, kind: Deployment, name: t}}]";

    fn contending(more: &str) -> LockPhase {
        let mut phase = LockPhase::default();
        phase.contend(Arc::new(plan_of(more)), BootInstant::default());
        phase
    }

    #[test]
    fn target_without_a_task_may_run() {
        assert!(!LockPhase::Idle.may_run());
        assert!(!contending("").may_run());
        let mut phase = contending(TARGET);
        assert!(phase.may_run(), "no task has read it");
        phase.start_task();
        assert!(phase.may_run(), "the task has not reported");
    }

    #[test]
    fn departure_is_reverted_only_before_the_targets_are_stopped() {
        let mut phase = contending(TARGET);
        phase.leave();
        assert!(phase.is_leaving() && phase.recorded_by().is_none());
        phase.resume();
        assert!(matches!(phase, LockPhase::Contending(..)));
        phase.leave();
        let until = BootInstant::from_nanos(1);
        phase.record_by(until);
        phase.resume();
        assert_eq!(phase.recorded_by(), Some(until));
    }

    #[test]
    fn end_of_a_drain_leaves_a_newer_one() {
        let drain = |number| Drain {
            purpose: Purpose::Unready,
            number,
        };
        let mut phase = contending("");
        phase.drain(drain(8));
        phase.end_drain(&drain(7));
        assert_eq!(phase.draining(), Some(&drain(8)));
        phase.end_drain(&drain(8));
        assert_eq!(phase.draining(), None);
    }
}
