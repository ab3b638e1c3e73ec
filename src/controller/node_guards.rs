//! Follows the pods of the node agent and of the node guardian, which freeze the pods of fenced locks, to
//! determine on which nodes both are ready.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    object::ObjectKey,
    observe::{Observation, follow},
    siblings::is_ready,
};
use crate::targets::Origin;

/// The label with which the chart names the component of a pod, here the DaemonSet.
const COMPONENT: &str = "app.kubernetes.io/component";
/// The label of this chart: the pods of another chart may have a component of the same name.
const CHART: &str = "app.kubernetes.io/name=redlock-operator";
/// The DaemonSets that guard a node. Each of them freezes pods without the other; only both together survive
/// the loss of one.
const PARTS: [&str; 2] = ["node-agent", "node-guardian"];

/// The nodes with ready pods of each DaemonSet; `None` while they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeGuards(Option<BTreeSet<(String, &'static str)>>);

/// Whether the nodes on which pods of a lock run are guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    Yes,
    /// Each node that is not guarded, with the DaemonSets that have no ready pod there.
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

/// The watches of the pods, one for each DaemonSet, started once a fenced lock needs them.
#[derive(Debug, Default)]
pub(super) struct GuardPods {
    /// The node of each ready pod.
    ready: BTreeMap<(&'static str, ObjectKey), String>,
    /// The DaemonSets whose first list is complete, and whose watch has not broken since.
    known: BTreeSet<&'static str>,
    tasks: JoinSet<()>,
}

impl GuardPods {
    /// Starts to follow the pods in the namespace of the operator, unless they are followed already.
    pub(super) fn follow<T: Send + 'static>(
        &mut self,
        client: &Client,
        namespace: &str,
        sender: &mpsc::Sender<T>,
        wrap: fn(&'static str, Observation<Pod>) -> T,
    ) {
        if !self.tasks.is_empty() {
            return;
        }
        for part in PARTS {
            let api = Api::<DeserializeGuard<Pod>>::namespaced(client.clone(), namespace);
            let config = watcher::Config::default().labels(&format!("{CHART},{COMPONENT}={part}"));
            let following = follow(api, config, sender.clone(), move |observation| {
                wrap(part, observation)
            });
            self.tasks.spawn(following);
        }
    }

    /// Applies an observation of a pod of this DaemonSet, and returns the guarded nodes.
    pub(super) fn observe(&mut self, part: &'static str, observation: &Observation<Pod>) -> NodeGuards {
        match observation {
            Observation::Seen(pod, origin) => {
                let key = (part, ObjectKey::of(pod.as_ref()));
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                match node.filter(|_| is_ready(pod)) {
                    Some(node) => drop(self.ready.insert(key, node)),
                    None => drop(self.ready.remove(&key)),
                }
                // A watch delivers changes in order, so this one follows all earlier ones.
                if *origin == Origin::Watch {
                    self.known.insert(part);
                }
            }
            Observation::Gone(key) => drop(self.ready.remove(&(part, key.clone()))),
            Observation::Malformed(metadata, _) => {
                let key = ObjectKey::of_metadata(metadata);
                drop(self.ready.remove(&(part, key)));
            }
            Observation::Synced => drop(self.known.insert(part)),
            Observation::Failed(_) => drop(self.known.remove(part)),
        }
        let known = PARTS.iter().all(|part| self.known.contains(part));
        let ready = self.ready.iter().map(|((part, _), node)| (node.clone(), *part));
        NodeGuards(known.then(|| ready.collect()))
    }
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
    use crate::controller::observe::Trouble;

    fn pod(name: &str, node: &str, ready: &str) -> Observation<Pod> {
        let pod = serde_json::json!({
            "metadata": {"name": name, "namespace": "redlock"},
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
        let [agent, guardian] = PARTS;
        let mut pods = GuardPods::default();
        pods.observe(agent, &pod("a-1", "n1", "True"));
        pods.observe(agent, &pod("a-2", "n2", "True"));
        let guards = pods.observe(agent, &Observation::Synced);
        assert_eq!(judged(&guards, &["n1"]), Guarded::Unknown, "no guardian was read");
        pods.observe(guardian, &pod("g-1", "n1", "True"));
        pods.observe(guardian, &pod("g-2", "n2", "False"));
        let guards = pods.observe(guardian, &Observation::Synced);
        assert_eq!(judged(&guards, &["n1"]), Guarded::Yes);
        assert_eq!(judged(&guards, &[]), Guarded::Yes);
        let missing = vec![
            ("n2".to_owned(), vec![guardian]),
            ("n3".to_owned(), vec![agent, guardian]),
        ];
        assert_eq!(judged(&guards, &["n1", "n2", "n3"]), Guarded::No(missing));
    }

    #[test]
    fn guards_that_cannot_be_followed_are_unknown() {
        let [agent, guardian] = PARTS;
        let mut pods = GuardPods::default();
        assert_eq!(judged(&NodeGuards::default(), &["n1"]), Guarded::Unknown);
        let trouble = Trouble {
            forbidden: false,
            text: "connection reset".to_owned(),
        };
        pods.observe(agent, &Observation::Synced);
        pods.observe(guardian, &Observation::Synced);
        let guards = pods.observe(agent, &Observation::Failed(trouble));
        assert_eq!(judged(&guards, &[]), Guarded::Unknown);
        let guards = pods.observe(agent, &pod("a-1", "n1", "True"));
        assert_ne!(judged(&guards, &["n1"]), Guarded::Unknown);
    }
}
