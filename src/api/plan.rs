//! Plans: valid objects with every default filled in, every value checked, and times as `Duration`.
//!
//! Only [`super::validate`] makes plans of objects. The operator contends and switches targets by plans alone, never by
//! an unchecked `spec`.

use std::collections::BTreeSet;
use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::leader_lock::{Candidates, DeletionPolicy, Enforcement, Fencing, LockState, OnQuorumLoss};
use super::pointer::Pointer;
use super::redis_quorum::{FirstStart, SecretRef, SharedLockNames};
use super::target::{Action, ConditionStatus, Target, TargetRef};
use crate::lease::identity::LockName;
use crate::lease::timing::Timings;

/// Added to the stop time: after both, another cluster may rely on a lost holder's targets having stopped (P-87).
pub const TAKEOVER_MARGIN: Duration = Duration::from_secs(5);
/// The delay that the holder of a fenced lock declares: its pods are frozen before its lease ends, so that this covers
/// nothing but writes that are under way.
pub const FENCED_DELAY: Duration = Duration::from_secs(1);
/// The stop time of a Lease target without a declared one: `⌈11/6 × 15 s × 1.01⌉`, of client-go's default duration.
pub const LEASE_STOP: Duration = Duration::from_secs(28);
/// Longer than any cluster abstains: a cluster that abstains is notified when the abstention ends.
const ABSTENTION: Duration = Duration::from_secs(86_400);

/// A valid `RedisQuorum`.
#[derive(Debug, Clone, PartialEq)]
pub struct QuorumPlan {
    pub name: String,
    pub masters: Vec<MasterPlan>,
    pub key_prefix: String,
    pub command_timeout: Duration,
    pub longest_lease: Duration,
    pub first_start: FirstStart,
    /// The masters ask for a user or password.
    pub needs_credentials: bool,
    /// At least one master is reached by TLS.
    pub needs_tls: bool,
    pub auth_secret: Option<SecretRef>,
    pub auth_keys: AuthKeys,
    pub tls_secret: Option<SecretRef>,
    pub shared_lock_names: Vec<SharedLockNames>,
}

/// The keys of `auth_secret` for all masters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthKeys {
    pub password: String,
    pub username: String,
    /// The manifest names the key of the user, so that the Secret must have it.
    pub needs_username: bool,
}

/// One master of a [`QuorumPlan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterPlan {
    pub name: String,
    /// As written; holds no credentials.
    pub url: String,
    /// `host:port` in one spelling: two masters with the same are one server.
    pub address: String,
    pub failure_domain: Option<String>,
}

/// A valid `LeaderLock`.
#[derive(Debug, Clone, PartialEq)]
pub struct LockPlan {
    pub namespace: String,
    pub name: String,
    /// Name of its quorum.
    pub quorum: String,
    pub lock_name: LockName,
    pub timings: Timings,
    pub candidates: Candidates,
    pub state: LockState,
    pub reason: Option<String>,
    pub enforcement: Enforcement,
    pub cluster_preference: Vec<String>,
    pub preference_delay: Duration,
    pub fencing: Fencing,
    /// What the holder declares to other clusters; of a fenced lock, while a pod of its targets is not fenced.
    pub takeover_delay: Duration,
    /// What this cluster waits at least, whatever the last holder declared.
    pub explicit_takeover_delay: Option<Duration>,
    pub on_quorum_loss: OnQuorumLoss,
    /// `None`: never.
    pub failover_after_unready: Option<Duration>,
    pub deletion_policy: DeletionPolicy,
    pub targets: Vec<TargetPlan>,
    /// This cluster leaves the lock to the others for a time: it takes the lock only if the lock is reserved for it. No
    /// manifest sets it.
    pub abstains: bool,
    /// An earlier declared target may still run, and no record shows which one. No manifest sets it.
    pub has_leftovers: bool,
    /// The earlier declared targets that may still run, according to the record of the object. No manifest sets it.
    pub leftovers: Vec<TargetPlan>,
    /// The lock is only observed until this replica has seen a majority of the masters: pods that are fenced stay, and targets
    /// continue as `on_quorum_loss` declares. No manifest sets it.
    pub awaits_confirmation: bool,
}

/// The lock that a lease is about: a lease under one identity gives no right under another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockIdentity {
    pub quorum: String,
    pub lock_name: LockName,
    /// A held lease stays fenced or unfenced until its end.
    pub fencing: Fencing,
}

impl LockPlan {
    pub fn identity(&self) -> LockIdentity {
        LockIdentity {
            quorum: self.quorum.clone(),
            lock_name: self.lock_name.clone(),
            fencing: self.fencing,
        }
    }

    /// `namespace/name` of the object, which is not always the name of the lock.
    pub fn object(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// It has targets, and they are switched.
    pub fn switches(&self) -> bool {
        !self.targets.is_empty() && self.enforcement == Enforcement::Enforce
    }

    pub fn is_fenced(&self) -> bool {
        self.fencing == Fencing::Node
    }

    /// The time that the slowest target takes to stop. The lease of a fenced lock leaves no such time.
    pub fn longest_stop(&self) -> Duration {
        longest_stop(&self.targets).max(self.timings.stop)
    }

    /// The time that the slowest target takes to stop, without those whose object does not exist.
    pub fn longest_stop_of_present(&self) -> Duration {
        let missing = |target: &&TargetPlan| target.awaits == Some(AwaitedTemplate::Missing);
        if !self.targets.iter().any(|target| missing(&target)) {
            return self.longest_stop();
        }
        let present = self.targets.iter().filter(|target| !missing(target));
        present.map(|target| target.stop).max().unwrap_or_default()
    }

    /// The longest that a planned stop takes, whatever the state of the masters: after that the lease has run out.
    pub fn stop_bound(&self) -> Duration {
        self.longest_stop() + self.timings.lease_duration
    }

    /// What the holder declares to other clusters while all pods of its targets are fenced.
    pub fn fenced_delay(&self) -> Duration {
        FENCED_DELAY.max(self.explicit_takeover_delay.unwrap_or_default())
    }

    /// Whether some target has to be undone when the lease ends.
    pub fn guards(&self) -> bool {
        self.has_leftovers
            || self
                .targets
                .iter()
                .chain(&self.leftovers)
                .any(|target| target.work.is_undone())
    }

    /// How long a cluster of this name waits after the end of a lease, by its place in the preference. A cluster that
    /// is not listed comes after all that are.
    pub fn preference_wait(&self, cluster_name: &str) -> Duration {
        if self.abstains {
            return ABSTENTION;
        }
        let listed = &self.cluster_preference;
        let place = listed
            .iter()
            .position(|c| c == cluster_name)
            .unwrap_or(listed.len());
        self.preference_delay
            .saturating_mul(u32::try_from(place).unwrap_or(u32::MAX))
    }
}

/// One target of a [`LockPlan`].
#[derive(Debug, Clone, PartialEq)]
pub struct TargetPlan {
    pub name: String,
    pub work: TargetWork,
    /// How long it takes to stop; zero where nothing is stopped.
    pub stop: Duration,
    /// Why `stop` is only assumed: the target is not started, so that its holder declares no assumed time to other clusters.
    pub awaits: Option<AwaitedTemplate>,
    /// What its pod template asks for, if that is more.
    pub too_short: Option<Duration>,
    /// The number of pods that end one after the other, if they do not end together.
    pub one_by_one: Option<u32>,
    /// The target as it is declared.
    pub declared: Arc<Target>,
}

/// The reason why the pod template of a target is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedTemplate {
    /// Its object was not read yet.
    Unread,
    /// Its object does not exist.
    Missing,
}

/// The object of a target, and its action.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetWork {
    Scale {
        object: TargetRef,
        active_replicas: i32,
        standby_replicas: i32,
    },
    Suspend {
        object: TargetRef,
    },
    OncePerSchedule {
        object: TargetRef,
        max_slot_age: Duration,
    },
    LabelPods {
        selector: LabelSelector,
    },
    Lease {
        object: TargetRef,
        /// The declared stop time.
        stop: Option<Duration>,
    },
    Patch {
        object: TargetRef,
        patch: PatchPlan,
        /// The declared stop time.
        stop: Duration,
    },
}

/// The fields that the action Patch sets, and how it learns that the target is stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchPlan {
    pub fields: Vec<FieldPlan>,
    /// All of them hold when the target is stopped. Empty: it is stopped after the stop time.
    pub stopped_when: Vec<StatusCheck>,
    /// The status counts although no generation shows what it is about.
    pub trusts_status: bool,
}

/// A field, and its values; `None` where it is removed.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldPlan {
    pub path: Pointer,
    pub active: Option<Value>,
    pub standby: Option<Value>,
}

/// A check of the status of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum StatusCheck {
    Field {
        path: Pointer,
        equals: Value,
    },
    Condition {
        kind: String,
        status: ConditionStatus,
        /// `None`: any.
        reason: Option<String>,
    },
}

impl TargetWork {
    /// Whether the target is stopped when the lease ends. A claimed run continues to its end.
    pub fn is_undone(&self) -> bool {
        !matches!(self, TargetWork::OncePerSchedule { .. })
    }

    /// Whether undoing it takes time of its own, as pods need to end. A label is gone with one write.
    pub fn takes_time_to_stop(&self) -> bool {
        match self {
            TargetWork::Scale { .. }
            | TargetWork::Suspend { .. }
            | TargetWork::Lease { .. }
            | TargetWork::Patch { .. } => true,
            TargetWork::OncePerSchedule { .. } | TargetWork::LabelPods { .. } => false,
        }
    }

    pub fn action(&self) -> Action {
        match self {
            TargetWork::Scale { .. } => Action::Scale,
            TargetWork::Suspend { .. } => Action::Suspend,
            TargetWork::OncePerSchedule { .. } => Action::OncePerSchedule,
            TargetWork::LabelPods { .. } => Action::LabelPods,
            TargetWork::Lease { .. } => Action::Lease,
            TargetWork::Patch { .. } => Action::Patch,
        }
    }
}

pub(super) fn longest_stop(targets: &[TargetPlan]) -> Duration {
    targets.iter().map(|target| target.stop).max().unwrap_or_default()
}

impl QuorumPlan {
    /// The servers of the quorum, for comparing it with another.
    pub fn addresses(&self) -> BTreeSet<&str> {
        self.masters.iter().map(|m| m.address.as_str()).collect()
    }

    /// How many masters are enough.
    pub fn majority(&self) -> usize {
        self.masters.len() / 2 + 1
    }
}

#[cfg(test)]
pub(crate) mod tests;
