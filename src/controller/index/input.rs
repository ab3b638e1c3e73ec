//! The inputs of the index: observations, reports of target tasks, and the results of effects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{
    drain::{Drained, Purpose},
    failover::Failover,
    in_use::Guarded,
    urls::RetiredUrl,
};
use crate::{
    api::{LeaderLock, RedisQuorum},
    controller::{
        object::ObjectKey,
        observe::Observation,
        sibling_answers::Round,
        target_task::TargetReport,
        templates::Read,
        writer::{Item, Written},
    },
    lease::FencingToken,
    masters::{InitError, InitReport, Reporters, RetireOutcome},
    operator::metrics_watcher::Change,
};

#[derive(Debug)]
pub(in crate::controller) enum Input {
    /// By the watch of this namespace; of all, where it is empty.
    Lock(String, Observation<LeaderLock>),
    Quorum(Observation<RedisQuorum>),
    /// A Secret that quorums name holds something else.
    SecretsChanged,
    Template(Read),
    /// Another holder of a lock, or none any more.
    Lease(Change),
    Report(TargetReport),
    /// A target task ended that must not.
    TargetTaskEnded(ObjectKey),
    /// What only time changes is due.
    Tick,

    /// How the write of a status ended.
    Written(Item, Written),
    /// The finalizer of the lock with this UID.
    Finalizer {
        key: ObjectKey,
        uid: Option<String>,
        end: Result<FinalizerEnd, String>,
    },
    /// The finalizer of a quorum.
    QuorumFinalizers(String, Guarded),
    /// That this cluster abstains is in the object, or not.
    Abstains(ObjectKey, Failover, Result<Box<LeaderLock>, String>),
    HandOverAnswered(ObjectKey),
    /// An unreadable object that is being deleted, if it is still there; its metadata as seen before, if the read broke
    /// off.
    Salvaged(ObjectKey, Result<Option<Box<Value>>, Box<ObjectMeta>>),

    /// Whether everything of a lock that is taken away was stopped.
    Stopped(ObjectKey, bool),
    /// The same of one that is to be passed on.
    Drained(ObjectKey, Purpose, Box<Drained>),

    QuorumClosed(String),
    /// A quorum could not be opened.
    NotOpened(String, String),
    /// The masters still use the old url.
    NotReplaced(RetiredUrl, String),
    /// The first start of the masters; `None` if it broke off.
    Initialized(String, Option<Result<InitReport, InitError>>),
    /// The token that a status has, and the largest counter that a majority reports.
    Counter(ObjectKey, i64, Option<FencingToken>),
    /// The clusters that report on a quorum.
    Clusters(String, Reporters),
    /// Whether the server behind the old url has lost its vote.
    Retired(RetiredUrl, Result<RetireOutcome, String>),
    Said(Round),
    /// What the siblings say of the use of a quorum whose finalizer is to be removed; none if the question broke off.
    Uses(String, Option<Round>),
    /// Nothing hangs on how a task ended.
    Nothing,
}

/// How a request to add or remove the finalizer of a lock ended.
#[derive(Debug)]
pub(in crate::controller) enum FinalizerEnd {
    /// The object as it is now.
    Written(Box<LeaderLock>),
    /// The finalizer is removed. This version cannot read the rest of the object.
    Unread,
    /// There is no such object, or its definition is not served for a while.
    Gone,
}
