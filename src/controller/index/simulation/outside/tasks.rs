//! Simulates the tasks that switch targets.

use std::{collections::BTreeSet, time::Duration};

use super::Outside;
use crate::{
    api::{
        lock_status::{TargetState, TargetStatus},
        plan::LockPlan,
    },
    controller::{
        index::{AfterStop, Input, Views},
        object::ObjectKey,
        target_task::{Permissions, StopRequest, TargetReport},
    },
};

/// The unit of the random delay after which the end of a task is noticed.
const LATE: Duration = Duration::from_secs(1);

impl Outside {
    /// Lets the tasks switch their targets.
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
        let (now, works) = (self.now, self.calm || self.random.bool());
        let unconfirmed = self.random.bool();
        let down = self.server.down;
        let Some(task) = self.tasks.get(key).filter(|task| !task.broken) else {
            return inputs;
        };
        let (plan, hands) = (task.plan.clone(), task.hands);
        let view = self.lock(&plan.quorum, &plan.lock_name, now);
        let authority = view.as_ref().and_then(|view| view.authority);
        let held = authority.is_some();
        let sees = self.has_majority(&plan.quorum);
        let ours = view.as_ref().and_then(|view| view.holder.as_ref());
        let ours = ours.is_some_and(|holder| holder.cluster == self.cluster);
        let mut wants_guard = false;
        let Some(task) = self.tasks.get_mut(key) else {
            return inputs;
        };
        let token = authority.map(|authority| authority.token);
        task.won = token.map(|token| match task.won {
            Some((won, at)) if won == token => (token, at),
            _ => (token, now),
        });
        let unread = task
            .won
            .filter(|(_, won)| hands.read.is_none_or(|read| read < *won));
        let mut wants_read = None;
        task.stops.expire(token, now);
        if hands.off {
            task.stops.refuse();
        } else if task.stops.is_requested() {
            if works && !down {
                task.stops.finish(!(plan.is_fenced() && unconfirmed));
                self.running.remove(key);
            }
        } else if held && !plan.targets.is_empty() {
            if self.is_unswitchable(&plan, hands) {
                // Nothing is started.
            } else if let Some((_, won)) = unread {
                wants_read = Some(won);
            } else if !hands.starts {
                // The departure is ordered next.
            } else if hands.guarded {
                self.running.insert(key.clone());
            } else {
                wants_guard = true;
            }
        } else if (sees && !ours && !held) || plan.targets.is_empty() {
            self.running.remove(key);
        }
        inputs.extend(self.stopped(key));
        let report = TargetReport {
            wants_read,
            unswitchable: self.is_unswitchable(&plan, hands),
            ..self.report(key, &plan, wants_guard)
        };
        if let Some(task) = self.tasks.get_mut(key)
            && task.last.as_ref() != Some(&report)
        {
            task.last = Some(report.clone());
            inputs.insert(0, Input::Report(report));
        }
        inputs
    }

    /// Reports whether no target can be switched, and none was started.
    fn is_unswitchable(&self, plan: &LockPlan, hands: Permissions) -> bool {
        self.faults.unswitchable && !hands.guarded && !hands.off && !plan.is_fenced() && plan.switches()
    }

    /// Makes the task of one lock panic. Its targets stay as they are.
    pub(super) fn break_task(&mut self) {
        let keys: Vec<ObjectKey> = self.tasks.keys().cloned().collect();
        let Some(key) = self.random.choice(keys) else {
            return;
        };
        if let Some(task) = self.tasks.get_mut(&key) {
            task.stops.end();
            task.broken = true;
        }
    }

    /// Returns the answers to the requesters of a stop.
    pub(super) fn stopped(&mut self, key: &ObjectKey) -> Vec<Input> {
        let now = self.now;
        let ended = self.tasks.get_mut(key).map(|task| task.stops.ended(now));
        let ended = ended.into_iter().flatten();
        ended
            .map(|(after, ended, clean)| stopped(key, after, ended, clean))
            .collect()
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
            removed: Vec::new(),
            has: has.map(|target| target.work.clone()).collect(),
            runs,
            wants_guard,
            wants_read: None,
            takeover: None,
            settled: true,
            trouble: None,
            unswitchable: false,
            unready: runs && self.faults.unready && plan.failover_after_unready.is_some(),
            nodes: plan.is_fenced().then(|| Self::nodes(runs)),
            notes: Vec::new(),
        }
    }

    /// Returns the nodes on which the pods of a lock run.
    fn nodes(runs: bool) -> BTreeSet<String> {
        ["n1"].into_iter().filter(|_| runs).map(str::to_owned).collect()
    }

    pub(super) fn stop_targets(&mut self, key: &ObjectKey, halt: StopRequest, after: AfterStop) {
        match self.tasks.get_mut(key) {
            Some(task) if !task.broken => task.stops.add(halt, after),
            _ => self.answer(stopped(key, after, false, false)),
        }
    }

    /// Ends the task; the requesters of a stop see that nothing was stopped.
    pub(super) fn end_task(&mut self, key: &ObjectKey) {
        if let Some(task) = self.tasks.get_mut(key) {
            task.stops.end();
        }
        for input in self.stopped(key) {
            let at = if self.calm {
                self.now
            } else {
                self.now + LATE * self.random.u32(..30)
            };
            self.due.push((at, input));
        }
        self.tasks.remove(key);
    }
}

pub(super) fn stopped(key: &ObjectKey, after: AfterStop, stopped: bool, clean: bool) -> Input {
    match after {
        AfterStop::TakenAway(_) => Input::Stopped(key.clone(), stopped),
        AfterStop::Drained(purpose, mut drained) => {
            (drained.stopped, drained.clean) = (stopped, stopped && clean);
            Input::Drained(key.clone(), purpose, drained)
        }
    }
}
