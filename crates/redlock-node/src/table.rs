//! The table that agent and guardian share: a directory on tmpfs, with one entry for each pod.
//!
//! An entry is replaced by a rename, so a reader sees one whole entry. The guardian acknowledges an entry
//! with a copy of the bytes that it has read. An entry that cannot be read, has another version or was
//! written before the machine booted shows nothing: its pod is frozen.

mod files;
mod guarded;
mod heartbeat;
mod requests;
mod state;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use redlock_client::clock;
use redlock_core::{BootInstant, FencingToken, fence::Stored};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::files::{TEMPORARY, names};
pub use self::{
    guarded::{FoundGuarded, GuardedPod, PermitEnd},
    heartbeat::{GuardianReport, Heartbeat},
    requests::ReleaseRequest,
    state::{EntryState, PermittedRun, ReleasedRun},
    waiting::Waiting,
};
use crate::spec::LockSpec;

/// The version of the format that an agent reads. An agent freezes the pod of an entry of another version; a guardian
/// reads the entries of every version.
const VERSION: u32 = 1;
const ENTRIES: &str = "pods";
const ACKNOWLEDGED: &str = "acknowledged";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The names of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodName {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// The entry of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    version: u32,
    boot_id: String,
    /// Makes entries differ, so that the acknowledgement of one entry is not that of another.
    generation: u64,
    pub pod: PodName,
    pub cgroup: PathBuf,
    /// The end of the permit, for a guardian of any version.
    end: PermitEnd,
    /// Whether the guardian must freeze the empty cgroup before it acknowledges the entry.
    starts: bool,
    /// The directories of the volumes of the pod.
    pub targets: BTreeSet<PathBuf>,
    /// `namespace/name` of the declared lock.
    pub declared: String,
    pub lock: LockSpec,
    pub state: EntryState,
    /// The reason why the pod was frozen or killed, for `redlock fence list`; empty if it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// An entry, as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Entry {
        entry: Box<Entry>,
        bytes: Vec<u8>,
    },
    /// Nothing is known of the pod, which is frozen.
    Unreadable {
        reason: String,
    },
    Missing,
}

/// The table cannot be used.
#[derive(Debug, Error)]
#[error("{operation} {} of the table of fenced pods", path.display())]
pub struct TableError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// A handle to the table.
#[derive(Clone, Debug)]
pub struct Table {
    directory: PathBuf,
    boot_id: String,
    /// The suffix of the files that this handle is about to rename. Two guardians run side by side during an
    /// upgrade, and both have the process id 1, each in its own container.
    writer: String,
}

impl Entry {
    /// Reports whether this entry was written later than another entry of the same pod.
    #[must_use]
    pub const fn is_later(&self, other: &Self) -> bool {
        self.generation > other.generation
    }

    /// Reports whether an administrator lets the pod run without a permit.
    #[must_use]
    pub const fn is_released(&self) -> bool {
        matches!(self.state, EntryState::Released(_))
    }

    /// Returns the time until which the pod may run; `None` once the entry has ended. A killed pod may not
    /// run until it starts afresh, and a released pod may run without an end.
    #[must_use]
    pub const fn until(&self) -> Option<BootInstant> {
        self.end.until()
    }

    /// Returns the state that a restarted agent restores.
    #[must_use]
    pub fn stored(&self) -> Stored {
        match &self.state {
            EntryState::Permitted(run) => Stored::Run(run.run()),
            EntryState::Killed { seen, .. } => Stored::Killed {
                seen: FencingToken(*seen),
            },
            EntryState::Released(run) => Stored::Released(run.release()),
            // The call to publish the volume was not answered: the kubelet calls again.
            EntryState::Starting(_) | EntryState::Ended => Stored::Unknown,
        }
    }
}

impl Table {
    /// Opens the table, and creates the directories that are missing.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be created, or if the boot id cannot be read.
    pub fn open(directory: &Path) -> Result<Self, TableError> {
        let table = Self::at(directory)?;
        table.create()?;
        Ok(table)
    }

    fn at(directory: &Path) -> Result<Self, TableError> {
        let boot_id = fs::read_to_string(BOOT_ID);
        let boot_id = boot_id.map_err(|cause| failed("reading", Path::new(BOOT_ID), cause))?;
        Ok(Self {
            directory: directory.to_owned(),
            boot_id: boot_id.trim().to_owned(),
            writer: format!("{}-{}", std::process::id(), clock::now().as_nanos()),
        })
    }

    /// Opens a table that an agent or a guardian has created, for a command that reads it.
    ///
    /// # Errors
    /// Returns an error if the directory does not exist, or if the boot id cannot be read.
    pub fn existing(directory: &Path) -> Result<Self, TableError> {
        let table = Self::at(directory)?;
        let entries = table.entries();
        match fs::metadata(&entries) {
            Ok(_) => Ok(table),
            Err(cause) => Err(failed("opening", &entries, cause)),
        }
    }

    /// Creates the directories again if they were deleted.
    ///
    /// # Errors
    /// Returns an error if they cannot be created.
    pub fn create(&self) -> Result<(), TableError> {
        for directory in [self.entries(), self.acknowledgements(), self.requests()] {
            fs::create_dir_all(&directory).map_err(|cause| failed("creating", &directory, cause))?;
        }
        Ok(())
    }

    /// Checks that the table is on a tmpfs: a write to a disk may take a long time.
    ///
    /// # Errors
    /// Returns the reason and the remedy.
    pub fn is_on_tmpfs(&self) -> Result<(), String> {
        match statfs(&self.directory) {
            Ok(found) if found.filesystem_type() == TMPFS_MAGIC => Ok(()),
            _ => Err(format!(
                "the table in {} is not on tmpfs: use a directory below /run; a freeze may wait for a disk",
                self.directory.display()
            )),
        }
    }

    /// Returns the directory of the entries, for a watch.
    #[must_use]
    pub fn entries(&self) -> PathBuf {
        self.directory.join(ENTRIES)
    }

    /// Returns the directory of the acknowledgements, for a watch.
    #[must_use]
    pub fn acknowledgements(&self) -> PathBuf {
        self.directory.join(ACKNOWLEDGED)
    }

    /// Builds an entry of this boot. `now` makes it differ from every earlier entry.
    #[must_use]
    pub fn entry(
        &self,
        (pod, cgroup, targets): (PodName, PathBuf, BTreeSet<PathBuf>),
        (declared, lock): (String, LockSpec),
        state: EntryState,
        now: BootInstant,
    ) -> Entry {
        Entry {
            version: VERSION,
            boot_id: self.boot_id.clone(),
            generation: now.as_nanos(),
            pod,
            cgroup,
            end: PermitEnd::of(&state),
            starts: state.is_start(),
            targets,
            declared,
            lock,
            state,
            why: String::new(),
        }
    }

    /// Builds a later entry of the same pod.
    #[must_use]
    pub fn changed(&self, entry: &Entry, state: EntryState, now: BootInstant) -> Entry {
        let of = (entry.pod.clone(), entry.cgroup.clone(), entry.targets.clone());
        let by = (entry.declared.clone(), entry.lock.clone());
        self.entry(of, by, state, now)
    }

    /// Stores an entry. Returns the bytes that the guardian acknowledges.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn store(&self, entry: &Entry) -> Result<Vec<u8>, TableError> {
        let path = self.entries().join(&entry.pod.uid);
        let bytes = serde_json::to_vec(entry).map_err(|cause| failed("encoding", &path, cause.into()))?;
        self.replace(&path, &bytes)?;
        Ok(bytes)
    }

    #[must_use]
    pub fn read(&self, uid: &str) -> Found {
        let path = self.entries().join(uid);
        let bytes = match files::read(&path) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Found::Missing,
            Err(cause) => {
                let reason = format!("reading {}: {cause}", path.display());
                return Found::Unreadable { reason };
            }
        };
        let unreadable = |reason: String| Found::Unreadable { reason };
        let entry: Entry = match serde_json::from_slice(&bytes) {
            Ok(entry) => entry,
            Err(cause) => return unreadable(format!("{}: {cause}", path.display())),
        };
        if entry.version != VERSION {
            let reason = format!(
                "{} has version {}, expected {VERSION}",
                path.display(),
                entry.version
            );
            return unreadable(reason);
        }
        if entry.boot_id != self.boot_id {
            return unreadable(format!(
                "{} was written before the machine booted",
                path.display()
            ));
        }
        if entry.pod.uid != uid {
            return unreadable(format!(
                "{} is the entry of pod {}",
                path.display(),
                entry.pod.uid
            ));
        }
        // A guardian follows the end alone: both would freeze the pod at different times.
        if entry.end != PermitEnd::of(&entry.state) {
            return unreadable(format!("{}: the end is not that of the state", path.display()));
        }
        if let Some(reason) = guarded::garbled(uid, &entry.cgroup, entry.end) {
            return unreadable(format!("{}: {reason}", path.display()));
        }
        Found::Entry {
            entry: Box::new(entry),
            bytes,
        }
    }

    /// Returns all entries.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn load(&self) -> Result<BTreeMap<String, Found>, TableError> {
        let names = names(&self.entries())?;
        Ok(names
            .into_iter()
            .map(|uid| (uid.clone(), self.read(&uid)))
            .collect())
    }

    /// Records that the guardian has read this entry and keeps its end.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn acknowledge(&self, uid: &str, bytes: &[u8]) -> Result<(), TableError> {
        self.replace(&self.acknowledgements().join(uid), bytes)
    }

    /// Reports whether the guardian has acknowledged exactly this entry.
    #[must_use]
    pub fn is_acknowledged(&self, uid: &str, bytes: &[u8]) -> bool {
        files::read(&self.acknowledgements().join(uid)).is_ok_and(|read| read == bytes)
    }

    /// Removes an entry that has ended, once the guardian has acknowledged that.
    ///
    /// # Errors
    /// Returns an error if a file cannot be removed.
    pub fn remove(&self, uid: &str) -> Result<(), TableError> {
        for path in [self.entries().join(uid), self.acknowledgements().join(uid)] {
            match fs::remove_file(&path) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => {
                    return Err(failed("removing", &path, cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), TableError> {
        let temporary = self.temporary(path);
        fs::write(&temporary, bytes).map_err(|cause| failed("writing", &temporary, cause))?;
        fs::rename(&temporary, path).map_err(|cause| failed("replacing", path, cause))
    }

    fn temporary(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{TEMPORARY}{name}.{}", self.writer))
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> TableError {
    TableError {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
pub(crate) mod tests;
