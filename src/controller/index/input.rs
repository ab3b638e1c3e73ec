//! Defines the inputs of the index: observations, reports of target tasks, and the results of effects.

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

use super::{
    coordinator::CoordinatorWriteEnd,
    drain::{Drained, Purpose},
    failover::Failover,
    in_use::Guarded,
    lock_read::LockReadEnd,
    status_memory::WrittenToken,
    urls::RetiredUrl,
    willing::WillingQuestion,
};
use crate::{
    api::{LeaderLock, RedisQuorum},
    controller::{
        node_guards::NodeGuards,
        object::ObjectKey,
        observe::Observation,
        sibling_answers::Round,
        target_task::TargetReport,
        templates::Read,
        writer::{Item, Written},
    },
    lease::{BootInstant, FencingToken},
    masters::{InitError, InitReport, Reporters, RetireOutcome, TakesPart},
    operator::metrics_watcher::Change,
};

#[derive(Debug)]
pub(in crate::controller) enum Input {
    /// An observation from the watch of this namespace; an empty name stands for all namespaces.
    Lock(String, Observation<LeaderLock>),
    Quorum(Observation<RedisQuorum>),
    /// The content of a Secret that quorums name has changed.
    SecretsChanged,
    Template(Read),
    /// The holder of a lock has changed, or the lock became free.
    Lease(Change),
    Report(TargetReport),
    /// A target task ended unexpectedly.
    TargetTaskEnded(ObjectKey),
    /// Decisions that depend on time alone are due.
    Tick,

    /// The result of the write of a status.
    Written(Item, Written),
    /// The result of a write of the finalizer of the lock with this UID.
    Finalizer {
        key: ObjectKey,
        uid: Option<String>,
        end: Result<FinalizerEnd, String>,
    },
    /// The result of a consistent read of a lock's object, which was sent at this time.
    LockRead {
        key: ObjectKey,
        sent: BootInstant,
        end: LockReadEnd,
    },
    /// The result of a write of a quorum's finalizers.
    QuorumFinalizers(String, Guarded),
    /// The result of writing the abstention of this cluster.
    Abstains(ObjectKey, Failover, Result<Box<LeaderLock>, String>),
    HandOverAnswered(ObjectKey),
    /// An unreadable object that is being deleted, if it still exists; the metadata seen before, if the read
    /// ended unexpectedly.
    Salvaged(ObjectKey, Result<Option<Box<Value>>, Box<ObjectMeta>>),

    /// Whether all targets of a lock that is withdrawn were stopped.
    Stopped(ObjectKey, bool),
    /// The result of a drain.
    Drained(ObjectKey, Purpose, Box<Drained>),

    QuorumClosed(String),
    /// A quorum could not be opened.
    NotOpened(String, String),
    /// The masters still use the old URL.
    NotReplaced(RetiredUrl, String),
    /// Whether the new masters carry the probes of `init`; `None` if the task ended unexpectedly.
    InitializationBegun(String, Option<Result<(), InitError>>),
    /// The result of the first start of the masters; `None` if it ended unexpectedly.
    Initialized(String, Option<Result<InitReport, InitError>>),
    /// The token in a status, and the largest counter that a majority reports.
    Counter(WrittenToken, Option<FencingToken>),
    /// The clusters that report on a quorum.
    Clusters(String, Reporters),
    /// Whether other clusters take part in locks of a quorum; empty if the question ended unexpectedly.
    Willing(String, Vec<(WillingQuestion, Vec<TakesPart>)>),
    /// Whether the server behind the old URL has lost its vote.
    Retired(RetiredUrl, Result<RetireOutcome, String>),
    SiblingsAnswered(Round),
    /// An observation of the Lease of the coordinator.
    Coordinator(Observation<Lease>),
    /// The result of a write of that Lease.
    CoordinatorWritten(CoordinatorWriteEnd),
    /// The nodes whose agents and guardians are ready.
    NodeGuards(NodeGuards),
    /// The siblings' answers about the use of a quorum whose finalizer is to be removed; `None` if the
    /// question ended unexpectedly.
    Uses(String, Option<Round>),
    /// A task ended without a result that matters.
    Nothing,
}

/// The result of a request to add or remove the finalizer of a lock.
#[derive(Debug)]
pub(in crate::controller) enum FinalizerEnd {
    /// The present object.
    Written(Box<LeaderLock>),
    /// The finalizer is removed. This version cannot read the rest of the object.
    Unread,
    /// The object does not exist, or its definition is not served for a while.
    Gone,
}
