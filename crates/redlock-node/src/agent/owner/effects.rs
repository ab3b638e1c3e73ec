//! Carries out the effects of a record.

use std::time::Duration;

use redlock_client::clock;
use redlock_core::fence::{Effect, Input, Presence, Run};
use tokio::time::timeout;

use super::{Confirmed, Owner};
use crate::{
    agent::pod::{Pod, StoredEntry},
    guardian::chain,
    resolver::ObjectShown,
    table::{Entry, EntryState, Found, Table},
};

/// The timeout of a read of a pod object. The API server answers within milliseconds. A permit that is long
/// enough for a start lasts for about 10 s.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

impl Owner<'_> {
    pub(super) fn effect(&mut self, uid: &str, effect: Effect) {
        match effect {
            Effect::Freeze => self.freeze(uid),
            Effect::Thaw => self.freezer.thaw(uid),
            Effect::Kill => self.freezer.kill(uid),
            Effect::ConfirmPod => self.confirm(uid),
            Effect::Store(run) => {
                self.end_of_release(uid, run);
                let starts = self.pods.get(uid).is_some_and(Pod::is_storing);
                let run_of_entry = run.into();
                let state = if starts {
                    EntryState::Starting(run_of_entry)
                } else {
                    EntryState::Permitted(run_of_entry)
                };
                self.store(uid, state);
                self.permit(uid, run);
            }
            Effect::StoreKilled(start) => {
                let seen = self.pods.get(uid).map_or(0, |pod| pod.record.seen().0);
                let run = start.map(Into::into);
                self.store(uid, EntryState::Killed { start: run, seen });
                if let Some(run) = start {
                    self.permit(uid, run);
                }
            }
            Effect::StoreReleased(release) => self.store_released(uid, release),
            Effect::AnswerPublish(answer) => {
                if let Err(refusal) = &answer {
                    self.note_refused(uid, refusal);
                }
                self.open_start_gate(uid);
                let holder = self.holder(uid);
                let Some(pod) = self.pods.get_mut(uid) else {
                    return;
                };
                pod.answer(&answer, holder.as_deref(), &self.volumes);
                // The guardian may have frozen the empty cgroup by an earlier entry.
                self.check_cgroup(uid);
            }
        }
    }

    /// Thaws the cgroup of a pod that starts, which agent and guardian have frozen to show that they can. The entry is
    /// stored before: a restarted agent takes a pod whose start is stored for one that runs.
    fn open_start_gate(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let started = pod.stored.as_ref().map(|stored| &stored.entry.state);
        if let (Some(EntryState::Starting(run)), true) = (started, pod.is_running()) {
            let run = *run;
            self.store(uid, EntryState::Permitted(run));
            self.freezer.thaw(uid);
        }
    }

    /// Returns the holder of the lock of a pod, as the last round has shown it.
    pub(super) fn holder(&self, uid: &str) -> Option<String> {
        let lock = self.pods.get(uid)?.lock.as_ref()?;
        let quorum = self.quorums.get(&lock.quorum)?;
        quorum.holder(lock).map(str::to_owned)
    }

    /// Reads whether the object of the pod exists, outside the task that owns the records.
    fn confirm(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let (uid, asked) = (uid.to_owned(), clock::now());
        let read = self.shared.resolver.presence(&pod.name);
        self.confirming.spawn(async move {
            let shown = timeout(CONFIRM_WITHIN, read).await;
            let shown = shown.unwrap_or(ObjectShown::Presence(Presence::Unknown));
            Confirmed { uid, shown, asked }
        });
    }

    pub(super) fn on_confirmed(&mut self, confirmed: &Confirmed) {
        let Confirmed { uid, shown, asked } = confirmed;
        let presence = match shown {
            ObjectShown::Presence(presence) => *presence,
            ObjectShown::CannotBeFenced { reason } => {
                self.refuse_start(uid, format!("the pod cannot be fenced: {reason}"));
                // A pod that was killed does not start afresh.
                Presence::Unknown
            }
        };
        if presence != Presence::Exists {
            tracing::warn!(pod = uid, ?shown, "the pod does not start");
        }
        let asked = *asked;
        self.input(uid, Input::Pod { presence, asked });
    }

    /// Passes on a permit: the thread freezes the pod at its end, and the pod reads the end in its volume.
    fn permit(&mut self, uid: &str, run: Run) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        if clock::now() < run.freeze_at()
            && let Some(cgroup) = &pod.cgroup
        {
            self.freezer.until(uid, cgroup, run.until);
        }
        if pod.is_running() {
            for target in &pod.targets {
                self.volumes.update(target.clone(), pod.contents());
            }
        }
    }

    /// Stores an entry. An entry that cannot be written is not acknowledged: the guardian keeps the end of
    /// the previous entry. A release has no end, so its entry is then removed.
    pub(super) fn store(&mut self, uid: &str, state: EntryState) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        let (Some(cgroup), Some(lock)) = (&pod.cgroup, &pod.lock) else {
            return;
        };
        let of = (pod.name.clone(), cgroup.clone(), pod.targets.clone());
        let by = (pod.declared.clone(), lock.clone());
        let mut entry = self.shared.table.entry(of, by, state, clock::now());
        entry.why = pod.why(None);
        let bytes = self.shared.table.store(&entry).unwrap_or_else(|error| {
            tracing::error!(pod = uid, error = %chain(&error), "the entry cannot be stored");
            remove_release(&self.shared.table, &entry);
            Vec::new()
        });
        pod.stored = Some(StoredEntry {
            entry,
            bytes,
            acknowledged: false,
        });
    }
}

/// Removes the entry of a release that has ended: the guardian and a restarted agent freeze a pod without an
/// entry.
fn remove_release(table: &Table, by: &Entry) {
    let uid = &by.pod.uid;
    let released = matches!(table.read(uid), Found::Entry { entry, .. } if entry.is_released());
    if released
        && !by.is_released()
        && let Err(error) = table.remove(uid)
    {
        tracing::error!(pod = uid, error = %chain(&error), "the entry of a release that has ended is left");
    }
}
