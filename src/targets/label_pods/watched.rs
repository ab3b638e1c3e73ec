//! The pods of a selector as a watch shows them: a step that changes nothing needs no list.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::runtime::watcher::{self, Event};

use super::snapshot::PodSnapshot;
use crate::targets::slim::Pod;

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    /// None before the first list of the watch is complete, and while it cannot be kept up.
    known: Option<BTreeMap<String, PodSnapshot>>,
    /// A list that is not complete yet.
    coming: BTreeMap<String, PodSnapshot>,
    /// Something that the watch alone does not show may have changed.
    doubt: bool,
    changed: bool,
}

/// What the watch shows.
#[derive(Debug)]
pub(super) struct Shown {
    /// None where a list is needed.
    pub(super) pods: Option<Vec<PodSnapshot>>,
    /// Something changed since this was asked for last.
    pub(super) changed: bool,
}

impl Watched {
    /// True if something is another than before.
    pub(super) fn take(&self, event: watcher::Result<Event<Pod>>) -> bool {
        let mut content = self.content();
        let changed = content.take(event);
        content.changed |= changed;
        changed
    }

    /// A list is about to be made.
    pub(super) fn settle(&self) {
        let mut content = self.content();
        (content.doubt, content.changed) = (false, false);
    }

    pub(super) fn shown(&self) -> Shown {
        let content = self.content();
        let known = content.known.as_ref().filter(|_| !content.doubt);
        Shown {
            pods: known.map(|known| known.values().cloned().collect()),
            changed: content.changed,
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn take(&mut self, event: watcher::Result<Event<Pod>>) -> bool {
        match event {
            Ok(Event::Init) => {
                self.coming.clear();
                false
            }
            Ok(Event::InitApply(pod)) => {
                let snapshot = PodSnapshot::of(pod, true);
                self.coming.insert(snapshot.name.clone(), snapshot);
                false
            }
            Ok(Event::InitDone) => {
                // What went meanwhile may have left the selector with the label.
                self.doubt = true;
                self.known = Some(std::mem::take(&mut self.coming));
                true
            }
            Ok(Event::Apply(pod)) => {
                let snapshot = PodSnapshot::of(pod, true);
                let Some(known) = &mut self.known else { return true };
                let before = known.insert(snapshot.name.clone(), snapshot.clone());
                before.is_none_or(|before| !snapshot.is_like(&before))
            }
            Ok(Event::Delete(pod)) => {
                let snapshot = PodSnapshot::of(pod, true);
                let known = self.known.as_mut();
                let before = known.and_then(|known| known.remove(&snapshot.name));
                let labelled = |snapshot: &PodSnapshot| snapshot.labelled || snapshot.by.is_some();
                // Gone, or out of the selector.
                self.doubt |= labelled(&snapshot) || before.as_ref().is_some_and(labelled);
                true
            }
            Err(_) => self.known.take().is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert!(watched.shown().pods.is_none(), "not listed yet");
        assert!(!watched.take(Ok(Event::Init)));
        assert!(!watched.take(Ok(Event::InitApply(pod("1", true, false)))));
        assert!(watched.take(Ok(Event::InitDone)));
        assert!(watched.shown().pods.is_none(), "a list is needed once");
        watched.settle();
        assert_eq!(watched.shown().pods.unwrap().len(), 1);
        assert!(!watched.take(Ok(Event::Apply(pod("2", true, false)))));
        assert!(!watched.shown().changed);
        assert_eq!(watched.shown().pods.unwrap()[0].version, "2");
        assert!(watched.take(Ok(Event::Apply(pod("3", false, false)))));
        assert!(watched.shown().changed && watched.shown().pods.is_some());
        assert!(watched.take(Ok(Event::Delete(pod("4", true, true)))));
        assert!(watched.shown().pods.is_none(), "it may have left the selector");
        watched.settle();
        assert!(watched.shown().pods.unwrap().is_empty());
        assert!(watched.take(Err(watcher::Error::NoResourceVersion)));
        assert!(watched.shown().pods.is_none());
    }
}
