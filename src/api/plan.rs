//! Plans: valid objects with every default filled in, every value checked, and times as `Duration`.
//!
//! Only [`super::validate`] makes plans of objects. The operator contends and switches targets by plans alone, never by
//! an unchecked `spec`.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::leader_lock::{Candidates, DeletionPolicy, Enforcement, LockState, OnQuorumLoss};
use super::redis_quorum::{FirstStart, SecretRef, SharedLockNames};
use super::target::{Action, TargetRef};
use crate::lease::identity::LockName;
use crate::lease::timing::Timings;

/// Added to the stop time: the time after which another cluster may rely on the end of everything that a lost holder
/// left running.
pub const TAKEOVER_BESIDE_STOP: Duration = Duration::from_secs(5);
/// The preference wait of a cluster that abstains, which is longer than any abstention. At the end of its abstention
/// the plan has the usual wait again.
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
    /// Whether the masters require a user or password.
    pub needs_credentials: bool,
    /// Whether at least one master is reached over TLS.
    pub needs_tls: bool,
    pub auth_secret: Option<SecretRef>,
    pub tls_secret: Option<SecretRef>,
    pub shared_lock_names: Vec<SharedLockNames>,
}

/// One master of a [`QuorumPlan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterPlan {
    pub name: String,
    /// As written in the spec; holds no credentials.
    pub url: String,
    /// `host:port` in one spelling: two masters with the same address are one server.
    pub address: String,
    pub failure_domain: Option<String>,
}

/// A valid `LeaderLock`.
#[derive(Debug, Clone, PartialEq)]
pub struct LockPlan {
    pub namespace: String,
    pub name: String,
    /// The name of its quorum.
    pub quorum: String,
    pub lock_name: LockName,
    pub timings: Timings,
    pub candidates: Candidates,
    pub state: LockState,
    pub reason: Option<String>,
    pub enforcement: Enforcement,
    pub cluster_preference: Vec<String>,
    pub preference_delay: Duration,
    /// The delay that the holder declares to other clusters.
    pub takeover_delay: Duration,
    /// The least delay that this cluster waits, regardless of the declaration of the last holder.
    pub explicit_takeover_delay: Option<Duration>,
    pub on_quorum_loss: OnQuorumLoss,
    /// `None`: never.
    pub failover_after_unready: Option<Duration>,
    pub deletion_policy: DeletionPolicy,
    pub targets: Vec<TargetPlan>,
    /// Whether this cluster leaves the lock to the others for a time: it then acquires the lock only if the lock is
    /// reserved for it. Never set by a manifest.
    pub abstains: bool,
    /// Whether targets of an earlier declaration may still run. Never set by a manifest.
    pub has_leftovers: bool,
}

impl LockPlan {
    /// Returns `namespace/name` of the object, which is not always the name of the lock.
    pub fn object(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it has targets and switches them.
    pub fn switches(&self) -> bool {
        !self.targets.is_empty() && self.enforcement == Enforcement::Enforce
    }

    /// Whether some target has to be undone when the lease ends.
    pub fn guards(&self) -> bool {
        self.has_leftovers || self.targets.iter().any(|target| target.work.is_undone())
    }

    /// Returns how long a cluster of this name waits after the end of a lease, by its place in the preference. A
    /// cluster that is not listed waits as long as one behind the last.
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
    /// The time that it takes to stop; zero where nothing is stopped.
    pub stop: Duration,
    /// The stop time that its pod template asks for, if that is more.
    pub too_short: Option<Duration>,
    /// The number of pods that end one after the other, if they do not end together.
    pub one_by_one: Option<u32>,
}

/// The action of a target, with its object.
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
}

impl TargetWork {
    /// Whether the action is undone when the lease ends. A run that was claimed continues to its end.
    pub fn is_undone(&self) -> bool {
        !matches!(self, TargetWork::OncePerSchedule { .. })
    }

    /// Whether undoing the action takes time, such as the time that pods need to end. One write removes a label.
    pub fn takes_time_to_stop(&self) -> bool {
        match self {
            TargetWork::Scale { .. } | TargetWork::Suspend { .. } => true,
            TargetWork::OncePerSchedule { .. } | TargetWork::LabelPods { .. } => false,
        }
    }

    pub fn action(&self) -> Action {
        match self {
            TargetWork::Scale { .. } => Action::Scale,
            TargetWork::Suspend { .. } => Action::Suspend,
            TargetWork::OncePerSchedule { .. } => Action::OncePerSchedule,
            TargetWork::LabelPods { .. } => Action::LabelPods,
        }
    }
}

impl QuorumPlan {
    /// Returns the servers of the quorum, to compare it with another quorum.
    pub fn addresses(&self) -> BTreeSet<&str> {
        self.masters.iter().map(|m| m.address.as_str()).collect()
    }

    /// Returns the number of masters that form a majority.
    pub fn majority(&self) -> usize {
        self.masters.len() / 2 + 1
    }
}

#[cfg(test)]
pub(crate) mod tests;
