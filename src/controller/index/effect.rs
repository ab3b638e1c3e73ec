//! The decisions of the index as values. The executor performs each of them and returns the result as an
//! [`Input`](super::Input).

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{
    drain::{Drained, Purpose},
    failover::Failover,
    urls::RetiredUrl,
};
use crate::{
    api::{
        LeaderLock,
        abstention::Abstention,
        hand_over::HandOverAnswer,
        plan::{LockPlan, QuorumPlan},
        target::TargetRef,
    },
    controller::{
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
    /// The same of a RedisQuorum.
    WriteQuorum {
        name: String,
        version: String,
        status: Value,
    },
    /// Add or remove the finalizer of this object, and not of one that was created again under its name.
    SetFinalizer {
        key: ObjectKey,
        uid: Option<String>,
        present: bool,
    },
    /// Write the finalizers of this version of a RedisQuorum. An addition waits for its turn.
    SetQuorumFinalizers {
        name: String,
        version: Option<String>,
        finalizers: Vec<String>,
        adds: bool,
    },
    /// Write into the object that this cluster leaves its lock to the others.
    Abstain {
        key: ObjectKey,
        object: Box<LeaderLock>,
        abstention: Abstention,
        failover: Failover,
    },
    /// Take that out again.
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

    /// Start the task that switches the targets of a lock, in place of one before it.
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
    /// What was to be stopped runs again, unless it is stopped already.
    ResumeTargets(ObjectKey),
    EndTargetTask(ObjectKey),
    FollowTemplate(ObjectKey, TargetRef),
    UnfollowTemplate(ObjectKey, TargetRef),
    /// The lock cannot be used before this is read.
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
    /// Use these credentials and certificates, and what else can change while the quorum is open.
    AdjustQuorum {
        plan: QuorumPlan,
        access: Access,
    },
    /// Use the new url of a master.
    ReplaceUrl(RetiredUrl),
    /// Take the vote of the server behind the old url.
    RetireUrl(RetiredUrl, OldServer),
    InitializeMasters(String),
    AskClusters(String),
    /// The largest counter that a majority reports, for a token in the status of a lock.
    AskCounter {
        key: ObjectKey,
        quorum: String,
        written: i64,
    },
    RememberToken {
        quorum: String,
        token: FencingToken,
    },
    ForgetQuorumMetrics(String),
    /// The object of a quorum is gone.
    QuorumGone(String),

    ActivateLock(Arc<LockPlan>),
    RemoveLock {
        quorum: String,
        lock: LockName,
        release_mode: ReleaseMode,
    },
    /// A lock of the operator itself.
    PutInternal {
        quorum: String,
        lock: LockName,
        terms: Terms,
    },
    HandOver {
        quorum: String,
        lock: LockName,
        token: FencingToken,
        to: ClusterId,
    },

    AskSiblings(Asked),
    /// Whether a sibling needs a finalizer of this quorum.
    AskUses(String, Asked),

    /// What the HTTP side shows, but for the handles of the quorums.
    Publish(Box<InUse>),
}

/// What a target task is started with.
#[derive(Debug)]
pub(in crate::controller) struct TargetTaskStart {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) plan: Arc<LockPlan>,
    pub(in crate::controller) hands: Permissions,
    /// No masters can be asked how the lock stands.
    pub(in crate::controller) detached: bool,
    pub(in crate::controller) own_tokens: OwnTokens,
}

/// What a stop is followed by.
#[derive(Clone, Debug)]
pub(in crate::controller) enum AfterStop {
    /// The lock is taken away, at this time at the latest.
    TakenAway(BootInstant),
    /// Its lease is passed on.
    Drained(Purpose, Box<Drained>),
}
