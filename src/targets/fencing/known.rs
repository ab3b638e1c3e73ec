//! Remembers the pods of a namespace that mount the volume of a lock, and which of them vanished before they had ended.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pod, ended::has_ended};

/// A moment since which every change of the pods is known, up to the next list. Pods that were created and
/// removed before a list are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    list: u64,
    /// The number of pods that had vanished before.
    lost: usize,
}

/// Whether the pods of a lock are gone, according to a list that was read after starts were forbidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Yes,
    /// These pods have not ended.
    NotYet(Vec<String>),
    /// The reason why this can no longer be known.
    Unknown(String),
}

/// The last state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    /// `None` before the pod is bound.
    node: Option<String>,
    /// The locks that its volumes name.
    locks: Vec<String>,
    ended: bool,
}

impl Seen {
    fn of(pod: &Pod) -> Self {
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: pod.spec.node_name.clone(),
            locks: pod.spec.locks().map(str::to_owned).collect(),
            ended: has_ended(pod),
        }
    }

    fn is_of(&self, lock: &str) -> bool {
        self.locks.iter().any(|name| name == lock)
    }
}

/// The pods of a namespace.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The pods by UID.
    pods: BTreeMap<String, Seen>,
    /// The pods that vanished in this epoch although their end was not reported.
    lost: Vec<Seen>,
    /// The number of lists; zero before the first one is complete.
    lists: u64,
    /// The version of the pods up to which every change is known.
    version: u64,
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Returns the number of a resource version, which orders the versions of one kind.
pub(super) fn number(version: Option<&str>) -> Option<u64> {
    version?.parse().ok()
}

impl Known {
    /// Records a complete list, which begins an epoch.
    pub(super) fn begin(&mut self, pods: &[Pod], version: u64) {
        self.lists += 1;
        self.lost.clear();
        self.pods = pods.iter().map(|pod| (uid(pod), Seen::of(pod))).collect();
        self.version = version;
    }

    /// Records a pod that was created or has changed. Reports whether the change matters.
    pub(super) fn see(&mut self, pod: &Pod) -> bool {
        self.reach(number(pod.metadata.resource_version.as_deref()));
        let seen = Seen::of(pod);
        self.pods.insert(uid(pod), seen.clone()) != Some(seen)
    }

    /// Records the last version of a removed pod. Reports whether the removal matters.
    pub(super) fn remove(&mut self, pod: &Pod) -> bool {
        self.reach(number(pod.metadata.resource_version.as_deref()));
        let last = Seen::of(pod);
        if !last.ended && !last.locks.is_empty() {
            self.lost.push(last);
        }
        self.pods.remove(&uid(pod)).is_some()
    }

    /// Records that all changes up to this version are known.
    pub(super) fn reach(&mut self, version: Option<u64>) {
        self.version = self.version.max(version.unwrap_or_default());
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the current epoch; `None` before the first list is complete.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        (self.lists > 0).then_some(Epoch {
            list: self.lists,
            lost: self.lost.len(),
        })
    }

    /// Returns the nodes on which pods of the lock run, or may run.
    pub(super) fn nodes(&self, lock: &str) -> BTreeSet<String> {
        let runs = self.pods.values().filter(|pod| pod.is_of(lock) && !pod.ended);
        runs.filter_map(|pod| pod.node.clone()).collect()
    }

    /// Returns the reason why a holder that knows the pods since this epoch can no longer know whether the
    /// pods of the lock are gone.
    pub(super) fn unknown(&self, lock: &str, since: Epoch) -> Option<String> {
        if self.lists != since.list {
            return Some("the watch of the pods was interrupted".to_owned());
        }
        let lost = self.lost.iter().skip(since.lost).filter(|pod| pod.is_of(lock));
        let lost: Vec<&str> = lost.map(|pod| &*pod.name).collect();
        (!lost.is_empty()).then(|| {
            format!(
                "the end of pods that were removed was not reported: {}",
                named(&lost)
            )
        })
    }

    /// Judges a list of all pods of the namespace, once every change up to its version is known.
    pub(super) fn judge(&self, list: &[Pod], lock: &str, since: Epoch) -> Gone {
        let runs = list.iter().map(Seen::of);
        let runs: Vec<String> = runs
            .filter(|pod| pod.is_of(lock) && !pod.ended)
            .map(|pod| pod.name)
            .collect();
        match self.unknown(lock, since) {
            Some(why) => Gone::Unknown(why),
            None if runs.is_empty() => Gone::Yes,
            None => Gone::NotYet(runs),
        }
    }
}

/// Names the first few pods, and the number of the others.
fn named(pods: &[&str]) -> String {
    const NAMED: usize = 3;
    let first = pods[..pods.len().min(NAMED)].join(", ");
    match pods.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: Option<&str>, lock: &str, ended: bool, version: u64) -> Pod {
        let (phase, state) = if ended {
            ("Failed", json!({"terminated": {"exitCode": 1}}))
        } else {
            ("Running", json!({"running": {}}))
        };
        let reason = ended.then_some("PodFailed");
        let condition = json!({"type": "ContainersReady", "status": "False", "reason": reason});
        let csi = json!({"driver": super::super::mount::DRIVER, "volumeAttributes": {"lock": lock}});
        let container = json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        let pod = json!({
            "metadata": {"name": format!("pod-{uid}"), "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"nodeName": node, "volumes": [{"name": "v", "csi": csi}]},
            "status": {"phase": phase, "conditions": [condition], "containerStatuses": [container]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn runs(uid: &str) -> Pod {
        pod(uid, Some("n1"), "report", false, 1)
    }

    fn ended(uid: &str) -> Pod {
        pod(uid, Some("n1"), "report", true, 2)
    }

    fn unbound(uid: &str) -> Pod {
        pod(uid, None, "report", false, 1)
    }

    fn begun(pods: &[Pod]) -> (Known, Epoch) {
        let mut known = Known::default();
        assert_eq!(known.epoch(), None);
        known.begin(pods, 7);
        let epoch = known.epoch().unwrap();
        (known, epoch)
    }

    #[test]
    fn pods_are_gone_once_the_end_of_each_was_reported() {
        for (what, before, events, list, wanted) in [
            ("nothing ever ran", vec![], vec![], vec![], Gone::Yes),
            (
                "it runs",
                vec![runs("a")],
                vec![],
                vec![runs("a")],
                Gone::NotYet(vec!["pod-a".into()]),
            ),
            (
                "it ended, and its object is left",
                vec![runs("a")],
                vec![],
                vec![ended("a")],
                Gone::Yes,
            ),
            (
                "it ended, and was removed",
                vec![runs("a")],
                vec![(true, ended("a")), (false, ended("a"))],
                vec![],
                Gone::Yes,
            ),
            (
                "only the removal shows the end",
                vec![runs("a")],
                vec![(false, ended("a"))],
                vec![],
                Gone::Yes,
            ),
            (
                "it was never bound",
                vec![],
                vec![(true, unbound("a")), (false, unbound("a"))],
                vec![],
                Gone::Yes,
            ),
            (
                "it is not bound: starts are forbidden",
                vec![],
                vec![(true, unbound("a"))],
                vec![unbound("a")],
                Gone::Yes,
            ),
            (
                "it is of another lock",
                vec![pod("a", Some("n1"), "billing", false, 1)],
                vec![],
                vec![pod("a", Some("n1"), "billing", false, 1)],
                Gone::Yes,
            ),
        ] {
            let (mut known, epoch) = begun(&before);
            for (there, pod) in &events {
                if *there {
                    known.see(pod);
                } else {
                    known.remove(pod);
                }
            }
            assert_eq!(known.judge(&list, "report", epoch), wanted, "{what}");
        }
    }

    #[test]
    fn a_force_deleted_pod_is_not_gone() {
        let (mut known, epoch) = begun(&[runs("a")]);
        known.see(&runs("b"));
        assert_eq!(known.unknown("report", epoch), None);
        known.remove(&runs("a"));
        let why = known.unknown("report", epoch).unwrap();
        assert!(why.contains("pod-a"), "{why}");
        assert!(matches!(known.judge(&[], "report", epoch), Gone::Unknown(_)));
        assert!(known.unknown("billing", epoch).is_none(), "of another lock");
        let later = known.epoch().unwrap();
        assert_eq!(known.unknown("report", later), None, "before a new lineage began");
    }

    #[test]
    fn a_list_proves_nothing_about_pods_that_came_and_went_before_it() {
        let (mut known, epoch) = begun(&[runs("a")]);
        known.begin(&[], 9);
        assert!(matches!(known.judge(&[], "report", epoch), Gone::Unknown(_)));
        let later = known.epoch().unwrap();
        assert_eq!(known.judge(&[], "report", later), Gone::Yes);
    }

    #[test]
    fn pods_run_on_their_nodes_until_they_have_ended() {
        let elsewhere = pod("c", Some("n2"), "report", false, 3);
        let (mut known, _) = begun(&[runs("a"), unbound("b"), elsewhere]);
        let nodes = |known: &Known| known.nodes("report").into_iter().collect::<Vec<_>>();
        assert_eq!(nodes(&known), ["n1", "n2"]);
        assert!(known.see(&ended("a")));
        assert!(!known.see(&ended("a")), "nothing changed");
        assert_eq!(nodes(&known), ["n2"]);
        assert!(known.nodes("billing").is_empty());
    }

    #[test]
    fn the_known_version_never_falls() {
        let (mut known, _) = begun(&[]);
        known.see(&pod("a", None, "report", false, 12));
        known.reach(Some(9));
        known.reach(None);
        assert_eq!(known.version(), 12);
    }
}
