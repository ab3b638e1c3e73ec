//! The status of the object of a lock, as last written by the operator of its cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use super::{LockState, LockStatus};
use crate::{
    api::{LeaderLock, lock_status::LeaderLockStatus},
    lease::LockName,
};

/// The source of the holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A majority of the masters.
    Masters,
    /// The statuses of the objects: written on transitions, by operators that may be gone.
    Statuses,
}

/// A lock that is declared as an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredStatus {
    pub namespace: String,
    pub name: String,
    pub quorum: String,
    pub source: Source,
    /// The reason why the masters could not be asked for this lock.
    pub trouble: Option<String>,
    #[serde(flatten)]
    pub seen: LockStatus,
    /// The status of the object.
    pub status: Option<LeaderLockStatus>,
}

impl DeclaredStatus {
    pub(super) fn of_masters(object: LeaderLock, seen: LockStatus) -> Self {
        Self {
            source: Source::Masters,
            trouble: None,
            seen,
            ..Self::of_status(object, None, None)
        }
    }

    pub(super) fn of_status(object: LeaderLock, name: Option<LockName>, trouble: Option<String>) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        let called = object.name_any();
        let lock_name = name.map(|name| name.to_string());
        let lock_name = lock_name.or_else(|| object.spec.lock_name.clone());
        let lock_name = lock_name.unwrap_or_else(|| format!("{namespace}/{called}"));
        Self {
            namespace,
            name: called,
            quorum: object.spec.quorum_ref.name,
            source: Source::Statuses,
            trouble,
            seen: lock_status(lock_name, object.status.as_ref()),
            status: object.status,
        }
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        let conditions = &self.status.as_ref()?.conditions;
        conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Reports whether the masters show another holder than the status does. A status follows a takeover
    /// within milliseconds, or never if no operator writes it.
    pub(super) fn differs(&self) -> bool {
        let Some(status) = self.status.as_ref().filter(|_| self.source == Source::Masters) else {
            return false;
        };
        let cluster = self.seen.holder_cluster.as_deref();
        let cluster = cluster.map(|cluster| cluster.split_once('/').map_or(cluster, |(name, _)| name));
        match self.seen.state {
            LockState::Held => {
                status.holder_identity != self.seen.holder_identity
                    || status.holder_cluster.as_deref() != cluster
            }
            LockState::Free | LockState::Reserved => status.holder_identity.is_some(),
            LockState::Split | LockState::Unknown => false,
        }
    }
}

fn lock_status(lock_name: String, status: Option<&LeaderLockStatus>) -> LockStatus {
    let held = status.and_then(|status| {
        let conditions = status.conditions.iter();
        let mut held = conditions.filter(|condition| condition.type_ == "Held");
        held.next().map(|condition| condition.status.clone())
    });
    let state = match held.as_deref() {
        Some("True") => LockState::Held,
        Some("False") => LockState::Free,
        _ => LockState::Unknown,
    };
    let of_holder = status.filter(|_| state == LockState::Held);
    LockStatus {
        lock_name,
        state,
        holder_identity: of_holder.and_then(|status| status.holder_identity.clone()),
        holder_cluster: of_holder.and_then(|status| status.holder_cluster.clone()),
        fencing_token: of_holder.and_then(|status| u64::try_from(status.fencing_token?).ok()),
        remaining_milliseconds: None,
        reserved: None,
        reserved_milliseconds: None,
        nonce: None,
        agreeing: 0,
        accounts: Vec::new(),
    }
}
