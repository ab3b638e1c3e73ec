//! The tasks that switch targets.

use super::Outside;
use crate::{
    api::{
        lock_status::{TargetState, TargetStatus},
        plan::LockPlan,
    },
    controller::{
        index::{AfterStop, Input, Views},
        object::ObjectKey,
        target_task::{StopRequest, TargetReport},
    },
};

impl Outside {
    /// The tasks that switch targets do their work.
    pub(super) fn switch(&mut self) -> Vec<Input> {
        let keys: Vec<ObjectKey> = self.tasks.keys().cloned().collect();
        let mut inputs = Vec::new();
        for key in keys {
            if self.calm || self.random.u8(..3) > 0 {
                inputs.extend(self.switch_one(&key));
            }
        }
        inputs
    }

    pub(super) fn switch_one(&mut self, key: &ObjectKey) -> Vec<Input> {
        let mut inputs = Vec::new();
        let Some(task) = self.tasks.get(key).filter(|task| !task.broken).cloned() else {
            return inputs;
        };
        let view = self.lock(&task.plan.quorum, &task.plan.lock_name, self.now);
        let held = view.as_ref().is_some_and(|view| view.authority.is_some());
        let sees = self.has_majority(&task.plan.quorum);
        let ours = view.as_ref().and_then(|view| view.holder.as_ref());
        let ours = ours.is_some_and(|holder| holder.cluster == self.cluster);
        let mut wants_guard = false;
        if task.hands.off {
            if let Some((_, after)) = self.take_stop(key) {
                inputs.push(stopped(key, after, false));
            }
        } else if let Some((halt, after)) = task.stop {
            let works = self.calm || self.random.bool();
            let late = self.now >= halt.by;
            if works && !self.server.down {
                self.running.remove(key);
                self.take_stop(key);
                inputs.push(stopped(key, after, true));
            } else if late {
                self.take_stop(key);
                inputs.push(stopped(key, after, false));
            }
        } else if held && !task.plan.targets.is_empty() {
            if task.hands.guarded {
                self.running.insert(key.clone());
            } else {
                wants_guard = true;
            }
        } else if (sees && !ours && !held) || task.plan.targets.is_empty() {
            self.running.remove(key);
        }
        let report = self.report(key, &task.plan, wants_guard);
        if let Some(task) = self.tasks.get_mut(key)
            && task.last.as_ref() != Some(&report)
        {
            task.last = Some(report.clone());
            inputs.insert(0, Input::Report(report));
        }
        inputs
    }

    /// The task of one lock panics. Its targets stay as they are.
    pub(super) fn break_task(&mut self) {
        let keys: Vec<ObjectKey> = self.tasks.keys().cloned().collect();
        let Some(key) = self.random.choice(keys) else {
            return;
        };
        if let Some((_, after)) = self.take_stop(&key) {
            self.answer(stopped(&key, after, false));
        }
        if let Some(task) = self.tasks.get_mut(&key) {
            task.broken = true;
        }
    }

    pub(super) fn take_stop(&mut self, key: &ObjectKey) -> Option<(StopRequest, AfterStop)> {
        self.tasks.get_mut(key)?.stop.take()
    }

    pub(super) fn report(&self, key: &ObjectKey, plan: &LockPlan, wants_guard: bool) -> TargetReport {
        let runs = self.running.contains(key);
        let observed = if runs {
            TargetState::Active
        } else {
            TargetState::Standby
        };
        let targets = plan.targets.iter().map(|target| TargetStatus {
            name: target.name.clone(),
            desired: observed,
            observed,
        });
        let has = plan.targets.iter().filter(|_| plan.switches());
        TargetReport {
            key: key.clone(),
            targets: targets.collect(),
            has: has.map(|target| target.work.clone()).collect(),
            runs,
            wants_guard,
            settled: true,
            trouble: None,
            unready: false,
            notes: Vec::new(),
        }
    }

    pub(super) fn stop_targets(&mut self, key: &ObjectKey, halt: StopRequest, after: AfterStop) {
        if let AfterStop::TakenAway(until) = &after {
            self.due.push((*until, Input::Stopped(key.clone(), false)));
        }
        match self.tasks.get_mut(key) {
            Some(task) if !task.broken => task.stop = Some((halt, after)),
            _ => self.answer(stopped(key, after, false)),
        }
    }
}

pub(super) fn stopped(key: &ObjectKey, after: AfterStop, stopped: bool) -> Input {
    match after {
        AfterStop::TakenAway(_) => Input::Stopped(key.clone(), stopped),
        AfterStop::Drained(purpose, mut drained) => {
            drained.stopped = stopped;
            Input::Drained(key.clone(), purpose, drained)
        }
    }
}
