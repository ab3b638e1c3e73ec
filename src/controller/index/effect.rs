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

#[derive(Debug)]
pub(in crate::controller) enum Effect {
    /// Replace the status of this version of a LeaderLock.
    WriteLock {
        key: ObjectKey,
        version: String,
        status: Value,
    },
    /// Replace the status of this version of a RedisQuorum.
    WriteQuorum {
        name: String,
        version: String,
        status: Value,
    },
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
    EndAbstention {
        key: ObjectKey,
        object: Box<LeaderLock>,
    },
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
    Record(EventRecord),

    /// Start the task that switches the targets of a lock, replacing an earlier one.
    StartTargetTask(Box<TargetTaskStart>),
    UpdateTargetTask {
        key: ObjectKey,
        plan: Arc<LockPlan>,
        hands: Permissions,
    },
    /// Stop all targets of a lock.
    StopTargets {
        key: ObjectKey,
        halt: StopRequest,
        after: AfterStop,
    },
    /// Revoke the stop of a lock's targets, unless they are stopped already.
    ResumeTargets(ObjectKey),
    /// Revoke the stop of a departure, unless it is carried out already.
    CancelDeparture(ObjectKey),
    EndTargetTask(ObjectKey),
    /// Follow the pods of the node agents and guardians, if they are not followed yet.
    FollowNodeGuards,
    FollowTemplate(ObjectKey, TargetRef),
    UnfollowTemplate(ObjectKey, TargetRef),
    /// Read a template without delay: the lock cannot be used before.
    HurryTemplate(ObjectKey, TargetRef),
    /// Follow exactly the Secrets that these plans name.
    FollowSecrets(Vec<QuorumPlan>),

    OpenQuorum {
        plan: QuorumPlan,
        access: Access,
        stored: Option<QuorumId>,
    },
    CloseQuorum {
        name: String,
        why: &'static str,
    },
    /// Use these credentials and certificates, and the other settings that can change while the quorum is open.
    AdjustQuorum {
        plan: QuorumPlan,
        access: Access,
    },
    /// Use the new URL of a master.
    ReplaceUrl(RetiredUrl),
    /// Remove the vote of the server behind the old URL.
    RetireUrl(RetiredUrl, OldServer),
    /// Write the probes of `init` on new masters.
    BeginInitialization(String),
    InitializeMasters(String),
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
    RememberToken {
        quorum: String,
        token: FencingToken,
    },
    ForgetQuorumMetrics(String),
    /// End the process in the ordinary way. The kubelet starts the next one.
    EndProcess,
    /// Report that the object of a quorum is gone.
    QuorumGone(String),

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

    /// Write the Lease of the coordinator.
    WriteCoordinator(CoordinatorWrite),
    /// Pass the coordinator, or its renewal, to the target tasks.
    PublishCoordinator(CoordinatorView),
    AskSiblings(Asked),
    /// Ask whether a sibling needs a finalizer of this quorum.
    AskUses(String, Asked),

    /// Publish the state that the HTTP side shows, except for the handles of the quorums.
    Publish(Box<InUse>),
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
