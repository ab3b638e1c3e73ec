//! Keeps a summary of each object of a kind in a namespace with one watch, regardless of the number of targets of that kind.
//! This includes objects that are not targets, so that a new follower knows the state of its object at once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{Stream, StreamExt, stream};
use kube::{
    Api, Resource,
    api::{DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinHandle};

use crate::targets::{
    Change, TargetError, api_error,
    owner::{declared_by, is_own, last_writer},
    watch_objects,
};

const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// The fields of an object that a target reads from the watch.
pub(in crate::targets) trait Summary: Clone + PartialEq + Send + Sync + 'static {
    type Object: Resource + Clone + DeserializeOwned + Send + 'static;

    /// Returns the summary; `None` for an object that the target treats as missing.
    fn of(object: Self::Object) -> Option<Self>;

    /// Reports whether the followers are notified of this summary after that one.
    fn is_news(&self, before: &Self) -> bool;
}

/// The summary of the metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::targets) struct Known {
    uid: Option<String>,
    pub(in crate::targets) version: Option<String>,
    generation: Option<i64>,
    going: bool,
    /// A digest of the annotations: a write to them leaves the generation as it is.
    annotations: u64,
    /// The other manager that declares its replicas.
    pub(in crate::targets) declared_by: Option<String>,
    /// The other manager that wrote its replicas last.
    pub(in crate::targets) writer: Option<String>,
    /// Whether the operator owns its replicas.
    pub(in crate::targets) is_own: bool,
}

impl Summary for Known {
    type Object = Partial;

    fn of(object: Partial) -> Option<Self> {
        Some(Self::of_metadata(&object.metadata))
    }

    fn is_news(&self, before: &Self) -> bool {
        self.is_another(before)
    }
}

impl Known {
    pub(in crate::targets) fn of_metadata(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            generation: metadata.generation.filter(|generation| *generation > 0),
            going: metadata.deletion_timestamp.is_some(),
            annotations: digest(&metadata.annotations),
            declared_by: declared_by(metadata, &REPLICAS),
            writer: last_writer(metadata, &REPLICAS),
            is_own: is_own(metadata, &REPLICAS),
        }
    }

    /// Reports whether the desired state has not changed since the creation: a number without an owner is
    /// then a default, even if a server-side apply created the object.
    pub(in crate::targets) fn is_as_created(&self) -> bool {
        self.generation == Some(1)
    }

    /// Reports whether a client changed the desired state of the object. Its controllers change the status all the
    /// time.
    pub(in crate::targets) fn is_another(&self, before: &Self) -> bool {
        self.uid != before.uid
            || self.generation != before.generation
            || self.going != before.going
            || self.annotations != before.annotations
            || self.declared_by != before.declared_by
            || (self.generation.is_none() && self.version != before.version)
    }
}

fn digest(annotations: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    annotations.hash(&mut hasher);
    hasher.finish()
}

/// The metadata of an object.
pub(in crate::targets) type Partial = PartialObjectMeta<DynamicObject>;

/// The progress of the first list.
#[derive(Clone, Debug, PartialEq)]
enum FirstList {
    Awaited,
    Failed(TargetError),
    Complete,
}

/// The objects of one kind in a namespace, as the watch has shown them.
struct Content<S> {
    /// The objects by name, and those that are missing and followed.
    seen: Mutex<HashMap<String, watch::Sender<Option<S>>>>,
    first_list: watch::Sender<FirstList>,
    trouble: watch::Sender<Option<TargetError>>,
    /// The purpose of the watch, for its errors.
    what: String,
}

impl<S: Summary> Content<S> {
    fn new(what: String) -> Self {
        Self {
            seen: Mutex::default(),
            first_list: watch::Sender::new(FirstList::Awaited),
            trouble: watch::Sender::new(None),
            what,
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Option<S>>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, change: Change<S::Object>) {
        match change {
            Change::Seen(object, _) => self.see(object),
            Change::Gone(key) => self.forget(&key.name),
            Change::Synced => {
                self.trouble.send_if_modified(|trouble| trouble.take().is_some());
                self.set_first_list(FirstList::Complete);
                self.seen()
                    .retain(|_, known| known.receiver_count() > 0 || known.borrow().is_some());
            }
            // A list follows. Its end shows that the trouble is over.
            Change::Failed(error) => {
                if let Some(error) = failure(&self.what, &error) {
                    self.trouble
                        .send_if_modified(|known| known.replace(error.clone()) != Some(error));
                }
                if let Some(error) = api_error(&error) {
                    self.set_first_list(FirstList::Failed(TargetError::of(&*self.what, error)));
                }
            }
        }
    }

    /// After the first list, a failure of the watch changes nothing: requests report an unreachable API server.
    fn set_first_list(&self, now: FirstList) {
        self.first_list.send_if_modified(|first| {
            let changes = *first != FirstList::Complete && *first != now;
            if changes {
                *first = now;
            }
            changes
        });
    }

    fn see(&self, object: S::Object) {
        let Some(name) = object.meta().name.clone() else {
            return;
        };
        let now = S::of(object);
        let mut seen = self.seen();
        let known = seen.entry(name).or_insert_with(|| watch::channel(None).0);
        known.send_if_modified(|known| {
            let is_news = match (&now, &*known) {
                (Some(now), Some(before)) => now.is_news(before),
                (now, before) => now.is_some() != before.is_some(),
            };
            *known = now;
            is_news
        });
    }

    /// Records that an object is gone. Its followers wait for another object of that name.
    fn forget(&self, name: &str) {
        let mut seen = self.seen();
        if let Some(known) = seen.get(name) {
            known.send_if_modified(|known| known.take().is_some());
            if known.receiver_count() == 0 {
                seen.remove(name);
            }
        }
    }
}

/// The watch of the objects of one kind in a namespace. It ends with its last follower.
pub(in crate::targets) struct Objects<S> {
    content: Arc<Content<S>>,
    task: JoinHandle<()>,
}

impl<S: Summary> Objects<S> {
    /// Follows the objects of `api`. `what` names the purpose in errors.
    pub(super) fn follow(api: Api<S::Object>, what: String) -> Self {
        let content = Arc::new(Content::new(what));
        let task = tokio::spawn(run(api, content.clone()));
        Self { content, task }
    }
}

impl<S> Drop for Objects<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run<S: Summary>(api: Api<S::Object>, content: Arc<Content<S>>) {
    let mut changes = pin!(watch_objects(api, watcher::Config::default()));
    while let Some(change) = changes.next().await {
        content.take(change);
    }
}

/// Returns the failures that need an administrator: a missing right, and a version that is not served.
pub(super) fn failure(what: &str, error: &watcher::Error) -> Option<TargetError> {
    let error = api_error(error)?;
    let not_found = matches!(error, kube::Error::Api(status) if status.code == 404);
    let error = TargetError::of(what, error);
    // A collection always exists: a 404 means that its version is not served.
    (not_found || matches!(error, TargetError::Forbidden { .. } | TargetError::Denied { .. }))
        .then_some(error)
}

/// One object that is followed.
pub(in crate::targets) struct Followed<S = Known> {
    known: watch::Receiver<Option<S>>,
    first_list: watch::Receiver<FirstList>,
    trouble: watch::Receiver<Option<TargetError>>,
    /// The watch runs while it has followers.
    objects: Arc<Objects<S>>,
}

impl<S> Clone for Followed<S> {
    fn clone(&self) -> Self {
        Self {
            known: self.known.clone(),
            first_list: self.first_list.clone(),
            trouble: self.trouble.clone(),
            objects: self.objects.clone(),
        }
    }
}

/// An object as the watch shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::targets) enum Shown<S> {
    /// The first list is not complete.
    #[default]
    NotYet,
    /// The first list failed.
    Failed(TargetError),
    Missing,
    Here(S),
}

impl<S: Summary> Followed<S> {
    pub(super) fn new(objects: Arc<Objects<S>>, name: &str) -> Self {
        let content = &objects.content;
        let mut seen = content.seen();
        let known = seen
            .entry(name.to_owned())
            .or_insert_with(|| watch::channel(None).0)
            .subscribe();
        drop(seen);
        Self {
            known,
            first_list: content.first_list.subscribe(),
            trouble: content.trouble.subscribe(),
            objects,
        }
    }

    /// Returns the summary; `None` while the object is not known to exist.
    pub(in crate::targets) fn known(&self) -> Option<S> {
        self.known.borrow().clone()
    }

    /// Returns the object, and distinguishes one that is missing from one that is not known.
    pub(in crate::targets) fn shown(&self) -> Shown<S> {
        if let Some(known) = self.known() {
            return Shown::Here(known);
        }
        match &*self.first_list.borrow() {
            FirstList::Awaited => Shown::NotYet,
            FirstList::Failed(error) => Shown::Failed(error.clone()),
            FirstList::Complete => Shown::Missing,
        }
    }

    /// Returns the error if the object cannot be followed.
    pub(in crate::targets) fn trouble(&self) -> Option<TargetError> {
        self.trouble.borrow().clone()
    }

    /// Waits until the summary of the object changes, or until following it fails or recovers.
    pub(in crate::targets) async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.known.changed() => {}
            Ok(()) = self.trouble.changed() => {}
            // The watch has ended.
            else => std::future::pending().await,
        }
    }

    /// Returns a stream with one item for the present object, if there is one, and one for each change of [`Self::shown`].
    pub(in crate::targets) fn changes(&self) -> impl Stream<Item = ()> + Send + use<S> {
        let mut followed = self.clone();
        if followed.known().is_some() {
            followed.known.mark_changed();
        }
        stream::unfold(followed, |mut followed| async {
            tokio::select! {
                Ok(()) = followed.first_list.changed() => {}
                () = async {
                    if followed.known.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                } => {}
            }
            Some(((), followed))
        })
    }
}

#[cfg(test)]
mod tests;
