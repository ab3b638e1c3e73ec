//! The other replicas of this operator in this cluster: whether one could take what this one gives up.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};

use super::{object::ObjectKey, observe::Observation};
use crate::lease::Moment;

/// A watch that breaks off is tried again within 7.5 s, and tells each time that it cannot be taken up. Once it is, nothing
/// tells that where no pod changes.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// Where the replicas of this operator are found.
#[derive(Clone, Debug)]
pub struct Siblings {
    pub namespace: String,
    /// The labels of the pods, as in a selector.
    pub selector: String,
    /// The pod of this replica.
    pub own: String,
}

impl Siblings {
    pub(super) fn api(&self, client: &Client) -> Api<DeserializeGuard<Pod>> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    pub(super) fn config(&self) -> watcher::Config {
        watcher::Config::default().labels(&self.selector)
    }
}

/// Those that are ready. Unknown = none: what nobody can take is stopped.
#[derive(Debug, Default)]
pub(super) struct Ready {
    own: String,
    pods: BTreeSet<ObjectKey>,
    listed: BTreeSet<ObjectKey>,
    listing: bool,
    /// When the watch broke off, or could not be taken up, for the last time, and nothing came since: what is known may
    /// be old.
    lost: Option<Moment>,
}

impl Ready {
    pub(super) fn new(own: &str) -> Self {
        Self {
            own: own.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn any(&self, now: Moment) -> bool {
        let lost = self.lost.is_some_and(|lost| now < lost + TAKEN_UP);
        !lost && !self.pods.is_empty()
    }

    pub(super) fn observe(&mut self, observation: &Observation<Pod>, now: Moment) {
        // Changes come in their order: with one, the deletion of the own pod for example, came all before it.
        self.lost = match observation {
            Observation::Failed(_) => Some(now),
            Observation::Restarted => self.lost,
            Observation::Synced => None,
            _ => self.lost.filter(|_| self.listing),
        };
        match observation {
            Observation::Restarted => {
                self.listed.clear();
                self.listing = true;
            }
            Observation::Seen(pod) => {
                let key = ObjectKey::of(pod.as_ref());
                if key.name == self.own {
                    return;
                }
                if is_ready(pod) {
                    self.listed.insert(key.clone());
                    self.pods.insert(key);
                } else {
                    self.pods.remove(&key);
                }
            }
            Observation::Gone(key) => {
                self.pods.remove(key);
            }
            Observation::Synced => {
                if std::mem::take(&mut self.listing) {
                    let listed = std::mem::take(&mut self.listed);
                    self.pods.retain(|pod| listed.contains(pod));
                }
            }
            Observation::Malformed(..) | Observation::Failed(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::observe::Trouble;

    fn seen(name: &str, ready: &str) -> Observation<Pod> {
        let pod = serde_json::json!({
            "metadata": { "name": name, "namespace": "redlock" },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        });
        Observation::Seen(Box::new(serde_json::from_value(pod).unwrap()))
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
        let mut ready = Ready::new("own");
        let listed = [
            Observation::Restarted,
            seen("own", "True"),
            seen("other", "True"),
            Observation::Synced,
        ];
        let all = listed.iter().chain(more);
        all.for_each(|observation| ready.observe(observation, Moment::default()));
        ready.any(Moment::default() + Duration::from_secs(seconds))
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
        let listing = || [failed(), Observation::Restarted, seen("other", "True")];
        assert!(!any_after(&listing()));
        let [failed, restarted, other] = listing();
        assert!(any_after(&[failed, restarted, other, Observation::Synced]));
    }
}
