//! Defines the report of the agent, for metrics, events, conditions and readiness.

use std::time::Duration;

use redlock_core::fence::FREEZE_BEFORE;

use crate::table::{Heartbeat, PodName};

/// The upper bounds of the buckets of [`Latency`]: the margin before the end of a permit, half of it, and less.
pub const BOUNDS: [Duration; 8] = [
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    FREEZE_BEFORE,
];

#[derive(Clone, Debug)]
pub struct Report {
    pub pods: Vec<PodReport>,
    pub quorums: Vec<QuorumReport>,
    /// `None` if no guardian has reported since the machine booted.
    pub guardian: Option<Heartbeat>,
    /// Whether the node uses cgroups of version 2; `None` if that cannot be read.
    pub cgroup2: Option<bool>,
    /// The reason why this agent can freeze no pod of the node, if it cannot.
    pub cannot_freeze: Option<String>,
    /// The times of the freezes at the ends of permits, each from the moment at which it is due until it is written, and of
    /// the trials before the starts of pods.
    pub latency: Latency,
}

/// The state of a pod. A pod counts as frozen where its cgroup shows that, and not because the agent decided on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedState {
    Waiting,
    Confirming,
    Storing,
    Running,
    Frozen,
    Killed,
    Released,
    Refused,
    /// The permit has ended, the freeze cannot be written, and processes of the pod run.
    NotFrozen,
    /// The permit has ended, and whether processes of the pod run is unknown.
    Unconfirmed,
}

impl ReportedState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Confirming => "confirming",
            Self::Storing => "storing",
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Killed => "killed",
            Self::Released => "released",
            Self::Refused => "refused",
            Self::NotFrozen => "not_frozen",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

#[derive(Clone, Debug)]
pub struct PodReport {
    pub pod: PodName,
    /// `namespace/name` of the declared lock; empty if unknown.
    pub lock: String,
    pub state: ReportedState,
    /// The remaining time of its permit.
    pub permit: Option<Duration>,
    /// Whether the guardian has acknowledged its record, and agent and guardian can freeze it; also true without a
    /// record.
    pub guarded: bool,
}

#[derive(Clone, Debug)]
pub struct QuorumReport {
    pub name: String,
    /// Number of masters that can vote now.
    pub voters: usize,
    pub masters: usize,
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// The count of each bucket of [`BOUNDS`], not cumulative.
    pub counts: [u64; BOUNDS.len()],
    pub count: u64,
    pub sum: Duration,
    pub max: Duration,
}

impl Latency {
    pub(super) fn add(&mut self, late: Duration) {
        if let Some(bucket) = BOUNDS.iter().position(|bound| late <= *bound) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += late;
        self.max = self.max.max(late);
    }
}

/// A change of one pod, for an event.
#[derive(Clone, Debug)]
pub struct Change {
    pub pod: PodName,
    pub lock: String,
    pub kind: ChangeKind,
    /// The reason that the administrator gave for a release, or the reason why the pod was frozen, not frozen or
    /// killed; otherwise empty.
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Started,
    Fenced,
    /// The permit has ended, and the pod is not known to stand still.
    NotFrozen,
    /// The containers of the pod run outside its cgroup, so no freeze reaches them.
    NotFenced,
    Thawed,
    Killed,
    Released,
}
