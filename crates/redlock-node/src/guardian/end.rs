//! Ends the guardian once no pod needs it.

use nix::sys::signalfd::SignalFd;
use redlock_client::clock;
use redlock_core::BootInstant;

use super::{Cgroup, Guardian};
use crate::{
    cgroup::pod::{self, PodCgroupError},
    ending::{EndReason, GuardedState, may_end},
};

impl Guardian {
    /// Notes that the process was asked to end. It continues to guard its pods.
    pub(super) fn begin_end(&mut self, signals: &SignalFd) {
        while let Ok(Some(_)) = signals.read_signal() {}
        if self.ending.is_none() {
            self.ending = Some(clock::now());
            tracing::info!(
                pods = self.deadlines.len(),
                "the guardian ends once another one runs or no pod needs it"
            );
        }
    }

    /// Returns the reason why the process may end; `None` if it was not asked to, or while a pod needs it.
    pub(super) fn may_end(&self) -> Option<EndReason> {
        let since = self.ending?;
        let now = clock::now();
        let pods = self.deadlines.pods().map(|uid| self.guarded_state(uid, now));
        may_end(self.table.has_other_guardian(since), pods)
    }

    fn guarded_state(&self, uid: &str, now: BootInstant) -> GuardedState {
        match self.deadlines.until(uid) {
            Some(BootInstant::NEVER) => return GuardedState::Released,
            Some(until) if now < until => return GuardedState::NeedsGuard,
            Some(_) | None => {}
        }
        let path = match self.cgroups.get(uid) {
            Some(Cgroup::At(path) | Cgroup::Deleted(path)) => path.clone(),
            Some(Cgroup::Unknown) | None => match pod::find(&self.options.cgroup_root, uid) {
                Ok(path) => path,
                Err(PodCgroupError::Missing { .. }) => return GuardedState::Stopped,
                Err(_) => return GuardedState::NeedsGuard,
            },
        };
        match pod::events(&path) {
            Ok(None) => GuardedState::Stopped,
            Ok(Some(events)) if events.frozen || !events.populated => GuardedState::Stopped,
            Ok(Some(_)) | Err(_) => GuardedState::NeedsGuard,
        }
    }
}
