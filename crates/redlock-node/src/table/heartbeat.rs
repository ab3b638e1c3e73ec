//! What the guardian reports of itself.

use std::{fs, time::Duration};

use redlock_core::BootInstant;
use serde::{Deserialize, Serialize};

use super::{Table, TableError, failed};

pub(super) const HEARTBEAT: &str = "guardian";

/// The guardian, as it reported last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub process: u32,
    pub(super) boot_id: String,
    pub(super) beat_boot_nanoseconds: u64,
    /// What it could not get: real-time scheduling, locked memory.
    pub degraded: Vec<String>,
    pub pods: usize,
}

/// The guardian reports each second. A longer silence is that of one that does not run.
const SILENT: Duration = Duration::from_secs(3);

impl Heartbeat {
    #[must_use]
    pub fn runs(&self, now: BootInstant) -> bool {
        self.age(now) <= SILENT
    }

    #[must_use]
    pub fn age(&self, now: BootInstant) -> Duration {
        now.since(BootInstant::from_nanos(self.beat_boot_nanoseconds))
    }
}

impl Table {
    /// Records that the guardian runs.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_heartbeat(
        &self,
        degraded: &[String],
        pods: usize,
        now: BootInstant,
    ) -> Result<(), TableError> {
        let path = self.directory.join(HEARTBEAT);
        let heartbeat = Heartbeat {
            process: std::process::id(),
            boot_id: self.boot_id.clone(),
            beat_boot_nanoseconds: now.as_nanos(),
            degraded: degraded.to_vec(),
            pods,
        };
        let bytes =
            serde_json::to_vec(&heartbeat).map_err(|cause| failed("encoding", &path, cause.into()))?;
        self.replace(&path, &bytes)
    }

    /// `None` if no guardian has reported since the machine booted.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Heartbeat> {
        let bytes = fs::read(self.directory.join(HEARTBEAT)).ok()?;
        let heartbeat: Heartbeat = serde_json::from_slice(&bytes).ok()?;
        (heartbeat.boot_id == self.boot_id).then_some(heartbeat)
    }
}
