//! A controller of a cluster that leads while it holds a Lease, as client-go does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_world::kubernetes::{ApiServer, ObjectKey, ResourceId};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time};

use super::{cluster::now, manifests::NAMESPACE};
use crate::{clock, lease::BootInstant};

/// The defaults of client-go.
const LEASE_SECONDS: u64 = 15;
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// The duration of a Lease that the operator holds.
const WITHHELD_SECONDS: i64 = 2_147_483_647;

/// Returns the present time as a Lease records it, in microseconds.
fn present_time() -> String {
    format!("{:.6}", now())
}

/// Returns a Lease that the operator of this cluster holds, so that no candidate leads.
pub(super) fn withheld_lease(name: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": {
            "holderIdentity": format!("redlock.dev/{cluster}"),
            "leaseDurationSeconds": WITHHELD_SECONDS,
            "acquireTime": present_time(),
            "renewTime": present_time(),
        },
    })
}

/// Reports whether the operator holds a Lease.
pub(super) fn is_withheld(lease: &Value) -> bool {
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.is_some_and(|holder| holder.starts_with("redlock.dev/"))
}

/// A candidate. Clones share whether it leads.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderCandidate {
    leads: Arc<AtomicBool>,
}

impl LeaderCandidate {
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Relaxed)
    }

    /// Contends for a Lease until the task is aborted.
    pub(super) fn run(&self, api: &ApiServer, cluster: &str, lease: &str) -> JoinHandle<()> {
        let mut election = LeaseElection {
            api: api.clone(),
            key: ObjectKey::new(ResourceId::LEASES, NAMESPACE, lease),
            identity: format!("{lease}-of-{cluster}"),
            observed: None,
            renewed: None,
        };
        let leads = self.leads.clone();
        tokio::spawn(async move {
            loop {
                leads.store(election.is_leading(), Relaxed);
                time::sleep(RETRY_PERIOD).await;
            }
        })
    }
}

struct LeaseElection {
    api: ApiServer,
    key: ObjectKey,
    identity: String,
    /// The last record, and the time at which it was first seen.
    observed: Option<(Value, BootInstant)>,
    /// The last renewal of a leader.
    renewed: Option<BootInstant>,
}

impl LeaseElection {
    /// Acquires or renews the Lease. A leader leads until its renew deadline.
    fn is_leading(&mut self) -> bool {
        let namespace = ObjectKey::new(ResourceId::NAMESPACES, "", NAMESPACE);
        let namespace = self.api.read(&namespace);
        if namespace.is_none_or(|object| !object["metadata"]["deletionTimestamp"].is_null()) {
            // The pod of the candidate ends with its namespace.
            (self.observed, self.renewed) = (None, None);
            return false;
        }
        if self.acquires() {
            self.renewed = Some(clock::now());
        } else if self
            .renewed
            .is_some_and(|at| clock::now().since(at) >= RENEW_DEADLINE)
        {
            self.renewed = None;
        }
        self.renewed.is_some()
    }

    fn acquires(&mut self) -> bool {
        let Some(lease) = self.api.read(&self.key) else {
            let lease =
                self.record(&json!({ "metadata": { "namespace": NAMESPACE, "name": self.key.name } }));
            return self
                .api
                .create(&self.identity, &ResourceId::LEASES, lease)
                .is_ok();
        };
        let record = &lease["spec"];
        let now = clock::now();
        let seen = match &self.observed {
            Some((known, seen)) if known == record => *seen,
            Some(_) | None => {
                self.observed = Some((record.clone(), now));
                now
            }
        };
        let holder = record["holderIdentity"].as_str().unwrap_or_default();
        let seconds = record["leaseDurationSeconds"].as_u64().unwrap_or(LEASE_SECONDS);
        let is_other = !holder.is_empty() && holder != self.identity;
        if is_other && now.since(seen) < Duration::from_secs(seconds) {
            return false;
        }
        // The version of the object is a precondition.
        self.api
            .update(&self.identity, &self.key, self.record(&lease))
            .is_ok()
    }

    fn record(&self, lease: &Value) -> Value {
        let mut record = lease.clone();
        record["apiVersion"] = json!("coordination.k8s.io/v1");
        record["kind"] = json!("Lease");
        let is_own = lease["spec"]["holderIdentity"] == self.identity.as_str();
        let acquired = lease["spec"]["acquireTime"].as_str().filter(|_| is_own);
        record["spec"] = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": acquired.map_or_else(present_time, str::to_owned),
            "renewTime": present_time(),
        });
        record
    }
}
