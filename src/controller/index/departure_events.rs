//! Emits the events about targets that run on although their lock is given up.

use super::{Index, World};
use crate::{
    api::leader_lock::{DeletionPolicy, LockState},
    controller::{events::EventReason, object::ObjectKey},
};

impl Index {
    /// Reports, once, that targets of a withdrawn lock run on because the lock is paused.
    pub(super) fn report_paused_departure(&mut self, key: &ObjectKey) {
        self.due.tasks.insert(key.clone());
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if !std::mem::replace(&mut entry.status.departure_reported, true) {
            let note = "the lock is to be given up, and redlock.dev/paused forbids to stop its targets: the lease and the \
                        finalizer stay. Remove the annotation, or set deletionPolicy: Orphan before the deletion";
            self.warn(key, EventReason::DepartureBlocked, note.to_owned());
        }
    }

    /// Emits an event about targets that were not stopped, and may run without the lock.
    pub(super) fn report_targets_left(&mut self, key: &ObjectKey, at: &World<'_>) {
        if !self.holds(key, at) {
            return;
        }
        let Some(entry) = self.locks.get(key) else { return };
        let contended = entry
            .phase
            .active_plan()
            .is_some_and(|plan| plan.state == LockState::Enabled);
        let deleted = entry.object.metadata.deletion_timestamp.is_some();
        let orphan = deleted && entry.object.spec.deletion_policy == DeletionPolicy::Orphan;
        if !contended || orphan || !entry.departs {
            return;
        }
        let trouble = entry.phase.report().and_then(|report| report.trouble.as_ref());
        let why = trouble.map_or_else(String::new, |trouble| format!(": {}", trouble.message));
        let next = if deleted {
            "stop them by hand"
        } else {
            "the operator keeps trying to stop them"
        };
        let note = format!(
            "the targets were not stopped in time{why}. This cluster gave the lock up without a release, so that other \
             clusters wait for the end of its lease and for the takeover delay; {next}"
        );
        self.warn(key, EventReason::TargetsLeft, note);
    }
}
