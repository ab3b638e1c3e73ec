//! Defines the state of a pod in an entry of the table.

use redlock_core::{
    BootInstant, FencingToken,
    fence::{Lineage, Release, Run},
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EntryState {
    /// The pod is about to start under this permit, and its cgroup is empty and frozen. The guardian acknowledges the
    /// entry only after it has frozen the cgroup itself.
    Starting(PermittedRun),
    /// The pod may run until the end of the permit.
    Permitted(PermittedRun),
    /// The pod was killed, and may be about to start afresh. `seen` is the greatest token that this node had
    /// seen.
    Killed {
        start: Option<PermittedRun>,
        #[serde(default)]
        seen: u64,
    },
    /// An administrator lets the pod run without a permit.
    Released(ReleasedRun),
    /// The volume of the pod is unpublished: the pod is no longer guarded.
    Ended,
}

impl EntryState {
    /// Reports whether the pod is about to start, or to start afresh.
    pub(super) const fn is_start(&self) -> bool {
        match self {
            Self::Starting(_) | Self::Killed { start: Some(_), .. } => true,
            Self::Permitted(_) | Self::Killed { start: None, .. } | Self::Released(_) | Self::Ended => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermittedRun {
    first: u64,
    token: u64,
    until_boot_nanoseconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedRun {
    /// `first` and token of the lineage of a pod that was frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lineage: Option<(u64, u64)>,
    /// The greatest token that this node had seen.
    seen: u64,
    /// The reason that the administrator gave.
    pub reason: String,
}

impl From<Run> for PermittedRun {
    fn from(run: Run) -> Self {
        Self {
            first: run.lineage.first.0,
            token: run.lineage.token.0,
            until_boot_nanoseconds: run.until.as_nanos(),
        }
    }
}

impl PermittedRun {
    #[must_use]
    pub const fn run(self) -> Run {
        Run {
            lineage: Lineage {
                first: FencingToken(self.first),
                token: FencingToken(self.token),
            },
            until: BootInstant::from_nanos(self.until_boot_nanoseconds),
        }
    }
}

impl ReleasedRun {
    #[must_use]
    pub fn new(release: Release, reason: String) -> Self {
        Self {
            lineage: release.lineage.map(|lineage| (lineage.first.0, lineage.token.0)),
            seen: release.seen.0,
            reason,
        }
    }

    #[must_use]
    pub fn release(&self) -> Release {
        Release {
            lineage: self.lineage.map(|(first, token)| Lineage {
                first: FencingToken(first),
                token: FencingToken(token),
            }),
            seen: FencingToken(self.seen),
        }
    }
}
