//! The other replicas of this operator in this cluster: whether one could take what this one gives up.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};

use super::{object::ObjectKey, observe::Observation};
use crate::{lease::BootInstant, targets::Origin};

/// A watch that breaks off is tried again within 7.5 s, and tells each time that it cannot be taken up. Once it is, nothing
/// tells that where no pod changes.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// What the chart calls the port of the operator's HTTP side.
const PORT: &str = "http";

/// Where the replicas of this operator are found.
#[derive(Clone, Debug)]
pub(crate) struct Siblings {
    pub(crate) namespace: String,
    /// The labels of the pods, as in a selector.
    pub(crate) selector: String,
    /// The pod of this replica.
    pub(crate) own: String,
}

impl Siblings {
    pub(super) fn api(&self, client: &Client) -> Api<DeserializeGuard<Pod>> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    pub(super) fn config(&self) -> watcher::Config {
        watcher::Config::default().labels(&self.selector)
    }
}

/// The other replicas, by their pods. What is not known is none: what no sibling can take is stopped.
#[derive(Debug, Default)]
pub(super) struct Pods {
    /// The pod of this replica; none where it is not known which pods are its siblings.
    own: Option<String>,
    pods: BTreeMap<ObjectKey, Replica>,
    /// The first list was complete.
    synced: bool,
    /// When the watch broke off, or could not be taken up, for the last time, and nothing came since: what is known may
    /// be old.
    lost: Option<BootInstant>,
}

/// What the pod of a replica shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Replica {
    ready: bool,
    /// Where it answers, once its pod has an address.
    address: Option<SocketAddr>,
}

impl Pods {
    pub(super) fn new(own: Option<&str>) -> Self {
        Self {
            own: own.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Where those answer that are ready. The kubelet of a lost node reports nothing for 40 s: readiness alone is no proof
    /// that a replica is there.
    pub(super) fn ready(&self, now: BootInstant) -> Vec<SocketAddr> {
        let lost = self.is_lost(now);
        let ready = self.pods.values().filter(|replica| replica.ready && !lost);
        ready.filter_map(|replica| replica.address).collect()
    }

    fn is_lost(&self, now: BootInstant) -> bool {
        self.lost.is_some_and(|lost| now < lost + TAKEN_UP)
    }

    /// Where all answer, as far as is known. An answer is its own proof, so neither readiness nor a watch that broke off
    /// matters.
    pub(super) fn all(&self) -> Vec<SocketAddr> {
        self.pods.values().filter_map(|replica| replica.address).collect()
    }

    /// Whether the ready ones are known with their addresses, so that an answer of each of these is all there is to know.
    pub(super) fn are_known(&self, now: BootInstant) -> bool {
        let hidden = |replica: &Replica| replica.ready && replica.address.is_none();
        self.synced && !self.is_lost(now) && !self.pods.values().any(hidden)
    }

    /// Whether the replica at this address should answer.
    pub(super) fn is_ready(&self, address: SocketAddr) -> bool {
        let mut pods = self.pods.values();
        pods.any(|replica| replica.ready && replica.address == Some(address))
    }

    pub(super) fn observe(&mut self, observation: &Observation<Pod>, now: BootInstant) {
        self.lost = match observation {
            Observation::Failed(_) => Some(now),
            // Changes come in their order: with one, the deletion of the own pod for example, came all before it. A list
            // has no order until it is complete.
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
                    address: address(pod),
                };
                self.pods.insert(key, replica);
            }
            Observation::Gone(key) => {
                self.pods.remove(key);
            }
            // It is there, and may be ready.
            Observation::Malformed(metadata, _) => {
                let key = ObjectKey::of_metadata(metadata);
                if self.own.as_ref() != Some(&key.name) {
                    self.pods.entry(key).or_default().ready = true;
                }
            }
            Observation::Synced => self.synced = true,
            Observation::Failed(_) => {}
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// The address of the pod and the port that its container calls [`PORT`]. A pod that has ended has none.
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

    /// After a list that had both, and then these.
    fn any_after(more: &[Observation<Pod>]) -> bool {
        any_at(5, more)
    }

    /// So many seconds later.
    fn any_at(seconds: u64, more: &[Observation<Pod>]) -> bool {
        let mut pods = Pods::new(Some("own"));
        let listed = [
            listed("own", "True"),
            listed("other", "True"),
            Observation::Synced,
        ];
        let all = listed.iter().chain(more);
        all.for_each(|observation| pods.observe(observation, BootInstant::default()));
        !pods
            .ready(BootInstant::default() + Duration::from_secs(seconds))
            .is_empty()
    }

    #[test]
    fn a_sibling_that_cannot_be_followed_is_none() {
        assert!(any_after(&[]));
        assert!(!any_after(&[failed()]));
        assert!(any_at(10, &[failed()]), "taken up, and no pod changed");
        // What comes then comes after all that was missed.
        assert!(any_after(&[failed(), seen("own", "False")]));
        assert!(!any_after(&[
            failed(),
            seen("other", "False"),
            seen("own", "False")
        ]));
        // A list has no order until it is complete.
        let other = || listed("other", "True");
        assert!(!any_after(&[failed(), other()]));
        assert!(any_after(&[failed(), other(), Observation::Synced]));
        let gone = ObjectKey {
            namespace: "redlock".into(),
            name: "third".into(),
        };
        assert!(!any_after(&[failed(), other(), Observation::Gone(gone)]));
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
        assert_eq!(pods.ready(BootInstant::default()), []);
        let Observation::Seen(mut pod, origin) = seen("other", "True") else {
            unreachable!()
        };
        pod.status.as_mut().unwrap().pod_ip = None;
        pods.observe(&Observation::Seen(pod, origin), BootInstant::default());
        assert_eq!(pods.all(), []);
    }
}
