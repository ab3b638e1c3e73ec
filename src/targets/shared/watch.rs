//! Keeps a summary of each object of a kind in a namespace with one watch. This includes objects that are not
//! targets, so that a new follower knows the state of its object at once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::watcher,
};
use tokio::{sync::watch, task::JoinHandle};

use crate::targets::{
    Change, TargetError, api_error,
    owner::{declared_by, is_own, last_writer},
    watch_objects,
};

const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// The summary of one object, as the watch showed it last.
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

impl Known {
    pub(in crate::targets) fn of(metadata: &ObjectMeta) -> Self {
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
type Partial = PartialObjectMeta<DynamicObject>;
type Seen = HashMap<String, watch::Sender<Option<Known>>>;

/// The objects of one kind in a namespace.
pub(in crate::targets) struct Objects {
    seen: Arc<Mutex<Seen>>,
    trouble: watch::Receiver<Option<TargetError>>,
    task: JoinHandle<()>,
}

impl Objects {
    pub(super) fn follow(client: &Client, resource: &ApiResource, namespace: &str) -> Self {
        let api = Api::<Partial>::namespaced_with(client.clone(), namespace, resource);
        let (sender, trouble) = watch::channel(None);
        let seen = Arc::new(Mutex::new(Seen::new()));
        let what = format!("following {} in namespace {namespace}", resource.plural);
        let task = tokio::spawn(run(api, seen.clone(), sender, what));
        Self { seen, trouble, task }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    api: Api<Partial>,
    seen: Arc<Mutex<Seen>>,
    trouble: watch::Sender<Option<TargetError>>,
    what: String,
) {
    let config = watcher::Config::default();
    let mut changes = pin!(watch_objects(api, config));
    while let Some(change) = changes.next().await {
        match change {
            Change::Seen(object, _) => see(&seen, &object.metadata),
            Change::Gone(key) => forget(&seen, &key.name),
            Change::Synced => {
                trouble.send_if_modified(|trouble| trouble.take().is_some());
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.retain(|_, known| known.receiver_count() > 0 || known.borrow().is_some());
            }
            // A list follows. Its end shows that the trouble is over.
            Change::Failed(error) => {
                if let Some(error) = failure(&what, &error) {
                    trouble.send_if_modified(|known| known.replace(error.clone()) != Some(error));
                }
            }
        }
    }
}

/// Returns the failures that need an administrator: a missing right, and a version that is not served.
pub(super) fn failure(what: &str, error: &watcher::Error) -> Option<TargetError> {
    let error = api_error(error)?;
    let not_found = matches!(error, kube::Error::Api(status) if status.code == 404);
    let error = TargetError::of(what, error);
    // A collection always exists: a 404 means that its version is not served.
    (not_found || matches!(error, TargetError::Forbidden { .. })).then_some(error)
}

fn see(seen: &Mutex<Seen>, metadata: &ObjectMeta) {
    let Some(name) = &metadata.name else { return };
    let now = Known::of(metadata);
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let known = seen.entry(name.clone()).or_insert_with(|| watch::channel(None).0);
    known.send_if_modified(|known| {
        let anew = known.as_ref().is_none_or(|before| now.is_another(before));
        *known = Some(now);
        anew
    });
}

/// Records that an object is gone. Its followers wait for another object of that name.
fn forget(seen: &Mutex<Seen>, name: &str) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = seen.get(name) {
        known.send_if_modified(|known| known.take().is_some());
        if known.receiver_count() == 0 {
            seen.remove(name);
        }
    }
}

/// One object that is followed.
#[derive(Clone)]
pub(in crate::targets) struct Followed {
    known: watch::Receiver<Option<Known>>,
    trouble: watch::Receiver<Option<TargetError>>,
    /// The watch runs while it has followers.
    _objects: Arc<Objects>,
}

impl Followed {
    pub(super) fn new(objects: &Arc<Objects>, name: &str) -> Self {
        let mut seen = objects.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen
            .entry(name.to_owned())
            .or_insert_with(|| watch::channel(None).0)
            .subscribe();
        drop(seen);
        Self {
            known,
            trouble: objects.trouble.clone(),
            _objects: objects.clone(),
        }
    }

    /// Returns the summary; `None` while the object is not known to exist.
    pub(in crate::targets) fn known(&self) -> Option<Known> {
        self.known.borrow().clone()
    }

    /// Returns the error if the object cannot be followed.
    pub(in crate::targets) fn trouble(&self) -> Option<TargetError> {
        self.trouble.borrow().clone()
    }

    /// Waits until the desired state of the object changes, or until following it fails or recovers.
    pub(in crate::targets) async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.known.changed() => {}
            Ok(()) = self.trouble.changed() => {}
            // The watch has ended.
            else => std::future::pending().await,
        }
    }
}
