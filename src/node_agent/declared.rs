//! The declared locks and quorums, as the watches have shown them, and the spec of a lock that a node needs.
//! Pure.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use kube::{Resource, core::DeserializeGuard};
use redlock_node::{
    resolver::Unresolved,
    spec::{ClusterSpec, LockSpec, MasterSpec, QuorumSpec},
};

use crate::{
    api::{
        LeaderLock, RedisQuorum,
        leader_lock::Fencing,
        plan::{LockPlan, QuorumPlan},
        validate::{Graces, LockNames, validate_lock, validate_quorum},
    },
    lease::{ClusterId, timing},
    masters::QuorumId,
    targets::{Change, ObjectKey, deepest},
};

/// Whether the objects of one watch are known.
#[derive(Debug)]
enum Listing {
    /// The first list is still awaited, for this reason.
    Awaited(String),
    Complete,
}

/// The objects of one watch. For an object that this version cannot read, the reason is stored.
#[derive(Debug)]
pub(super) struct Followed<K> {
    objects: BTreeMap<ObjectKey, Result<K, String>>,
    listing: Listing,
}

/// The objects that the API server has shown so far.
#[derive(Debug)]
pub(super) struct Declared {
    cluster: Option<ClusterId>,
    pub(super) quorums: Followed<RedisQuorum>,
    /// The locks by namespace; the empty namespace stands for all.
    pub(super) locks: BTreeMap<String, Followed<LeaderLock>>,
}

impl<K> Default for Followed<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: Listing::Awaited("the API server has not answered yet".to_owned()),
        }
    }
}

impl<K: Resource> Followed<K> {
    pub(super) fn take(&mut self, change: Change<DeserializeGuard<K>>) {
        match change {
            Change::Seen(DeserializeGuard(Ok(object)), _) => {
                self.objects.insert(ObjectKey::of(&object), Ok(object));
            }
            Change::Seen(DeserializeGuard(Err(invalid)), _) => {
                let key = ObjectKey::of_metadata(&invalid.metadata);
                self.objects.insert(key, Err(invalid.error));
            }
            Change::Gone(key) => _ = self.objects.remove(&key),
            Change::Synced => self.listing = Listing::Complete,
            // The objects of an earlier list stay in force.
            Change::Failed(error) => {
                if let Listing::Awaited(reason) = &mut self.listing {
                    *reason = deepest(&error);
                }
            }
        }
    }

    fn known(&self, kind: &str) -> Result<&BTreeMap<ObjectKey, Result<K, String>>, Unresolved> {
        match &self.listing {
            Listing::Complete => Ok(&self.objects),
            Listing::Awaited(reason) => Err(Unresolved::NotReady {
                reason: format!("the first list of {kind} is awaited: {reason}"),
            }),
        }
    }
}

impl Declared {
    /// Creates the state in which nothing is known. `namespaces` are the followed ones; an empty list stands
    /// for all.
    pub(super) fn new(namespaces: &[String]) -> Self {
        let named = namespaces.iter().filter(|name| !name.is_empty()).cloned();
        let mut locks: BTreeMap<String, Followed<LeaderLock>> =
            named.map(|name| (name, Followed::default())).collect();
        if locks.is_empty() {
            locks.insert(String::new(), Followed::default());
        }
        Self {
            cluster: None,
            quorums: Followed::default(),
            locks,
        }
    }

    pub(super) fn set_cluster(&mut self, cluster: ClusterId) {
        self.cluster = Some(cluster);
    }

    /// Returns the spec of the lock with this name, as a pod of the namespace needs it.
    ///
    /// # Errors
    /// Returns an error if no pod can be fenced by this lock, or if the objects are not known yet.
    pub(super) fn resolve(&self, namespace: &str, name: &str) -> Result<LockSpec, Unresolved> {
        let unfit = |reason: String| Unresolved::Unfit {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            reason,
        };
        let locks = self.locks.get("").or_else(|| self.locks.get(namespace));
        let locks = locks.ok_or_else(|| {
            let followed: Vec<&str> = self.locks.keys().map(String::as_str).collect();
            let followed = followed.join(", ");
            unfit(format!(
                "the node agent follows the namespaces {followed} only: add {namespace} to watchNamespaces of the chart"
            ))
        })?;
        let key = ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let lock = match locks.known("LeaderLocks")?.get(&key) {
            Some(Ok(lock)) => lock,
            Some(Err(reason)) => return Err(unfit(format!("this version cannot read it: {reason}"))),
            None => {
                return Err(Unresolved::Unknown {
                    namespace: key.namespace,
                    name: key.name,
                });
            }
        };
        if lock.spec.fencing == Fencing::None {
            return Err(unfit(
                "its spec.fencing is not Node, so its holder never writes the mark that each permit requires: set spec.fencing: Node, or remove the volume from the pod"
                    .to_owned(),
            ));
        }
        let (quorum, id) = self.quorum(&lock.spec.quorum_ref.name, &unfit)?;
        let plan = validate_lock(lock, &quorum, LockNames::OfTheNamespace, &Graces::default());
        let plan = plan.map_err(|errors| unfit(format!("its spec is not valid: {}", listed(&errors))))?;
        let Some(cluster) = &self.cluster else {
            let reason =
                "the UID of the namespace kube-system, which is that of the cluster, is not read yet";
            return Err(Unresolved::NotReady {
                reason: reason.to_owned(),
            });
        };
        Ok(lock_spec(&plan, quorum, id, cluster))
    }

    /// Returns the quorum with this name, with the urls that the operator uses, and the id that its status
    /// shows.
    fn quorum(
        &self,
        name: &str,
        unfit: &impl Fn(String) -> Unresolved,
    ) -> Result<(QuorumPlan, Option<String>), Unresolved> {
        let key = ObjectKey {
            namespace: String::new(),
            name: name.to_owned(),
        };
        let quorum = match self.quorums.known("RedisQuorums")?.get(&key) {
            Some(Ok(quorum)) => quorum,
            Some(Err(reason)) => {
                return Err(unfit(format!(
                    "this version cannot read RedisQuorum {name}: {reason}"
                )));
            }
            None => {
                return Err(unfit(format!(
                    "there is no RedisQuorum {name:?}: create it, or correct spec.quorumRef"
                )));
            }
        };
        let mut plan = validate_quorum(quorum)
            .map_err(|errors| unfit(format!("RedisQuorum {name} is not valid: {}", listed(&errors))))?;
        let recorded = quorum.status.iter().flat_map(|status| &status.masters);
        let in_use: BTreeMap<&str, &String> = recorded
            .filter_map(|master| Some((&*master.name, master.url.as_ref()?)))
            .collect();
        // A changed url does not apply to the master before the operator has retired the old server (P-119).
        for master in &mut plan.masters {
            if let Some(url) = in_use.get(&*master.name) {
                master.url = (*url).clone();
            }
        }
        let id = quorum.status.as_ref().and_then(|status| status.quorum_id.clone());
        Ok((plan, id.filter(|id| QuorumId::parse(id).is_some())))
    }
}

fn lock_spec(plan: &LockPlan, quorum: QuorumPlan, id: Option<String>, cluster: &ClusterId) -> LockSpec {
    let masters = quorum.masters.into_iter().map(|master| MasterSpec {
        name: master.name,
        url: master.url,
    });
    LockSpec {
        name: plan.lock_name.to_string(),
        cluster: ClusterSpec {
            name: cluster.name().to_owned(),
            uid: cluster.uid().to_owned(),
        },
        lease_milliseconds: milliseconds(plan.timings.lease_duration),
        retry_milliseconds: milliseconds(plan.timings.retry_period),
        quorum: QuorumSpec {
            name: quorum.name,
            masters: masters.collect(),
            key_prefix: quorum.key_prefix,
            longest_lease_milliseconds: milliseconds(quorum.longest_lease),
            acquire_limit_milliseconds: milliseconds(timing::DEFAULT_ACQUIRE_LIMIT),
            command_timeout_milliseconds: milliseconds(quorum.command_timeout),
            authenticated: quorum.needs_credentials,
            id,
        },
    }
}

fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

fn listed(errors: &[impl Display]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}

#[cfg(test)]
mod tests;
