//! Describes a lock for a node: its masters, and the timings by which it is held.
//!
//! The description is stored with the record of a pod, so that a restarted agent needs no API server.
//! Credentials are not part of it. A field of a later version is ignored: two versions run side by side during an update.

use std::time::Duration;

use redlock_client::{
    masters::{Credentials, MasterConfig, MastersConfig, QuorumId, ScriptLoading, Tls},
    transport::Transport,
};
use redlock_core::{ClusterId, LockName, fence::Pace};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A lock that pods of this cluster depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockSpec {
    /// The name of the lock on the masters.
    pub name: String,
    /// The own cluster, whose pods run while it holds the lock.
    pub cluster: ClusterSpec,
    pub lease_milliseconds: u64,
    pub retry_milliseconds: u64,
    pub quorum: QuorumSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    pub name: String,
    pub uid: String,
}

/// The masters of a quorum, and the contents of their fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuorumSpec {
    /// The name by which the credentials of the quorum are found.
    pub name: String,
    pub masters: Vec<MasterSpec>,
    pub key_prefix: String,
    pub longest_lease_milliseconds: u64,
    pub acquire_limit_milliseconds: u64,
    pub command_timeout_milliseconds: u64,
    /// Whether the quorum declares credentials. The masters of any other quorum never receive the credentials
    /// of the agent.
    #[serde(default)]
    pub authenticated: bool,
    /// The id of the quorum, if it is known: 32 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterSpec {
    pub name: String,
    pub url: String,
}

/// The access to the masters of a quorum, for a user that only reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub credentials: Credentials,
    pub tls: Tls,
}

/// A value that no lock can have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    #[error("lock name {value:?} is not valid: {reason}")]
    Lock { value: String, reason: String },
    #[error("cluster {value:?} is not valid: {reason}")]
    Cluster { value: String, reason: String },
    #[error("id {value:?} of quorum {quorum} is not valid: expected 32 hex digits")]
    QuorumId { quorum: String, value: String },
}

impl LockSpec {
    /// # Errors
    /// Returns an error if the name is not that of a lock.
    pub fn lock_name(&self) -> Result<LockName, SpecError> {
        LockName::parse(&self.name).map_err(|reason| SpecError::Lock {
            value: self.name.clone(),
            reason: reason.to_string(),
        })
    }

    /// # Errors
    /// Returns an error if the name or the UID is not valid in a cluster id.
    pub fn cluster_id(&self) -> Result<ClusterId, SpecError> {
        ClusterId::new(&self.cluster.name, &self.cluster.uid).map_err(|reason| SpecError::Cluster {
            value: format!("{}/{}", self.cluster.name, self.cluster.uid),
            reason: reason.to_string(),
        })
    }

    /// Returns this lock with the urls of `declared`, if it is the same lock on the same masters and the urls
    /// or the quorum id have changed. An id that was unknown is adopted, so that the urls of a later quorum
    /// of the same name are not. All other values stay: a pod keeps its timings (P-119).
    #[must_use]
    pub fn moved_to(&self, declared: &Self) -> Option<Self> {
        let (own, other) = (&self.quorum, &declared.quorum);
        let names = |quorum: &'_ QuorumSpec| -> Vec<String> {
            quorum.masters.iter().map(|master| master.name.clone()).collect()
        };
        let same = self.name == declared.name
            && self.cluster.uid == declared.cluster.uid
            && own.name == other.name
            && own.key_prefix == other.key_prefix
            && names(own) == names(other)
            && (own.id.is_none() || own.id == other.id);
        let mut moved = self.clone();
        moved.quorum.masters.clone_from(&other.masters);
        moved.quorum.id.clone_from(&other.id);
        (same && moved != *self).then_some(moved)
    }

    #[must_use]
    pub const fn pace(&self) -> Pace {
        Pace {
            lease_duration: Duration::from_millis(self.lease_milliseconds),
            retry_period: Duration::from_millis(self.retry_milliseconds),
        }
    }
}

impl QuorumSpec {
    /// Returns the configuration of masters that are only read.
    ///
    /// # Errors
    /// Returns an error if the id of the quorum is not valid.
    pub fn config(&self, access: Access, cluster: ClusterId) -> Result<MastersConfig, SpecError> {
        let id = |value: &String| {
            QuorumId::parse(value).ok_or_else(|| SpecError::QuorumId {
                quorum: self.name.clone(),
                value: value.clone(),
            })
        };
        let masters = self.masters.iter().map(|master| MasterConfig {
            name: master.name.clone(),
            url: master.url.clone(),
        });
        Ok(MastersConfig {
            masters: masters.collect(),
            key_prefix: self.key_prefix.clone(),
            credentials: access.credentials,
            tls: access.tls,
            cluster,
            command_timeout: Duration::from_millis(self.command_timeout_milliseconds),
            longest_lease: Duration::from_millis(self.longest_lease_milliseconds),
            acquire_limit: Duration::from_millis(self.acquire_limit_milliseconds),
            quorum: self.id.as_ref().map(id).transpose()?,
            reseal: false,
            scripts: ScriptLoading::ByHash,
            transport: Transport::tcp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::lock;

    #[test]
    fn changed_urls_are_followed_whatever_else_was_edited_since_the_start_of_the_pod() {
        let own = lock();
        assert_eq!(own.moved_to(&own), None);
        let mut declared = lock();
        declared.quorum.masters[0].url = "redis://new:6379".into();
        declared.quorum.id = Some("0".repeat(32));
        declared.lease_milliseconds += 1;
        declared.retry_milliseconds += 1;
        declared.cluster.name = "renamed".into();
        let quorum = &mut declared.quorum;
        quorum.longest_lease_milliseconds += 1;
        quorum.acquire_limit_milliseconds += 1;
        quorum.command_timeout_milliseconds += 1;
        quorum.authenticated = true;
        let mut expected = own.clone();
        expected.quorum.masters = declared.quorum.masters.clone();
        expected.quorum.id = declared.quorum.id.clone();
        let moved = own.moved_to(&declared);
        assert_eq!(moved.as_ref(), Some(&expected));
        assert_eq!(
            moved.and_then(|moved| moved.moved_to(&declared)),
            None,
            "followed once"
        );
    }

    #[test]
    fn the_urls_of_another_lock_or_quorum_are_not_followed() {
        let mut own = lock();
        own.quorum.id = Some("0".repeat(32));
        let edits: [fn(&mut LockSpec); 7] = [
            |other| other.name = "team/other".into(),
            |other| other.cluster.uid = "uid-there".into(),
            |other| other.quorum.name = "second".into(),
            |other| other.quorum.key_prefix = "second".into(),
            |other| other.quorum.masters[0].name = "m1".into(),
            |other| other.quorum.id = Some("1".repeat(32)),
            // The status was lost, so the present quorum is unknown.
            |other| other.quorum.id = None,
        ];
        for (index, edit) in edits.into_iter().enumerate() {
            let mut other = own.clone();
            other.quorum.masters[0].url = "redis://new:6379".into();
            assert!(own.moved_to(&other).is_some());
            edit(&mut other);
            assert_eq!(own.moved_to(&other), None, "edit {index}");
        }
    }
}
