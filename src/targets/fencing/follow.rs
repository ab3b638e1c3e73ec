//! Follows the pods of the namespaces that have fenced locks, with one watch for each namespace.
//!
//! Other watches of the operator report the objects that exist. This one also knows the last state of each
//! removed pod, and the moment since which it has missed no change, so it tracks the resource versions
//! itself.

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
    runtime::utils::Backoff,
};
use tokio::{sync::watch, task::JoinHandle, time};

use super::{
    Pod,
    known::{Epoch, Gone, Known, number},
};
use crate::targets::{Changes, Pause, TargetError, pages};

/// The timeout of one watch, in seconds: slightly less than the time for which the client waits for an event.
const LONG: u32 = 290;
/// The timeout of a watch that has to reach the present, in seconds. The API server sends a bookmark 2 s
/// before the end.
const SHORT: u32 = 3;
/// The longest wait until a watch reaches the present. A watch that hangs takes longer, and the caller asks
/// again.
const PATIENCE: Duration = Duration::from_secs(6);

const NO_ORDER: &str = "the resource version of the list of pods is not a number";

/// The namespaces that have followers.
#[derive(Default)]
pub(crate) struct Namespaces(Mutex<HashMap<String, Weak<Following>>>);

impl Namespaces {
    /// Follows the pods that mount the volume of a lock.
    pub(crate) fn follow(&self, client: &Client, namespace: &str, lock: &str) -> FencedPods {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let following = all.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            all.retain(|_, following| following.strong_count() > 0);
            let following = Arc::new(Following::start(client, namespace));
            all.insert(namespace.to_owned(), Arc::downgrade(&following));
            following
        });
        FencedPods {
            following,
            lock: lock.to_owned(),
        }
    }
}

struct Following {
    api: Api<Pod>,
    shared: Arc<Shared>,
    /// The version that the watch has to reach without delay.
    wanted: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    what: String,
    content: Mutex<(Known, Option<TargetError>)>,
    /// The number of changes that matter to a follower.
    changes: watch::Sender<u64>,
    /// The version up to which every change is known.
    reached: watch::Sender<u64>,
}

impl Shared {
    fn content(&self) -> MutexGuard<'_, (Known, Option<TargetError>)> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Known) -> (T, bool)) -> T {
        let (result, matters, version) = {
            let mut content = self.content();
            let (result, matters) = change(&mut content.0);
            let matters = content.1.take().is_some() || matters;
            (result, matters, content.0.version())
        };
        self.reached.send_replace(version);
        if matters {
            self.changes.send_modify(|count| *count += 1);
        }
        result
    }

    fn fail(&self, error: &kube::Error) {
        let error = TargetError::of(&*self.what, error);
        let before = self.content().1.replace(error.clone());
        if before != Some(error) {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// The reason why a watch ended.
enum End {
    /// The connection broke. As a rule, the API server still knows the changes since then.
    Broken(kube::Error),
    /// The API server no longer knows the changes since then.
    Missed,
}

impl Following {
    fn start(client: &Client, namespace: &str) -> Self {
        let api = Api::<Pod>::namespaced(client.clone(), namespace);
        let shared = Arc::new(Shared {
            what: format!("following the pods of fenced locks in namespace {namespace}"),
            content: Mutex::default(),
            changes: watch::Sender::new(0),
            reached: watch::Sender::new(0),
        });
        let (wanted, asked) = watch::channel(0);
        let task = tokio::spawn(run(api.clone(), shared.clone(), asked));
        Self {
            api,
            shared,
            wanted,
            task,
        }
    }
}

async fn run(api: Api<Pod>, shared: Arc<Shared>, mut asked: watch::Receiver<u64>) {
    let mut pause = Pause::default();
    let mut missed = true;
    loop {
        match list(&api).await {
            Ok((pods, version)) => {
                shared.with(|known| {
                    // A smaller version shows that the database was restored from a backup.
                    let begins = missed || version < known.version();
                    if begins {
                        known.begin(&pods, version);
                    }
                    ((), begins)
                });
                pause.reset();
                match follow(&api, &shared, &mut asked).await {
                    End::Broken(error) => {
                        shared.fail(&error);
                        missed = false;
                    }
                    End::Missed => missed = true,
                }
            }
            Err(error) => shared.fail(&error),
        }
        time::sleep(pause.next().unwrap_or_default()).await;
    }
}

/// Reduces the metadata of a pod to the fields that identify it.
fn named(pod: Pod) -> Pod {
    let metadata = ObjectMeta {
        name: pod.metadata.name,
        uid: pod.metadata.uid,
        resource_version: pod.metadata.resource_version,
        ..ObjectMeta::default()
    };
    Pod { metadata, ..pod }
}

/// Returns all pods, and the version of the list.
async fn list(api: &Api<Pod>) -> kube::Result<(Vec<Pod>, u64)> {
    let (pods, version) = pages::all_at(api, ListParams::default(), |pod| Some(named(pod))).await?;
    // If the versions have no order, no pod is confirmed to be gone.
    let version = number(version.as_deref()).ok_or_else(|| kube::Error::Service(NO_ORDER.into()))?;
    Ok((pods, version))
}

async fn follow(api: &Api<Pod>, shared: &Shared, asked: &mut watch::Receiver<u64>) -> End {
    loop {
        let version = shared.content().0.version();
        let seconds = if *asked.borrow_and_update() > version {
            SHORT
        } else {
            LONG
        };
        let parameters = WatchParams::default().timeout(seconds);
        let events = match api.watch(&parameters, &version.to_string()).await {
            Ok(events) => events,
            Err(kube::Error::Api(_)) => return End::Missed,
            Err(error) => return End::Broken(error),
        };
        let mut events = pin!(events);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                Ok(()) = asked.changed() => break,
            };
            match event {
                Some(Ok(event)) => {
                    if !take(shared, event) {
                        return End::Missed;
                    }
                }
                Some(Err(error)) => return End::Broken(error),
                None => break,
            }
        }
    }
}

/// Takes one event; returns false if the watch cannot continue.
fn take(shared: &Shared, event: WatchEvent<Pod>) -> bool {
    match event {
        WatchEvent::Added(pod) | WatchEvent::Modified(pod) => shared.with(|known| ((), known.see(&pod))),
        WatchEvent::Deleted(pod) => shared.with(|known| ((), known.remove(&pod))),
        WatchEvent::Bookmark(bookmark) => {
            let version = number(Some(&bookmark.metadata.resource_version));
            shared.with(|known| {
                known.reach(version);
                ((), false)
            });
        }
        WatchEvent::Error(_) => return false,
    }
    true
}

/// The pods of one lock.
#[derive(Clone)]
pub(crate) struct FencedPods {
    following: Arc<Following>,
    lock: String,
}

impl FencedPods {
    /// Returns the current epoch; `None` before the first list is complete.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.following.shared.content().0.epoch()
    }

    /// Returns the reason why it can no longer be known whether all pods since that epoch are gone.
    pub(crate) fn unknown(&self, since: Epoch) -> Option<String> {
        self.following.shared.content().0.unknown(&self.lock, since)
    }

    /// Returns the nodes on which pods run; `None` while they are not known.
    pub(crate) fn nodes(&self) -> Option<BTreeSet<String>> {
        let content = self.following.shared.content();
        let known = content.0.epoch().is_some() && content.1.is_none();
        known.then(|| content.0.nodes(&self.lock))
    }

    /// Returns the error if the pods cannot be followed now.
    pub(crate) fn trouble(&self) -> Option<TargetError> {
        self.following.shared.content().1.clone()
    }

    /// Judges whether the pods are gone, from a list that is requested now and every change up to that list.
    pub(crate) async fn judge(&self, since: Epoch) -> Result<Gone, TargetError> {
        let following = &self.following;
        let read = list(&following.api).await;
        let (pods, version) = read.map_err(|error| TargetError::of(&*following.shared.what, &error))?;
        following
            .wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, version.max(*wanted)) < version);
        let mut reached = following.shared.reached.subscribe();
        let reaches = reached.wait_for(|reached| *reached >= version);
        let reached = time::timeout(PATIENCE, reaches).await;
        if !matches!(reached, Ok(Ok(_))) {
            return Err(TargetError::Api {
                what: following.shared.what.clone(),
                reason: "the watch has not reached the present list yet".to_owned(),
                refusal: false,
            });
        }
        Ok(following.shared.content().0.judge(&pods, &self.lock, since))
    }

    /// Follows the changes that may matter.
    pub(crate) fn changes(&self) -> Changes {
        let changes = self.following.shared.changes.subscribe();
        // The watch runs while it has followers.
        stream::unfold((changes, self.clone()), |(mut changes, pods)| async {
            changes.changed().await.ok()?;
            Some(((), (changes, pods)))
        })
        .boxed()
    }
}
