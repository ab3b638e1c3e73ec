//! Follows the other replicas of this operator in this cluster, which could take over the leases of this
//! replica.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};

use super::{object::ObjectKey, observe::Observation};
use crate::{lease::BootInstant, targets::Origin};

/// The time after a failure from which the watch counts as restored. A broken watch is retried within 7.5 s,
/// and each failed retry is reported. A successful retry is not reported unless a pod changes.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// The name that the chart gives to the port of the operator's HTTP side.
const PORT: &str = "http";

/// The data for finding the replicas of this operator.
#[derive(Clone, Debug)]
pub(crate) struct Siblings {
    pub(crate) namespace: String,
    /// The label selector of the pods.
    pub(crate) selector: String,
    /// The name of this replica's pod.
    pub(crate) own: String,
    /// The name of the Lease by which the replicas elect a coordinator; without one, every replica acts.
    pub(crate) coordination_lease: Option<String>,
}

impl Siblings {
    pub(super) fn api(&self, client: &Client) -> Api<DeserializeGuard<Pod>> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    /// Returns namespace and name of the Lease of the coordinator.
    pub(super) fn coordination(&self) -> Option<(String, String)> {
        let name = self.coordination_lease.clone()?;
        Some((self.namespace.clone(), name))
    }

    pub(super) fn config(&self) -> watcher::Config {
        watcher::Config::default().labels(&self.selector)
    }
}

/// The other replicas, by their pods. An unknown replica does not count: targets that no sibling can take over are
/// stopped.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    /// The pod of this replica; `None` if its siblings are not known.
    own: Option<String>,
    pods: BTreeMap<ObjectKey, Replica>,
    /// Whether the first list is complete.
    synced: bool,
    /// The time at which the watch last broke or failed to restart; `None` once a change or a complete list
    /// has arrived since. Until then, the known pods may be outdated.
    lost: Option<BootInstant>,
}

/// The observed state of a replica's pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Replica {
    ready: bool,
    /// Whether the pod is deleted, or its container does not run: a process that does not answer has ended, or ends.
    ended: bool,
    /// The address of its HTTP side, once the pod has an IP address.
    address: Option<SocketAddr>,
}

impl Pods {
    pub(super) fn new(own: Option<&str>) -> Self {
        Self {
            own: own.map(str::to_owned),
            ..Self::default()
        }
    }

    fn is_lost(&self, now: BootInstant) -> bool {
        self.lost.is_some_and(|lost| now < lost + TAKEN_UP)
    }

    /// Returns all known addresses. An answer is its own proof, so neither readiness nor a broken watch matters.
    pub(super) fn all(&self) -> Vec<SocketAddr> {
        self.pods.values().filter_map(|replica| replica.address).collect()
    }

    /// Reports whether the addresses of all ready replicas are known, so that their answers are complete.
    pub(super) fn are_known(&self, now: BootInstant) -> bool {
        let hidden = |replica: &Replica| replica.ready && replica.address.is_none();
        self.synced && !self.is_lost(now) && !self.pods.values().any(hidden)
    }

    /// Returns the name of the pod at this address, if it is ready and should answer.
    pub(super) fn ready_pod(&self, address: SocketAddr) -> Option<&str> {
        let mut pods = self.pods.iter();
        let found = pods.find(|(_, replica)| replica.ready && replica.address == Some(address));
        found.map(|(key, _)| key.name.as_str())
    }

    /// Reports whether each replica at none of these addresses has ended, or ends. A pod that is starting has not.
    pub(super) fn have_ended_except(&self, answered: &BTreeSet<SocketAddr>) -> bool {
        let has_answered = |replica: &Replica| replica.address.is_some_and(|own| answered.contains(&own));
        let mut pods = self.pods.values();
        pods.all(|replica| replica.ended || has_answered(replica))
    }

    pub(super) fn observe(&mut self, observation: &Observation<Pod>, now: BootInstant) {
        self.lost = match observation {
            Observation::Failed(_) => Some(now),
            // A watch delivers changes in order: any change, such as the deletion of this replica's own pod, follows
            // all earlier ones. A list has no order until it is complete.
            Observation::Seen(_, Origin::Watch) | Observation::Synced => None,
            _ => self.lost,
        };
        match observation {
            Observation::Seen(pod, _) => {
                let key = ObjectKey::of(pod.as_ref());
                if self.own.as_ref() == Some(&key.name) {
                    return;
                }
                let replica = Replica {
                    ready: is_ready(pod),
                    ended: has_ended(pod),
                    address: address(pod),
                };
                self.pods.insert(key, replica);
            }
            Observation::Gone(key) => {
                self.pods.remove(key);
            }
            // The pod exists, and may be ready.
            Observation::Malformed(metadata, _) => {
                let key = ObjectKey::of_metadata(metadata);
                if self.own.as_ref() != Some(&key.name) {
                    let replica = self.pods.entry(key).or_default();
                    (replica.ready, replica.ended) = (true, false);
                }
            }
            Observation::Synced => self.synced = true,
            Observation::Failed(_) => {}
        }
    }
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// Reports whether the pod is being deleted, or its process has ended and does not run again yet.
fn has_ended(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let may_run = statuses.is_none_or(|statuses| {
        statuses.iter().any(|status| match &status.state {
            Some(state) => {
                state.running.is_some() || (state.terminated.is_none() && status.restart_count == 0)
            }
            None => true,
        })
    });
    pod.metadata.deletion_timestamp.is_some() || !may_run
}

/// Returns the address of the pod with the container port named [`PORT`]. A pod that has ended has no address.
fn address(pod: &Pod) -> Option<SocketAddr> {
    let status = pod.status.as_ref()?;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let ip: IpAddr = status.pod_ip.as_deref()?.parse().ok()?;
    let containers = &pod.spec.as_ref()?.containers;
    let mut ports = containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT))?;
    Some(SocketAddr::new(ip, u16::try_from(port.container_port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::observe::Trouble;

    fn seen(name: &str, ready: &str) -> Observation<Pod> {
        seen_by(Origin::Watch, name, ready)
    }

    fn listed(name: &str, ready: &str) -> Observation<Pod> {
        seen_by(Origin::List(BootInstant::default()), name, ready)
    }

    fn seen_by(origin: Origin, name: &str, ready: &str) -> Observation<Pod> {
        let pod = serde_json::json!({
            "metadata": { "name": name, "namespace": "redlock" },
            "spec": { "containers": [{ "name": "operator", "ports": [{ "name": "http", "containerPort": 8080 }] }] },
            "status": { "podIP": "10.0.0.7", "conditions": [{ "type": "Ready", "status": ready }] },
        });
        Observation::Seen(Box::new(serde_json::from_value(pod).unwrap()), origin)
    }

    fn failed() -> Observation<Pod> {
        Observation::Failed(Trouble {
            forbidden: false,
            text: "connection reset".to_owned(),
        })
    }

    /// Observes a list with both pods, then `more`.
    fn known_after(more: &[Observation<Pod>]) -> bool {
        known_at(5, more)
    }

    /// Like [`known_after`], but checked the given number of seconds later.
    fn known_at(seconds: u64, more: &[Observation<Pod>]) -> bool {
        let mut pods = Pods::new(Some("own"));
        let listed = [
            listed("own", "True"),
            listed("other", "True"),
            Observation::Synced,
        ];
        let all = listed.iter().chain(more);
        all.for_each(|observation| pods.observe(observation, BootInstant::default()));
        pods.are_known(BootInstant::default() + Duration::from_secs(seconds))
    }

    #[test]
    fn siblings_are_not_known_while_they_cannot_be_followed() {
        assert!(known_after(&[]));
        assert!(!known_after(&[failed()]));
        assert!(known_at(10, &[failed()]), "taken up, and no pod changed");
        // A change that arrives now follows all missed changes.
        assert!(known_after(&[failed(), seen("own", "False")]));
        // A list has no order until it is complete.
        let other = || listed("other", "True");
        assert!(!known_after(&[failed(), other()]));
        assert!(known_after(&[failed(), other(), Observation::Synced]));
        let gone = ObjectKey {
            namespace: "redlock".into(),
            name: "third".into(),
        };
        assert!(!known_after(&[failed(), other(), Observation::Gone(gone)]));
    }

    #[test]
    fn siblings_are_not_known_while_the_pod_of_one_cannot_be_read() {
        let now = BootInstant::default();
        let mut pods = Pods::new(Some("own"));
        let malformed = |name: &str| {
            let metadata = serde_json::json!({ "name": name, "namespace": "redlock" });
            let metadata = serde_json::from_value(metadata).unwrap();
            Observation::Malformed(Box::new(metadata), "an unknown field".to_owned())
        };
        for observation in [malformed("own"), listed("other", "True"), Observation::Synced] {
            pods.observe(&observation, now);
        }
        assert!(pods.are_known(now));
        pods.observe(&malformed("third"), now);
        assert!(!pods.are_known(now));
        assert_eq!(pods.all().len(), 1);
    }

    #[test]
    fn a_process_may_run_unless_its_pod_is_deleted_or_its_container_does_not_run() {
        let ended = |part: &str, field: &str, value: serde_json::Value| {
            let Observation::Seen(pod, origin) = seen("other", "False") else {
                unreachable!()
            };
            let mut pod = serde_json::to_value(pod).unwrap();
            pod[part][field] = value;
            let pod = Observation::Seen(Box::new(serde_json::from_value(pod).unwrap()), origin);
            let mut pods = Pods::new(Some("own"));
            pods.observe(&pod, BootInstant::default());
            pods.have_ended_except(&BTreeSet::new())
        };
        let in_state = |state: &str, restarts: u32| {
            let mut status = serde_json::json!({
                "name": "operator", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
            });
            status["state"][state] = serde_json::json!({ "exitCode": 1 });
            ended("status", "containerStatuses", serde_json::json!([status]))
        };
        assert!(!ended("status", "message", "unknown".into()));
        assert!(!in_state("running", 1) && !in_state("waiting", 0));
        assert!(in_state("waiting", 1) && in_state("terminated", 0));
        let without_address = ended("status", "podIP", serde_json::Value::Null);
        assert!(!without_address, "a pod that starts");
        assert!(ended(
            "metadata",
            "deletionTimestamp",
            "2026-01-01T00:00:00Z".into()
        ));
    }

    #[test]
    fn a_replica_is_asked_at_the_address_of_its_pod() {
        let mut pods = Pods::new(Some("own"));
        for observation in [seen("own", "True"), seen("other", "False")] {
            pods.observe(&observation, BootInstant::default());
        }
        assert_eq!(
            pods.all(),
            ["10.0.0.7:8080".parse().unwrap()],
            "unready, and asked"
        );
        assert_eq!(pods.ready_pod("10.0.0.7:8080".parse().unwrap()), None);
        let Observation::Seen(mut pod, origin) = seen("other", "True") else {
            unreachable!()
        };
        pod.status.as_mut().unwrap().pod_ip = None;
        pods.observe(&Observation::Seen(pod, origin), BootInstant::default());
        assert_eq!(pods.all(), []);
    }
}
