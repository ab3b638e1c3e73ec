//! Stores the requests of an administrator to release pods: a file for each pod, which the agent that acts
//! removes.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use redlock_core::BootInstant;
use serde::{Deserialize, Serialize};

use super::{Table, TableError, failed, files};

const REQUESTS: &str = "releases";
/// The life of a request. The agent that acts takes a request within a second. The administrator no longer
/// waits for the answer to an older request.
const LIFE: Duration = Duration::from_secs(10);

/// A request to release one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRequest {
    boot_id: String,
    asked_boot_nanoseconds: u64,
    pub uid: String,
    pub reason: String,
}

impl ReleaseRequest {
    /// Reports whether the administrator still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self, now: BootInstant) -> bool {
        now.since(BootInstant::from_nanos(self.asked_boot_nanoseconds)) < LIFE
    }
}

impl Table {
    pub(super) fn requests(&self) -> PathBuf {
        self.directory.join(REQUESTS)
    }

    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn request_release(&self, uid: &str, reason: &str, now: BootInstant) -> Result<(), TableError> {
        let path = self.requests().join(uid);
        let request = ReleaseRequest {
            boot_id: self.boot_id.clone(),
            asked_boot_nanoseconds: now.as_nanos(),
            uid: uid.to_owned(),
            reason: reason.to_owned(),
        };
        let bytes = serde_json::to_vec(&request).map_err(|cause| failed("encoding", &path, cause.into()))?;
        self.replace(&path, &bytes)
    }

    /// Withdraws a request; returns false if it was already removed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed: whether the request will be carried out is then
    /// unknown.
    pub fn withdraw_release(&self, uid: &str) -> Result<bool, TableError> {
        take_away(&self.requests().join(uid))
    }

    /// Reports whether a request waits to be taken.
    #[must_use]
    pub fn has_request(&self, uid: &str) -> bool {
        self.requests().join(uid).exists()
    }

    /// Removes all requests, and returns those of this boot that an administrator still waits for. A request
    /// that cannot be removed is not carried out: it would be carried out again later.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn take_releases(&self, now: BootInstant) -> Result<Vec<ReleaseRequest>, TableError> {
        let taken = files::names(&self.requests())?.into_iter().filter_map(|uid| {
            let path = self.requests().join(&uid);
            let bytes = files::read(&path);
            take_away(&path).ok().filter(|taken| *taken)?;
            let request: ReleaseRequest = serde_json::from_slice(&bytes.ok()?).ok()?;
            let waits = request.boot_id == self.boot_id && request.is_awaited(now);
            (waits && request.uid == uid).then_some(request)
        });
        Ok(taken.collect())
    }
}

fn take_away(path: &Path) -> Result<bool, TableError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(failed("removing", path, cause)),
    }
}
