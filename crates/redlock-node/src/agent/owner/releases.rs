//! Handles releases by hand.

use redlock_client::clock;
use redlock_core::{
    BootInstant,
    fence::{Input, Release, Run},
};

use super::Owner;
use crate::{
    guardian::chain,
    table::{EntryState, ReleasedRun},
};

impl Owner<'_> {
    /// Carries out the requests of `redlock fence release`. The record refuses a request for a pod that runs
    /// by a permit.
    pub(super) fn take_releases(&mut self, now: BootInstant) {
        let requests = self.shared.table.take_releases(now).unwrap_or_else(|error| {
            tracing::error!(error = %chain(&error), "requests to release pods cannot be read");
            Vec::new()
        });
        for request in requests {
            // The agent may have stood still since it took the request away.
            if !request.is_awaited(clock::now()) {
                tracing::warn!(pod = request.uid, "a request to release the pod is too old");
                continue;
            }
            let (uid, reason) = (request.uid, request.reason);
            tracing::warn!(pod = uid, reason, "an administrator asks to release the pod");
            if let Some(pod) = self.pods.get_mut(&uid).filter(|pod| !pod.is_released()) {
                pod.release = reason;
            }
            self.input(&uid, Input::Release);
            if !self.pods.get(&uid).is_some_and(|pod| pod.is_released()) {
                tracing::warn!(
                    pod = uid,
                    "the pod is not released: it is unknown, or runs or starts by a permit"
                );
            }
        }
    }

    /// Stores the release for the guardian, and removes the deadline of the pod from the freezing thread.
    pub(super) fn store_released(&mut self, uid: &str, release: Release) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let run = ReleasedRun::new(release, pod.release.clone());
        if let Some(cgroup) = &pod.cgroup {
            self.freezer.until(uid, cgroup, BootInstant::NEVER);
        }
        for target in &pod.targets {
            self.volumes.update(target.clone(), pod.contents());
        }
        self.store(uid, EntryState::Released(run));
    }

    /// Gives the freezing thread a deadline again, even if the permit has ended since it was read.
    pub(super) fn end_of_release(&self, uid: &str, run: Run) {
        if let Some(pod) = self.pods.get(uid)
            && pod
                .stored
                .as_ref()
                .is_some_and(|stored| stored.entry.is_released())
            && let Some(cgroup) = &pod.cgroup
        {
            self.freezer.until(uid, cgroup, run.until);
        }
    }
}
