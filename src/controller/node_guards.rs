//! Follows the pods of the node agent and of the node guardian, which freeze the pods of fenced locks: on which nodes are
//! both ready?

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::{
    object::ObjectKey,
    observe::{Observation, follow},
    siblings::is_ready,
};

/// The label of the chart with the name of the DaemonSet.
const COMPONENT: &str = "app.kubernetes.io/component";
/// Each of them freezes pods without the other; only both survive the loss of one.
const PARTS: [&str; 2] = ["node-agent", "node-guardian"];

/// The nodes with ready pods of each DaemonSet; `None` while they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeGuards(Option<BTreeSet<(String, &'static str)>>);

/// Whether the nodes on which pods of a lock run are guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    Yes,
    /// Each node with the DaemonSets that have no ready pod there.
    No(Vec<(String, Vec<&'static str>)>),
    Unknown,
}

impl NodeGuards {
    pub(super) fn judge(&self, nodes: &BTreeSet<String>) -> Guarded {
        let Some(ready) = &self.0 else {
            return Guarded::Unknown;
        };
        let missing = |node: &String| {
            let absent = PARTS
                .iter()
                .filter(|part| !ready.contains(&(node.clone(), **part)));
            let absent: Vec<&'static str> = absent.copied().collect();
            (!absent.is_empty()).then(|| (node.clone(), absent))
        };
        let missing: Vec<_> = nodes.iter().filter_map(missing).collect();
        if missing.is_empty() {
            Guarded::Yes
        } else {
            Guarded::No(missing)
        }
    }
}

/// The watch of their pods, once a fenced lock needs it.
#[derive(Debug, Default)]
pub(super) struct GuardPods {
    /// Node and DaemonSet of each ready pod.
    ready: BTreeMap<ObjectKey, (String, &'static str)>,
    /// Whether the first list is complete, and the watch has not broken since.
    known: bool,
    task: Option<AbortHandle>,
    tasks: JoinSet<()>,
}

impl GuardPods {
    /// Follows the pods in the namespace of the operator from now on.
    pub(super) fn follow<T: Send + 'static>(
        &mut self,
        client: &Client,
        namespace: &str,
        told: &mpsc::Sender<T>,
        tell: fn(Observation<Pod>) -> T,
    ) {
        if self.task.is_some() {
            return;
        }
        let api = Api::<DeserializeGuard<Pod>>::namespaced(client.clone(), namespace);
        let selector = format!("{COMPONENT} in ({})", PARTS.join(","));
        let config = watcher::Config::default().labels(&selector);
        let following = follow(api, config, told.clone(), tell);
        self.task = Some(self.tasks.spawn(following));
    }

    /// Applies an observation and returns the guarded nodes.
    pub(super) fn observe(&mut self, observation: &Observation<Pod>) -> NodeGuards {
        match observation {
            Observation::Seen(pod, origin) => {
                let key = ObjectKey::of(pod.as_ref());
                match place(pod) {
                    Some(place) if is_ready(pod) => drop(self.ready.insert(key, place)),
                    _ => drop(self.ready.remove(&key)),
                }
                // A watch delivers changes in order, so this one follows all earlier ones.
                self.known |= *origin == crate::targets::Origin::Watch;
            }
            Observation::Gone(key) => drop(self.ready.remove(key)),
            Observation::Malformed(metadata, _) => {
                drop(self.ready.remove(&ObjectKey::of_metadata(metadata)));
            }
            Observation::Synced => self.known = true,
            Observation::Failed(_) => self.known = false,
        }
        NodeGuards(self.known.then(|| self.ready.values().cloned().collect()))
    }
}

/// Returns the node of a pod, and its DaemonSet.
fn place(pod: &Pod) -> Option<(String, &'static str)> {
    let part = pod.metadata.labels.as_ref()?.get(COMPONENT)?;
    let part = PARTS.iter().find(|known| *known == part)?;
    Some((pod.spec.as_ref()?.node_name.clone()?, part))
}

#[cfg(test)]
impl NodeGuards {
    pub(super) fn test(ready: &[(&str, &'static str)]) -> Self {
        Self(Some(
            ready
                .iter()
                .map(|(node, part)| ((*node).to_owned(), *part))
                .collect(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{controller::observe::Trouble, targets::Origin};

    fn pod(name: &str, part: &str, node: &str, ready: &str) -> Observation<Pod> {
        let pod = serde_json::json!({
            "metadata": {"name": name, "namespace": "redlock", "labels": {COMPONENT: part}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        Observation::Seen(Box::new(serde_json::from_value(pod).unwrap()), Origin::Watch)
    }

    fn judged(guards: &NodeGuards, nodes: &[&str]) -> Guarded {
        guards.judge(&nodes.iter().map(|node| (*node).to_owned()).collect())
    }

    #[test]
    fn a_node_is_guarded_by_a_ready_pod_of_each_daemon_set() {
        let mut pods = GuardPods::default();
        for observation in [
            pod("a-1", "node-agent", "n1", "True"),
            pod("g-1", "node-guardian", "n1", "True"),
            pod("a-2", "node-agent", "n2", "True"),
            pod("g-2", "node-guardian", "n2", "False"),
            pod("o-3", "operator", "n3", "True"),
        ] {
            pods.observe(&observation);
        }
        let guards = pods.observe(&Observation::Synced);
        assert_eq!(judged(&guards, &["n1"]), Guarded::Yes);
        assert_eq!(judged(&guards, &[]), Guarded::Yes);
        let missing = vec![
            ("n2".to_owned(), vec!["node-guardian"]),
            ("n3".to_owned(), vec!["node-agent", "node-guardian"]),
        ];
        assert_eq!(judged(&guards, &["n1", "n2", "n3"]), Guarded::No(missing));
    }

    #[test]
    fn guards_that_cannot_be_followed_are_unknown() {
        let mut pods = GuardPods::default();
        assert_eq!(judged(&NodeGuards::default(), &["n1"]), Guarded::Unknown);
        let trouble = Trouble {
            forbidden: false,
            text: "connection reset".to_owned(),
        };
        pods.observe(&Observation::Synced);
        let guards = pods.observe(&Observation::Failed(trouble));
        assert_eq!(judged(&guards, &[]), Guarded::Unknown);
        let guards = pods.observe(&pod("a-1", "node-agent", "n1", "True"));
        assert_ne!(judged(&guards, &["n1"]), Guarded::Unknown);
    }
}
