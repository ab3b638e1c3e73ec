//! What the guardian reports of itself.

use std::time::Duration;

use redlock_core::BootInstant;
use serde::{Deserialize, Serialize};

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
