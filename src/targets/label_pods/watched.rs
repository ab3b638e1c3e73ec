//! Keeps the pods of a namespace as one watch shows them, for all targets that select some of them, so that a step that
//! changes nothing needs no list.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures_util::{Stream, StreamExt, stream};
use kube::{
    Api, Client,
    core::{Selector, SelectorExt},
    runtime::watcher,
};
use tokio::{
    sync::watch,
    task::{JoinSet, coop},
};

use super::snapshot::PodSnapshot;
use crate::targets::{Change, Origin, slim::Pod, watch_objects};

/// The watch of the pods of a namespace. It ends with its last follower.
#[derive(Debug, Default)]
pub(in crate::targets) struct NamespacePods {
    content: Arc<Mutex<Content>>,
    /// Aborted when this is dropped.
    _tasks: JoinSet<()>,
}

impl NamespacePods {
    pub(in crate::targets) fn follow(client: &Client, namespace: &str) -> Self {
        let api = Api::<Pod>::namespaced(client.clone(), namespace);
        let content = Arc::new(Mutex::new(Content::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(run(api, content.clone()));
        Self {
            content,
            _tasks: tasks,
        }
    }
}

async fn run(api: Api<Pod>, content: Arc<Mutex<Content>>) {
    let mut changes = pin!(watch_objects(api, watcher::Config::default()));
    while let Some(change) = changes.next().await {
        lock(&content).take(change);
        // Each change is compared with all selectors.
        coop::consume_budget().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Content {
    pods: BTreeMap<String, Known>,
    /// Whether these are all pods: a list was complete, and the watch has not failed since.
    current: bool,
    followers: Vec<Weak<Follower>>,
}

/// A pod, with the labels that selectors match.
#[derive(Debug)]
struct Known {
    labels: BTreeMap<String, String>,
    pod: PodSnapshot,
}

impl Content {
    fn take(&mut self, change: Change<Pod>) {
        match change {
            Change::Seen(pod, origin) => {
                self.current &= origin == Origin::Watch;
                let labels = pod.metadata.labels.clone().unwrap_or_default();
                let pod = PodSnapshot::of(pod, true);
                let now = Known { labels, pod };
                let before = self.pods.remove(&now.pod.name);
                self.notify(|follower| follower.see(before.as_ref(), Some(&now), origin));
                self.pods.insert(now.pod.name.clone(), now);
            }
            Change::Gone(key) => {
                let before = self.pods.remove(&key.name);
                self.notify(|follower| follower.see(before.as_ref(), None, Origin::Watch));
            }
            Change::Synced => {
                self.current = true;
                self.notify(Follower::sync);
            }
            Change::Failed(_) => {
                self.current = false;
                self.notify(Follower::fail);
            }
        }
    }

    fn notify(&mut self, change: impl Fn(&Follower)) {
        self.followers.retain(|follower| {
            let follower = follower.upgrade();
            follower.iter().for_each(|follower| change(follower));
            follower.is_some()
        });
    }
}

/// A target that selects pods of the namespace.
#[derive(Debug)]
pub(super) struct Follower {
    pods: Arc<Mutex<Content>>,
    selector: Selector,
    flags: Mutex<Flags>,
    /// The number of changes of selected pods.
    changes: watch::Sender<u64>,
}

/// The state of the pods of one selector.
#[derive(Debug, Default)]
struct Flags {
    /// Whether the known pods are all: a list was complete, and the watch has not failed since.
    current: bool,
    /// Whether a change is possible that this watch does not show.
    doubt: bool,
    changed: bool,
}

impl Follower {
    /// Reports whether the selector matches this pod.
    pub(super) fn has(&self, name: &str, uid: &str) -> bool {
        let content = lock(&self.pods);
        let known = content.pods.get(name).filter(|known| known.pod.uid == uid);
        known.is_some_and(|known| self.selector.matches(&known.labels))
    }

    fn change(&self, change: impl FnOnce(&mut Flags) -> bool) {
        let mut flags = lock(&self.flags);
        let changes = change(&mut flags);
        flags.changed |= changes;
        drop(flags);
        if changes {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Handles a change of one pod, of which the selector may match the version before, the present one, both or none.
    fn see(&self, before: Option<&Known>, now: Option<&Known>, origin: Origin) {
        let matches = |known: &&Known| self.selector.matches(&known.labels);
        let (before, now) = (before.filter(matches), now.filter(matches));
        self.change(|flags| match (before, now) {
            (_, Some(_)) if origin != Origin::Watch => {
                flags.current = false;
                false
            }
            (before, Some(now)) => {
                !flags.current || before.is_none_or(|before| !now.pod.is_like(&before.pod))
            }
            // The pod is deleted, or left the selector.
            (Some(before), None) => {
                flags.doubt |= before.pod.labelled || before.pod.by.is_some();
                true
            }
            (None, None) => false,
        });
    }

    fn sync(&self) {
        // A pod that is missing from the list may have left the selector with the label.
        self.change(|flags| {
            (flags.doubt, flags.current) = (true, true);
            true
        });
    }

    fn fail(&self) {
        self.change(|flags| std::mem::take(&mut flags.current));
    }
}

/// The observed pods of a selector. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    follower: Arc<Follower>,
    /// The watch runs while it has followers.
    _watch: Arc<NamespacePods>,
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
    pub(super) fn new(watch: Arc<NamespacePods>, selector: Selector) -> Self {
        let follower = Arc::new(Follower {
            pods: watch.content.clone(),
            selector,
            flags: Mutex::default(),
            changes: watch::Sender::new(0),
        });
        let mut content = lock(&watch.content);
        content.followers.push(Arc::downgrade(&follower));
        if content.current {
            follower.sync();
        }
        drop(content);
        Self {
            follower,
            _watch: watch,
        }
    }

    /// Records that a list is about to be requested.
    pub(super) fn settle(&self) {
        let mut flags = lock(&self.follower.flags);
        (flags.doubt, flags.changed) = (false, false);
    }

    pub(super) fn shown(&self) -> Shown {
        // No change may come between the pods and the state that describes them.
        let content = lock(&self.follower.pods);
        let flags = lock(&self.follower.flags);
        let selected = |known: &&Known| self.follower.selector.matches(&known.labels);
        let pods = || {
            content
                .pods
                .values()
                .filter(selected)
                .map(|known| known.pod.clone())
                .collect()
        };
        Shown {
            pods: (flags.current && !flags.doubt).then(pods),
            changed: flags.changed,
        }
    }

    /// Returns the target, so that another target of the same pod is found.
    pub(super) fn follower(&self) -> &Arc<Follower> {
        &self.follower
    }

    /// Returns a stream with one item for each change of a selected pod.
    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        let mut changes = self.follower.changes.subscribe();
        // The watch may have shown pods before.
        changes.mark_changed();
        stream::unfold((self.clone(), changes), |(watched, mut changes)| async {
            changes.changed().await.ok()?;
            Some(((), (watched, changes)))
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
