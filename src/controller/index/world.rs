//! Defines the arguments that the index takes in addition to an input: the time, and read-only views of the
//! executor's handles.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::plan::QuorumPlan,
    controller::{events::timestamp_at, object::ObjectKey, secrets::Found},
    elector::LockView,
    lease::{Authority, BootInstant, FencingToken, Holder, LockName, Takeover},
    masters::{MasterStatus, QuorumId},
};

/// The index reads clocks and handles only through this type, so that tests can replace them.
pub(in crate::controller) struct World<'a> {
    pub(in crate::controller) now: BootInstant,
    /// Time since 1970, according to the wall clock.
    pub(in crate::controller) unix: Duration,
    pub(in crate::controller) views: &'a dyn Views,
}

impl World<'_> {
    /// Returns the wall clock time, for human readers.
    pub(super) fn stamp(&self) -> Timestamp {
        timestamp_at(self.unix)
    }
}

/// Read-only views of the handles. No method blocks.
pub(in crate::controller) trait Views {
    /// Returns the state of a lock on a quorum; `None` if this replica neither contends for it nor watches it.
    fn lock(&self, quorum: &str, lock: &LockName, now: BootInstant) -> Option<LockSnapshot>;
    /// Returns the states of the masters; `None` if the quorum is not open.
    fn masters(&self, quorum: &str) -> Option<Vec<MasterStatus>>;
    /// Reports whether a majority of the masters votes and accepts writes. A master that refuses a write reports no lock of
    /// the same request, so that a holder may not be seen.
    fn has_majority(&self, quorum: &str) -> bool;
    fn quorum_id(&self, quorum: &str) -> Option<QuorumId>;
    /// Reports whether the API server does not answer this replica.
    fn is_api_server_lost(&self) -> bool;
    /// Returns why this replica is not ready; `None` if it is or has been ready.
    fn unready(&self) -> Option<Unready>;
    /// Reports whether the target task of this lock has panicked, even if the index has not been notified.
    fn target_task_ended(&self, key: &ObjectKey) -> bool;
    /// Returns the content of the Secrets that this plan names.
    fn access(&self, plan: &QuorumPlan) -> Found;
}

/// The reason why this replica is not ready.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct Unready {
    pub(in crate::controller) message: String,
    /// The quorums whose first majority is still awaited.
    pub(in crate::controller) unseen: Vec<String>,
}

/// The state of a lock at one moment.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct LockSnapshot {
    /// The authority of this process.
    pub(in crate::controller) authority: Option<Authority>,
    /// The other process that holds the lock.
    pub(in crate::controller) holder: Option<Holder>,
    pub(in crate::controller) last_token: Option<FencingToken>,
    /// Time since 1970 of the last acquisition by this process.
    pub(in crate::controller) acquired: Option<Duration>,
    pub(in crate::controller) takeover: Option<Takeover>,
    pub(in crate::controller) takeover_gap: Option<Duration>,
    pub(in crate::controller) last_holder: Option<Holder>,
    pub(in crate::controller) former_holder: Option<Holder>,
}

impl LockSnapshot {
    pub(in crate::controller) fn of(snapshot: &LockView, now: BootInstant) -> Self {
        Self {
            authority: snapshot.authority_at(now),
            holder: snapshot.holder_at(now).cloned(),
            last_token: snapshot.last_token(),
            acquired: snapshot.acquired,
            takeover: snapshot.takeover,
            takeover_gap: snapshot.takeover_gap,
            last_holder: snapshot.last_holder.clone(),
            former_holder: snapshot.former_holder.clone(),
        }
    }
}
