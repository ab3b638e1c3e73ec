//! Stores the report of the guardian about itself.

use std::{collections::BTreeMap, time::Duration};

use redlock_core::BootInstant;
use serde::{Deserialize, Serialize};

use super::{Entry, Table, TableError, failed, files};

pub(super) const HEARTBEAT: &str = "guardian";

/// The last report of the guardian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub process: u32,
    pub(super) boot_id: String,
    pub(super) beat_boot_nanoseconds: u64,
    /// The reasons why the guardian is degraded, such as the lack of real-time scheduling or locked memory.
    pub degraded: Vec<String>,
    pub pods: usize,
    /// The pods, by UID, that the guardian cannot freeze, and why.
    #[serde(default)]
    pub unable: BTreeMap<String, String>,
    /// The reason why the guardian can freeze no pod of the node, if it cannot.
    #[serde(default)]
    pub node_unable: Option<String>,
    /// Names the process: two guardians may have the same process id, each in its own container.
    #[serde(default)]
    writer: String,
}

/// The report of a guardian about itself, before it is stamped with process and time.
#[derive(Clone, Debug, Default)]
pub struct GuardianReport {
    pub degraded: Vec<String>,
    pub pods: usize,
    pub unable: BTreeMap<String, String>,
    pub node_unable: Option<String>,
}

/// The longest silence of a guardian that runs: it reports every second.
const SILENT: Duration = Duration::from_secs(3);

impl Heartbeat {
    #[must_use]
    pub fn runs(&self, now: BootInstant) -> bool {
        self.age(now) <= SILENT
    }

    /// Reports whether the guardian has reported after this time.
    #[must_use]
    pub const fn is_after(&self, since: BootInstant) -> bool {
        self.beat_boot_nanoseconds > since.as_nanos()
    }

    /// Reports whether the guardian has read this entry, or a later one, before the report.
    #[must_use]
    pub const fn is_later_than(&self, entry: &Entry) -> bool {
        self.beat_boot_nanoseconds > entry.generation
    }

    #[must_use]
    pub fn age(&self, now: BootInstant) -> Duration {
        now.since(BootInstant::from_nanos(self.beat_boot_nanoseconds))
    }
}

impl Table {
    /// Reports whether another guardian than the process with this table has reported since `since`, and can freeze pods.
    #[must_use]
    pub fn has_other_guardian(&self, since: BootInstant) -> bool {
        self.heartbeat().is_some_and(|heartbeat| {
            heartbeat.writer != self.writer && heartbeat.node_unable.is_none() && heartbeat.is_after(since)
        })
    }

    /// Records that the guardian runs.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_heartbeat(&self, report: GuardianReport, now: BootInstant) -> Result<(), TableError> {
        let path = self.directory.join(HEARTBEAT);
        let heartbeat = Heartbeat {
            process: std::process::id(),
            boot_id: self.boot_id.clone(),
            beat_boot_nanoseconds: now.as_nanos(),
            degraded: report.degraded,
            pods: report.pods,
            unable: report.unable,
            node_unable: report.node_unable,
            writer: self.writer.clone(),
        };
        let bytes =
            serde_json::to_vec(&heartbeat).map_err(|cause| failed("encoding", &path, cause.into()))?;
        self.replace(&path, &bytes)
    }

    /// Returns the last report; `None` if no guardian has reported since the machine booted.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Heartbeat> {
        let bytes = files::read(&self.directory.join(HEARTBEAT)).ok()?;
        let heartbeat: Heartbeat = serde_json::from_slice(&bytes).ok()?;
        (heartbeat.boot_id == self.boot_id).then_some(heartbeat)
    }
}
