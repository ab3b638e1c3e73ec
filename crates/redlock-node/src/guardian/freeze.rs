//! Writes the freeze of a pod, and keeps the reason of a failure for the heartbeat.

use std::time::Duration;

use redlock_client::clock;
use redlock_core::{BootInstant, fence::REPEAT_EVERY};

use super::{Cgroup, Guardian, chain};
use crate::{
    cgroup::pod::{self, PodCgroupError, Written},
    deadlines::RETRY_FAILED,
};

impl Guardian {
    pub(super) fn freeze(&mut self, uid: &str) {
        let (path, deleted) = match self.cgroups.get(uid) {
            Some(Cgroup::At(path)) => (path.clone(), false),
            Some(Cgroup::Deleted(path)) => (path.clone(), true),
            Some(Cgroup::Unknown) | None => match pod::find(&self.options.cgroup_root, uid) {
                Ok(path) => (path, false),
                // A pod without a cgroup has no process.
                Err(error @ PodCgroupError::Missing { .. }) => {
                    tracing::debug!(pod = uid, error = %chain(&error), "no cgroup to freeze");
                    self.deadlines.froze(uid, clock::now());
                    return;
                }
                // Each search reads the whole tree.
                Err(error) => return self.freeze_failed(uid, &error, REPEAT_EVERY),
            },
        };
        match pod::freeze(&path) {
            Ok(Written::Gone) if deleted => self.forget(uid),
            Ok(_) => self.freeze_written(uid),
            Err(error) => self.freeze_failed(uid, &error, RETRY_FAILED),
        }
    }

    fn freeze_written(&mut self, uid: &str) {
        let now = clock::now();
        let due = self.deadlines.froze(uid, now);
        if self.unable.contains_key(uid) && !self.awaits_trial(uid) {
            self.note_ability(uid, Ok(()));
        }
        if let Some(due) = due.filter(|due| *due != BootInstant::default()) {
            let late = now.since(due);
            tracing::info!(
                pod = uid,
                ?late,
                "the guardian froze the pod at the end of its permit"
            );
        }
    }

    /// Plans another attempt. The heartbeat reports the pod as one that the guardian cannot freeze.
    fn freeze_failed(&mut self, uid: &str, error: &dyn std::error::Error, pause: Duration) {
        self.deadlines.failed(uid, clock::now() + pause);
        self.note_ability(uid, Err(chain(error)));
    }
}
