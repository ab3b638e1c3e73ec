//! Checks drains: a lease is handed over after its targets are stopped.

use super::Rules;
use crate::controller::{
    index::{
        AfterStop, Effect, Index, Input, TargetTaskChange, drain::Purpose, simulation::outside::Outside,
    },
    object::ObjectKey,
};

/// A stage of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controller::index::simulation) enum DrainSeen {
    BegunByRequest,
    BegunByFailover,
    Stopped,
    NotStopped,
    LeaseEnded,
    /// The lock was withdrawn during the drain.
    TakenAway,
}

pub(in crate::controller::index::simulation) const DRAINS: usize = 6;

impl Rules {
    pub(super) fn see_begin(&mut self, effect: &Effect) {
        if let Effect::Targets(TargetTaskChange::Stop {
            after: AfterStop::Drained(purpose, _),
            ..
        }) = effect
        {
            self.drains.insert(match purpose {
                Purpose::Asked(_) => DrainSeen::BegunByRequest,
                Purpose::Unready => DrainSeen::BegunByFailover,
            });
        }
    }

    /// Records the end of a drain, before the index handles it.
    pub(super) fn see_drain(&mut self, input: &Input, index: &Index, outside: &Outside) {
        let Input::Drained(key, _, drained) = input else {
            return;
        };
        let at = super::super::world(outside);
        self.drains.insert(if drained.stopped {
            DrainSeen::Stopped
        } else {
            DrainSeen::NotStopped
        });
        if !index.holds_lease(key, drained.token, &at) {
            self.drains.insert(DrainSeen::LeaseEnded);
        }
        let active = index
            .locks
            .get(key)
            .is_some_and(|entry| entry.phase.active_plan().is_some());
        if !active {
            self.drains.insert(DrainSeen::TakenAway);
        }
    }
}

/// Returns why the targets of a lock are being stopped under its lease.
fn waits<'a>(key: &ObjectKey, outside: &'a Outside) -> Option<&'a Purpose> {
    outside.tasks.get(key)?.stops.drains().last()
}

/// Checks that the index knows of every drain under way; otherwise it would begin another one.
pub(super) fn drains_are_known(index: &Index, outside: &Outside) -> Result<(), String> {
    for key in outside.tasks.keys() {
        let phase = index.locks.get(key).map(|entry| &entry.phase);
        let contended = phase.is_some_and(|phase| phase.active_plan().is_some());
        if let Some(purpose) = waits(key, outside)
            && contended
            && phase.and_then(|phase| phase.draining()).is_none()
        {
            return Err(format!(
                "{key}: is drained ({purpose:?}), and no drain of it is known"
            ));
        }
    }
    Ok(())
}

/// Checks that a lock on a quorum that is not open has nothing that could be lost.
pub(super) fn nothing_was_put(quorum: &str, index: &Index) -> Result<(), String> {
    for key in index.locks.users_of(quorum) {
        let Some(entry) = index.locks.get(key) else {
            continue;
        };
        let put = entry
            .phase
            .active_plan()
            .is_some_and(|plan| plan.quorum == quorum);
        let has_more =
            entry.phase.task().is_some() || entry.phase.draining().is_some() || entry.phase.is_leaving();
        if put && has_more {
            return Err(format!(
                "{key}: has a target task, and its quorum was not open: {:?}",
                entry.phase
            ));
        }
    }
    Ok(())
}
