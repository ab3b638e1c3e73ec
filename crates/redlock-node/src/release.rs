//! Lets a frozen or killed pod run without a permit, by order of an administrator.
//!
//! The agent that acts carries out the request, and the entry of the table shows the guardian that it must
//! not freeze the pod. If no agent acts, the same decision is carried out here, while the turn of an agent is
//! held. The fenced lock is never touched.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use redlock_client::clock;
use redlock_core::{
    BootInstant,
    fence::{Effect, Input, Record},
};
use thiserror::Error;

use crate::{
    agent::Vacant,
    cgroup::{
        CgroupError,
        pod::{self, Written},
    },
    table::{Entry, EntryState, Found, ReleasedRun, Table, TableError},
};

/// The time to wait for an agent, which takes a request within a second.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// The time to wait for the release. An agent that has taken a request stores the release in the same turn of
/// its task.
const STORED_WITHIN: Duration = Duration::from_secs(1);
/// The time to wait for the guardian, which acknowledges within a second even if inotify reports nothing.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// The reason why a pod is not released.
#[derive(Debug, Error)]
pub enum ReleaseError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(
        "the table of fenced pods has no record of a pod {pod:?}; it has: {known}. A pod that never had a permit has no record, and starts by a permit only"
    )]
    NoRecord { pod: String, known: String },
    #[error("{pod:?} names several pods: give one of the UIDs {uids}")]
    Several { pod: String, uids: String },
    #[error(
        "the record of pod {uid} cannot be read: {reason}; the pod stays frozen until it is killed, and then starts by a permit"
    )]
    Unreadable { uid: String, reason: String },
    #[error(
        "pod {pod} has a permit, which ends in {seconds:.1} s: only a pod that is frozen or killed can be released"
    )]
    Permitted { pod: String, seconds: f64 },
    #[error("pod {pod} is released already: {reason}")]
    AlreadyReleased { pod: String, reason: String },
    #[error(
        "it is unknown whether the pod is released: the node agent took the request and stored no release within {} s. The \
         agent refuses a pod that has a permit or whose record is lost, and an agent that stood still may release the pod \
         later: check with `redlock fence list`",
        STORED_WITHIN.as_secs()
    )]
    OutcomeUnknown,
    #[error(
        "the record of pod {pod} has changed since the command read it, and nothing was done: see `redlock fence list`, and give the command again"
    )]
    Changed { pod: String },
    #[error("the node agent did not take the request within {} s, and the request is withdrawn; check the node agent of this node", TAKEN_WITHIN.as_secs())]
    NotTaken,
    #[error("determining whether a node agent acts failed")]
    Turn(#[source] io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// A pod that can be released.
#[derive(Clone, Debug)]
pub struct Plan {
    state_dir: PathBuf,
    table: Table,
    pub entry: Entry,
}

/// The process that carried out the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Agent,
    /// The command itself: no agent acts on this node.
    Command,
}

/// Whether the guardian of the node follows the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guardian {
    Acknowledged,
    NotAcknowledged,
    NotRunning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    pub by: By,
    pub guardian: Guardian,
    /// Whether the cgroup is no longer frozen, or is gone.
    pub thawed: bool,
}

impl Plan {
    /// Finds a pod by its UID, its name, or `namespace/name`.
    ///
    /// # Errors
    /// Returns an error if there is no such pod, or if it cannot be released.
    pub fn make(state_dir: &Path, pod: &str) -> Result<Self, ReleaseError> {
        let table = Table::existing(state_dir)?;
        let entry = find(&table, pod)?;
        judge(&entry, clock::now())?;
        Ok(Self {
            state_dir: state_dir.to_owned(),
            table,
            entry,
        })
    }

    /// Releases the pod. Waits until it runs, and until the guardian has acknowledged that.
    ///
    /// # Errors
    /// Returns an error if the pod is not released, or if that is unknown.
    pub fn carry_out(&self, reason: &str) -> Result<Released, ReleaseError> {
        let uid = &self.entry.pod.uid;
        let now = clock::now();
        self.table.request_release(uid, reason, now)?;
        let done = self.follow(reason, now + TAKEN_WITHIN);
        if done.is_err() {
            self.table.withdraw_release(uid)?;
        }
        self.confirm(done?.as_ref())
    }

    /// Waits for the agent that acts. If no agent acts, the release is carried out here, and no agent acts
    /// while the result exists. A command that stood still until `end`, for example after Ctrl-Z, releases
    /// nothing.
    fn follow(&self, reason: &str, end: BootInstant) -> Result<Option<Vacant>, ReleaseError> {
        let uid = &self.entry.pod.uid;
        let mut taken = None;
        loop {
            if self.is_released() {
                return Ok(None);
            }
            let now = clock::now();
            if now >= end && self.table.withdraw_release(uid)? {
                return Err(ReleaseError::NotTaken);
            }
            if !self.table.has_request(uid) && now.since(*taken.get_or_insert(now)) > STORED_WITHIN {
                return Err(ReleaseError::OutcomeUnknown);
            }
            if now < end
                && let Some(vacant) = Vacant::take(&self.state_dir).map_err(ReleaseError::Turn)?
            {
                self.table.withdraw_release(uid)?;
                if self.is_released() {
                    return Ok(None);
                }
                self.by_command(&vacant, reason, end)?;
                return Ok(Some(vacant));
            }
            thread::sleep(POLL);
        }
    }

    /// Waits for the guardian. A guardian that had read the earlier entry may freeze the pod once more before
    /// it acknowledges the release. If no agent acts, the thaw is repeated until then.
    fn confirm(&self, vacant: Option<&Vacant>) -> Result<Released, ReleaseError> {
        let by = if vacant.is_some() { By::Command } else { By::Agent };
        let end = clock::now() + ACKNOWLEDGED_WITHIN;
        loop {
            // The cgroup is read after the acknowledgement.
            let guardian = self.guardian();
            let thawed = matches!(
                pod::is_freeze_requested(&self.entry.cgroup),
                Ok(Some(false) | None)
            );
            if thawed && guardian != Guardian::NotAcknowledged || clock::now() >= end {
                return Ok(Released { by, guardian, thawed });
            }
            if vacant.is_some() && !thawed {
                pod::thaw(&self.entry.cgroup)?;
            }
            thread::sleep(POLL);
        }
    }

    fn is_released(&self) -> bool {
        match self.table.read(&self.entry.pod.uid) {
            Found::Entry { entry, .. } => entry.is_later(&self.entry) && entry.is_released(),
            Found::Unreadable { .. } | Found::Missing => false,
        }
    }

    /// Decides and acts like an agent that is started now. No agent acts in the meantime.
    fn by_command(&self, _vacant: &Vacant, reason: &str, end: BootInstant) -> Result<(), ReleaseError> {
        let entry = &self.entry;
        // An agent may have released the pod and killed it since.
        if !matches!(self.table.read(&entry.pod.uid), Found::Entry { entry: found, .. } if *found == *entry) {
            let pod = format!("{}/{}", entry.pod.namespace, entry.pod.name);
            return Err(ReleaseError::Changed { pod });
        }
        let now = clock::now();
        if now >= end {
            return Err(ReleaseError::NotTaken);
        }
        let input = if entry.is_released() {
            let (populated, frozen) = (true, true);
            Input::Cgroup { populated, frozen }
        } else {
            Input::Release
        };
        let mut record = Record::restored(entry.stored(), now);
        for effect in record.handle(input, now) {
            let written: Written = match effect {
                Effect::Freeze => pod::freeze(&entry.cgroup)?,
                Effect::Kill => pod::kill(&entry.cgroup)?,
                Effect::Thaw => pod::thaw(&entry.cgroup)?,
                Effect::StoreReleased(release) => {
                    let state = EntryState::Released(ReleasedRun::new(release, reason.to_owned()));
                    self.table
                        .store(&self.table.changed(entry, state, clock::now()))?;
                    continue;
                }
                // A record that is released has no other effect.
                _ => continue,
            };
            tracing::debug!(pod = entry.pod.uid, ?written, "cgroup written");
        }
        Ok(())
    }

    fn guardian(&self) -> Guardian {
        let heartbeat = self.table.heartbeat();
        if !heartbeat.is_some_and(|heartbeat| heartbeat.runs(clock::now())) {
            return Guardian::NotRunning;
        }
        let uid = &self.entry.pod.uid;
        match self.table.read(uid) {
            Found::Entry { bytes, .. } if self.table.is_acknowledged(uid, &bytes) => Guardian::Acknowledged,
            _ => Guardian::NotAcknowledged,
        }
    }
}

fn find(table: &Table, pod: &str) -> Result<Entry, ReleaseError> {
    let (mut found, mut known) = (Vec::new(), Vec::new());
    for (uid, state) in table.load()? {
        match state {
            // A pod whose start was interrupted never had a permit.
            Found::Entry { entry, .. }
                if !matches!(entry.state, EntryState::Ended | EntryState::Starting(_)) =>
            {
                let name = format!("{}/{}", entry.pod.namespace, entry.pod.name);
                if [&*uid, &*entry.pod.name, &*name].contains(&pod) {
                    found.push(*entry);
                }
                known.push(name);
            }
            Found::Unreadable { reason } if uid == pod => {
                return Err(ReleaseError::Unreadable { uid, reason });
            }
            _ => {}
        }
    }
    let pod = pod.to_owned();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            Err(ReleaseError::NoRecord { pod, known })
        }
        _ => {
            let uids: Vec<String> = found.into_iter().map(|entry| entry.pod.uid).collect();
            let uids = uids.join(", ");
            Err(ReleaseError::Several { pod, uids })
        }
    }
}

/// Checks the record and the cgroup. The agent decides again.
fn judge(entry: &Entry, now: BootInstant) -> Result<(), ReleaseError> {
    let name = format!("{}/{}", entry.pod.namespace, entry.pod.name);
    match &entry.state {
        // A guardian may have frozen the pod by the earlier entry, or the command that released it may have
        // ended before the thaw.
        EntryState::Released(_) if matches!(pod::is_freeze_requested(&entry.cgroup), Ok(Some(true))) => {
            Ok(())
        }
        EntryState::Released(run) => Err(ReleaseError::AlreadyReleased {
            pod: name,
            reason: run.reason.clone(),
        }),
        EntryState::Permitted(run) | EntryState::Killed { start: Some(run), .. }
            if now < run.run().freeze_at() =>
        {
            let seconds = run.run().until.since(now).as_secs_f64();
            Err(ReleaseError::Permitted { pod: name, seconds })
        }
        EntryState::Starting(_)
        | EntryState::Permitted(_)
        | EntryState::Killed { .. }
        | EntryState::Ended => Ok(()),
    }
}

#[cfg(test)]
mod tests;
