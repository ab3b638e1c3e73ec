//! The arguments of the index beside an input: the time, and read-only views of the handles that the executor owns.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::plan::QuorumPlan,
    controller::{events::timestamp_at, object::ObjectKey, secrets::Found},
    elector::LockView,
    lease::{Authority, BootInstant, FencingToken, Holder, LockName, Takeover},
    masters::{MasterStatus, QuorumId},
};

/// The index reads clocks and handles only through this type, so tests can replace them.
pub(in crate::controller) struct World<'a> {
    pub(in crate::controller) now: BootInstant,
    /// Time since 1970, by the wall clock.
    pub(in crate::controller) unix: Duration,
    pub(in crate::controller) views: &'a dyn Views,
}

impl World<'_> {
    /// The wall clock, for people.
    pub(super) fn stamp(&self) -> Timestamp {
        timestamp_at(self.unix)
    }
}

/// No method blocks, and none changes anything.
pub(in crate::controller) trait Views {
    /// How a lock stands on a quorum; `None` where this replica neither contends for it nor watches it.
    fn lock(&self, quorum: &str, lock: &LockName, now: BootInstant) -> Option<LockSnapshot>;
    /// `None` where the quorum is not open.
    fn masters(&self, quorum: &str) -> Option<Vec<MasterStatus>>;
    /// A majority of the masters votes.
    fn has_majority(&self, quorum: &str) -> bool;
    fn quorum_id(&self, quorum: &str) -> Option<QuorumId>;
    /// What keeps this replica from being ready, unless it is or was.
    fn unready(&self) -> Option<Unready>;
    /// The target task of this lock has panicked, whether the index was told or not.
    fn target_task_ended(&self, key: &ObjectKey) -> bool;
    /// What the Secrets hold that this plan names.
    fn access(&self, plan: &QuorumPlan) -> Found;
}

/// Why this replica is not ready.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct Unready {
    pub(in crate::controller) message: String,
    /// The quorums of which the first majority is still awaited.
    pub(in crate::controller) unseen: Vec<String>,
}

/// How a lock stands at one moment.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct LockSnapshot {
    /// Of this process.
    pub(in crate::controller) authority: Option<Authority>,
    /// Who else holds it.
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
