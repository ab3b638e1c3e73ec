//! Stores the pods that wait for their start, as the agent last saw them: they have no entry. Only people
//! read the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{PodName, Table, TableError, failed, files};

const WAITING: &str = "waiting";

/// A pod that has had no permit so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub pod: PodName,
    /// `namespace/name` of the declared lock.
    pub declared: String,
    /// The reason why the last round gave no start permit.
    pub why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    boot_id: String,
    pods: BTreeMap<String, Waiting>,
}

impl Table {
    /// Replaces the pods, which are given by UID.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn show_waiting(&self, pods: &BTreeMap<String, Waiting>) -> Result<(), TableError> {
        let path = self.directory.join(WAITING);
        let file = File {
            boot_id: self.boot_id.clone(),
            pods: pods.clone(),
        };
        let bytes = serde_json::to_vec(&file).map_err(|cause| failed("encoding", &path, cause.into()))?;
        self.replace(&path, &bytes)
    }

    /// Returns the pods that an agent has shown since the machine booted.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<String, Waiting> {
        let read = files::read(&self.directory.join(WAITING)).ok();
        let file = read.and_then(|bytes| serde_json::from_slice::<File>(&bytes).ok());
        let file = file.filter(|file| file.boot_id == self.boot_id);
        file.map(|file| file.pods).unwrap_or_default()
    }
}
