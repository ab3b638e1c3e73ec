//! The part of an entry that a guardian reads. It is the same in every version: during an update, the guardian of one
//! version guards the pods of an agent of another version.
//!
//! A later version may add fields and states, which an earlier guardian ignores, and must keep the fields of
//! [`GuardedFields`] with their meaning.

use std::{
    io::ErrorKind,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use redlock_client::clock;
use redlock_core::{BootInstant, fence::OWN_RESERVATION, timing::LONGEST_LEASE_ALLOWED};
use serde::{Deserialize, Serialize};

use super::{EntryState, Table, files};
use crate::cgroup::pod;

/// A permit ends before the reservation of a lease that begins now: a later end is not one that an agent wrote.
const LONGEST_PERMIT: Duration = LONGEST_LEASE_ALLOWED.saturating_add(OWN_RESERVATION);
/// The longest path that the kernel opens.
const LONGEST_PATH: usize = 4_096;

/// The end of the permit of a pod, as the guardian reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PermitEnd {
    BootNanoseconds(u64),
    /// An administrator lets the pod run without a permit.
    Never,
    /// The volume of the pod is unpublished: the pod is no longer guarded.
    Unpublished,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GuardedFields {
    boot_id: String,
    pod: GuardedName,
    cgroup: PathBuf,
    end: PermitEnd,
    #[serde(default)]
    starts: bool,
}

#[derive(Deserialize)]
struct GuardedName {
    uid: String,
}

/// The entry of one pod, as a guardian reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedPod {
    pub cgroup: PathBuf,
    /// The time until which the pod may run; `None` if it is no longer guarded.
    pub until: Option<BootInstant>,
    /// Whether the guardian must freeze the empty cgroup before it acknowledges the entry: the pod is about to start, or
    /// to start afresh.
    pub starts: bool,
    /// The bytes of the entry, for the acknowledgement.
    pub bytes: Vec<u8>,
}

/// An entry, as a guardian finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundGuarded {
    Pod(GuardedPod),
    /// Nothing is known of the pod, which is frozen.
    Unreadable {
        reason: String,
    },
    Missing,
}

impl PermitEnd {
    /// Returns the end of a state. A killed pod may not run until it starts afresh.
    pub(super) fn of(state: &EntryState) -> Self {
        match state {
            EntryState::Starting(run)
            | EntryState::Permitted(run)
            | EntryState::Killed { start: Some(run), .. } => {
                Self::BootNanoseconds(run.run().until.as_nanos())
            }
            EntryState::Killed { start: None, .. } => Self::BootNanoseconds(0),
            EntryState::Released(_) => Self::Never,
            EntryState::Ended => Self::Unpublished,
        }
    }

    /// Returns the time until which the pod may run; `None` if it is no longer guarded.
    #[must_use]
    pub const fn until(self) -> Option<BootInstant> {
        match self {
            Self::BootNanoseconds(end) => Some(BootInstant::from_nanos(end)),
            Self::Never => Some(BootInstant::NEVER),
            Self::Unpublished => None,
        }
    }
}

/// Returns the reason why cgroup and end are not those of a permit of the pod. A freeze of a cgroup that does not exist
/// counts as written, so the cgroup must be that of the pod.
pub(super) fn garbled(uid: &str, cgroup: &Path, end: PermitEnd) -> Option<String> {
    let normal = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let is_path =
        cgroup.is_absolute() && cgroup.as_os_str().len() <= LONGEST_PATH && cgroup.components().all(normal);
    if !is_path || !pod::is_cgroup_of(cgroup, uid) {
        return Some("cgroup is not a path to the cgroup of the pod".to_owned());
    }
    match end {
        PermitEnd::BootNanoseconds(nanoseconds) => {
            let ahead = BootInstant::from_nanos(nanoseconds).since(clock::now());
            (ahead > LONGEST_PERMIT)
                .then(|| format!("the permit ends in {} s, later than every lease", ahead.as_secs()))
        }
        PermitEnd::Never | PermitEnd::Unpublished => None,
    }
}

impl Table {
    /// Reads an entry that an agent of any version has written.
    #[must_use]
    pub fn read_guarded(&self, uid: &str) -> FoundGuarded {
        let path = self.entries().join(uid);
        let unreadable = |reason: String| FoundGuarded::Unreadable { reason };
        let bytes = match files::read(&path) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return FoundGuarded::Missing,
            Err(cause) => return unreadable(format!("reading {}: {cause}", path.display())),
        };
        let fields: GuardedFields = match serde_json::from_slice(&bytes) {
            Ok(fields) => fields,
            Err(cause) => return unreadable(format!("{}: {cause}", path.display())),
        };
        if fields.boot_id != self.boot_id {
            return unreadable(format!(
                "{} was written before the machine booted",
                path.display()
            ));
        }
        if fields.pod.uid != uid {
            return unreadable(format!(
                "{} is the entry of pod {}",
                path.display(),
                fields.pod.uid
            ));
        }
        if let Some(reason) = garbled(uid, &fields.cgroup, fields.end) {
            return unreadable(format!("{}: {reason}", path.display()));
        }
        FoundGuarded::Pod(GuardedPod {
            cgroup: fields.cgroup,
            until: fields.end.until(),
            starts: fields.starts,
            bytes,
        })
    }

    /// Returns the UIDs of all entries.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn uids(&self) -> Result<Vec<String>, super::TableError> {
        files::names(&self.entries())
    }
}
