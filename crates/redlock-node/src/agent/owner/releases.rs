//! Releases by hand, and what an administrator reads of the pods that wait.

use redlock_core::{
    BootInstant,
    fence::{Input, Release},
};

use super::Owner;
use crate::{
    guardian::chain,
    table::{EntryState, ReleasedRun, Waiting},
};

impl Owner<'_> {
    /// Carries out the requests of `redlock fence release`. The record refuses one for a pod that runs by a permit.
    pub(super) fn take_releases(&mut self, now: BootInstant) {
        let requests = self.shared.table.take_releases(now).unwrap_or_else(|error| {
            tracing::error!(error = %chain(&error), "requests to release pods cannot be read");
            Vec::new()
        });
        for request in requests {
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

    /// The guardian reads the entry before its next freeze, and the thread of the agent has no end either.
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

    pub(super) fn note_waiting(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get(uid) {
            let waiting = Waiting {
                pod: pod.name.clone(),
                declared: pod.declared.clone(),
                why: pod.why(),
            };
            self.waiting.insert(uid.to_owned(), waiting);
        }
    }

    /// Shows the pods that wait. A pod that was refused stays among them until the kubelet calls again.
    pub(super) fn show_waiting(&mut self) {
        let before = self.waiting.clone();
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        for uid in uids {
            let waits = self
                .pods
                .get(&uid)
                .is_some_and(|pod| pod.stored.is_none() && !pod.is_lost());
            if waits {
                self.note_waiting(&uid);
            } else {
                self.waiting.remove(&uid);
            }
        }
        if self.waiting != before
            && let Err(error) = self.shared.table.show_waiting(&self.waiting)
        {
            tracing::warn!(error = %chain(&error), "the pods that wait cannot be shown");
        }
    }
}
