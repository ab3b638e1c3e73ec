//! Keeps the pods of a selector as a watch shows them, so that a step that changes nothing needs no list.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{selections::Selections, snapshot::PodSnapshot};
use crate::targets::{Change, Origin, slim::Pod};

/// The observed pods. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
pub(super) struct Content {
    pods: BTreeMap<String, PodSnapshot>,
    /// Whether these are all pods: a list was complete, and the watch has not failed since.
    current: bool,
    /// Whether a change is possible that this watch does not show.
    doubt: bool,
    changed: bool,
}

/// The content of the watch.
#[derive(Debug)]
pub(super) struct Shown {
    /// `None` if a list is needed.
    pub(super) pods: Option<Vec<PodSnapshot>>,
    /// Whether a change was seen since the last list.
    pub(super) changed: bool,
}

impl Watched {
    /// Records a change. Returns true if a pod changed.
    pub(super) fn take(&self, change: Change<Pod>) -> bool {
        let mut content = self.content();
        let changed = content.take(change);
        content.changed |= changed;
        changed
    }

    /// Records that a list is about to be requested.
    pub(super) fn settle(&self) {
        let mut content = self.content();
        (content.doubt, content.changed) = (false, false);
    }

    pub(super) fn shown(&self) -> Shown {
        let content = self.content();
        let pods = || content.pods.values().cloned().collect();
        Shown {
            pods: (content.current && !content.doubt).then(pods),
            changed: content.changed,
        }
    }

    /// Makes the pods known to the other targets of the process.
    pub(super) fn select(&self, selections: &Selections, namespace: &str, by: &str) {
        selections.add(namespace, by, &self.0);
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Reports whether the selector matches this pod.
    pub(super) fn has(&self, name: &str, uid: &str) -> bool {
        self.pods.get(name).is_some_and(|pod| pod.uid == uid)
    }

    fn take(&mut self, change: Change<Pod>) -> bool {
        match change {
            Change::Seen(pod, origin) => {
                let snapshot = PodSnapshot::of(pod, true);
                let before = self.pods.insert(snapshot.name.clone(), snapshot.clone());
                if origin != Origin::Watch {
                    self.current = false;
                    return false;
                }
                !self.current || before.is_none_or(|before| !snapshot.is_like(&before))
            }
            Change::Gone(key) => {
                let before = self.pods.remove(&key.name);
                let labelled = |snapshot: PodSnapshot| snapshot.labelled || snapshot.by.is_some();
                // The pod is deleted, or left the selector.
                self.doubt |= before.is_some_and(labelled);
                true
            }
            Change::Synced => {
                // A pod that is missing from the list may have left the selector with the label.
                self.doubt = true;
                self.current = true;
                true
            }
            Change::Failed(_) => std::mem::take(&mut self.current),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;
    use serde_json::json;

    use super::*;
    use crate::{lease::BootInstant, targets::ObjectKey};

    fn pod(version: &str, ready: bool, labelled: bool) -> Pod {
        let labels = if labelled {
            json!({"redlock.dev/role": "active"})
        } else {
            json!({})
        };
        let ready = if ready { "True" } else { "False" };
        let condition =
            json!({"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T12:00:00Z"});
        let pod = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": version, "labels": labels},
            "status": {"conditions": [condition]},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn pod_event_that_changes_nothing_for_the_label_is_no_news() {
        let watched = Watched::default();
        let listed = |pod| Change::Seen(pod, Origin::List(BootInstant::default()));
        let seen = |pod| Change::Seen(pod, Origin::Watch);
        let gone = || {
            Change::Gone(ObjectKey {
                namespace: "n".into(),
                name: "a".into(),
            })
        };
        assert!(watched.shown().pods.is_none(), "not listed yet");
        assert!(!watched.take(listed(pod("1", true, false))));
        assert!(watched.take(Change::Synced));
        assert!(watched.shown().pods.is_none(), "a list is needed once");
        watched.settle();
        assert_eq!(watched.shown().pods.unwrap().len(), 1);
        assert!(!watched.take(seen(pod("2", true, false))));
        assert!(!watched.shown().changed);
        assert_eq!(watched.shown().pods.unwrap()[0].version, "2");
        assert!(watched.take(seen(pod("3", false, false))));
        assert!(watched.shown().changed && watched.shown().pods.is_some());
        assert!(watched.take(seen(pod("4", true, true))));
        assert!(watched.take(gone()));
        assert!(watched.shown().pods.is_none(), "it may have left the selector");
        watched.settle();
        assert!(watched.shown().pods.unwrap().is_empty());
        assert!(watched.take(Change::Failed(watcher::Error::NoResourceVersion)));
        assert!(watched.shown().pods.is_none());
        assert!(!watched.take(listed(pod("5", true, false))));
        assert!(watched.shown().pods.is_none(), "the list is not complete");
    }
}
