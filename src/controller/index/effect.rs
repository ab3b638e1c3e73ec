//! Defines the decisions of the index as values. The executor performs each of them and returns the result as an
//! [`Input`](super::Input).

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{
    coordinator::CoordinatorWrite,
    drain::{Drained, Purpose},
    failover::Failover,
    status_memory::WrittenToken,
    urls::RetiredUrl,
    willing::WillingQuestion,
};
use crate::{
    api::{
        LeaderLock,
        abstention::Abstention,
        hand_over::HandOverAnswer,
        in_force::InForce,
        plan::{LockPlan, QuorumPlan},
        target::TargetRef,
    },
    controller::{
        coordination::CoordinatorView,
        events::EventRecord,
        index::OwnTokens,
        object::ObjectKey,
        sibling_answers::Asked,
        target_task::{Permissions, StopRequest},
    },
    lease::{BootInstant, ClusterId, FencingToken, LockName, ReleaseMode, Terms},
    masters::{OldServer, QuorumId},
    operator::{access::Access, state::InUse},
};

/// A decision of the index, by the part of the executor that performs it.
#[derive(Debug)]
pub(in crate::controller) enum Effect {
    Status(StatusWrite),
    Object(ObjectRequest),
    Targets(TargetTaskChange),
    Watch(WatchChange),
    Quorum(QuorumChange),
    Elector(ElectorChange),
    Masters(MastersRequest),
    Siblings(SiblingRequest),
    /// Emit an event.
    Record(EventRecord),
    /// Publish the state that the HTTP side shows, except for the handles of the quorums.
    Publish(Box<InUse>),
    /// End the process in the ordinary way. The kubelet starts the next one.
    EndProcess,
}

/// A status that replaces that of one version of an object.
#[derive(Debug)]
pub(in crate::controller) enum StatusWrite {
    Lock {
        key: ObjectKey,
        version: String,
        status: Value,
    },
    Quorum {
        name: String,
        version: String,
        status: Value,
    },
}

/// A request to the API server other than the write of a status.
#[derive(Debug)]
pub(in crate::controller) enum ObjectRequest {
    /// Change the finalizer of the object with this UID, not of a new one with the same name.
    SetFinalizer {
        key: ObjectKey,
        uid: Option<String>,
        change: FinalizerChange,
    },
    /// Read the object from the API server, not from a cache.
    ReadLock(ObjectKey),
    /// Write the finalizers of this version of a RedisQuorum. An addition waits for its turn.
    SetQuorumFinalizers {
        name: String,
        version: Option<String>,
        finalizers: Vec<String>,
        adds: bool,
    },
    /// Write into the object that this cluster leaves the lock to the others.
    Abstain {
        key: ObjectKey,
        object: Box<LeaderLock>,
        abstention: Abstention,
        failover: Failover,
    },
    /// Remove the abstention from the object.
    EndAbstention { key: ObjectKey, object: Box<LeaderLock> },
    AnswerHandOver {
        key: ObjectKey,
        request: String,
        answer: HandOverAnswer,
    },
    /// Read an object that is being deleted, after a pause.
    ReadDeleted {
        key: ObjectKey,
        metadata: Box<ObjectMeta>,
        pause: Duration,
    },
    /// Write the Lease of the coordinator.
    WriteCoordinator(CoordinatorWrite),
}

/// A change of the tasks that switch the targets of locks.
#[derive(Debug)]
pub(in crate::controller) enum TargetTaskChange {
    /// Start the task of a lock, replacing an earlier one.
    Start(Box<TargetTaskStart>),
    Update {
        key: ObjectKey,
        plan: Arc<LockPlan>,
        hands: Permissions,
    },
    /// Stop all targets of a lock.
    Stop {
        key: ObjectKey,
        halt: StopRequest,
        after: AfterStop,
    },
    /// Revoke the stop of a lock's targets, unless they are stopped already.
    Resume(ObjectKey),
    /// Revoke the stop of a departure, unless it is carried out already.
    CancelDeparture(ObjectKey),
    End(ObjectKey),
    /// Pass the coordinator, or its renewal, to all target tasks.
    PublishCoordinator(CoordinatorView),
}

/// A change of what the executor follows on the API server, beside the objects of the operator.
#[derive(Debug)]
pub(in crate::controller) enum WatchChange {
    /// Follow the pods of the node agents and guardians, if they are not followed yet.
    FollowNodeGuards,
    FollowTemplate(ObjectKey, TargetRef),
    UnfollowTemplate(ObjectKey, TargetRef),
    /// Read a template without delay: the lock cannot be used before.
    HurryTemplate(ObjectKey, TargetRef),
    /// Follow exactly the Secrets that these plans name.
    FollowSecrets(Vec<QuorumPlan>),
}

/// A change of the quorums that this process has opened.
#[derive(Debug)]
pub(in crate::controller) enum QuorumChange {
    Open {
        plan: Box<QuorumPlan>,
        access: Box<Access>,
        stored: Option<QuorumId>,
    },
    Close {
        name: String,
        why: &'static str,
    },
    /// Use these credentials and certificates, and the other settings that can change while the quorum is open.
    Adjust {
        plan: Box<QuorumPlan>,
        access: Box<Access>,
    },
    /// Use the new URL of a master.
    ReplaceUrl(RetiredUrl),
    RememberToken {
        quorum: String,
        token: FencingToken,
    },
    ForgetMetrics(String),
    /// Report that the object of a quorum is gone.
    ReportGone(String),
}

/// A change of the locks for which an elector contends.
#[derive(Debug)]
pub(in crate::controller) enum ElectorChange {
    ActivateLock(Arc<LockPlan>),
    RemoveLock {
        quorum: String,
        lock: LockName,
        release_mode: ReleaseMode,
    },
    /// Contend for a lock of the operator itself.
    PutInternal {
        quorum: String,
        lock: LockName,
        terms: Terms,
    },
    /// Release a lock of the operator itself, and no longer contend for it.
    RemoveInternal {
        quorum: String,
        lock: LockName,
    },
    HandOver {
        quorum: String,
        lock: LockName,
        token: FencingToken,
        to: ClusterId,
    },
}

/// A request to the masters of a quorum.
#[derive(Debug)]
pub(in crate::controller) enum MastersRequest {
    /// Write the probes of `init` on new masters.
    BeginInitialization(String),
    Initialize(String),
    AskClusters(String),
    /// Remove the registers that ended locks left on the masters of a quorum.
    ForgetEnded(String),
    /// Ask the masters of a quorum whether other clusters take part in locks.
    AskWilling {
        quorum: String,
        questions: Vec<WillingQuestion>,
    },
    /// Read the largest counter that a majority reports, to check a token in the status of a lock.
    AskCounter(WrittenToken),
    /// Remove the vote of the server behind the old URL.
    RetireUrl(RetiredUrl, OldServer),
}

/// A request to the other replicas of this release.
#[derive(Debug)]
pub(in crate::controller) enum SiblingRequest {
    AskAll(Asked),
    /// Ask whether a sibling needs a finalizer of this quorum.
    AskUses(String, Asked),
}

/// A change of the finalizer of a lock, and of the record that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) enum FinalizerChange {
    /// Add the finalizer, and record under which lock the targets may run.
    Add(InForce),
    /// Remove finalizer and record. With a version, only from that version of the object.
    Remove { version: Option<String> },
}

impl FinalizerChange {
    pub(in crate::controller) const fn adds(&self) -> bool {
        match self {
            Self::Add(_) => true,
            Self::Remove { .. } => false,
        }
    }
}

/// The parameters of a new target task.
#[derive(Debug)]
pub(in crate::controller) struct TargetTaskStart {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) plan: Arc<LockPlan>,
    pub(in crate::controller) hands: Permissions,
    /// Whether no masters can be asked for the state of the lock.
    pub(in crate::controller) detached: bool,
    pub(in crate::controller) own_tokens: OwnTokens,
}

/// The step after a stop.
#[derive(Clone, Debug)]
pub(in crate::controller) enum AfterStop {
    /// The lock is withdrawn, at this time at the latest.
    TakenAway(BootInstant),
    /// The lease is handed over.
    Drained(Purpose, Box<Drained>),
}
