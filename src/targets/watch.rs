//! A watch that survives failures of the API server, and a restore of its database. Consumers keep no list of
//! their own: the watch reports an object as gone if a complete list lacks it.

mod requests;

use std::{collections::BTreeMap, fmt, time::Duration};

use futures_util::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    core::DeserializeGuard,
    runtime::{
        utils::Backoff,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::time;

use super::{Pause, pages::decode};
use crate::api::readable::{ReadInParts, read_in_parts};
use crate::{clock, lease::BootInstant};
use requests::{Decode, Requests};

/// The namespace and the name of an object. The namespace is empty for a cluster-scoped kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn of(object: &impl Resource) -> Self {
        Self::of_metadata(object.meta())
    }

    pub(crate) fn of_metadata(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One observation of a watch.
#[derive(Debug)]
pub(crate) enum Change<K> {
    Seen(K, Origin),
    /// The object was deleted, left the selector, or is not in a complete list.
    Gone(ObjectKey),
    /// A list is complete: each of its objects was seen, and all others are gone.
    Synced,
    /// The watch failed, and retries. No object counts as gone because of it.
    Failed(watcher::Error),
}

/// The source of a version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Watch,
    /// A list that was requested at this time.
    List(BootInstant),
    /// The answer to a write of this process.
    Answer,
}

impl Origin {
    /// Reports whether a version from this source replaces the known one. `older` is whether it is older than
    /// the known one; `answered` is the time of the last answer to a write of this process.
    ///
    /// A list shows the state of the server: after a restore of etcd from a backup, its versions are older
    /// than known ones. A single older version is only late, and a list may be older than an answer that
    /// arrived after the list was requested.
    pub(crate) fn replaces(self, older: bool, answered: Option<BootInstant>) -> bool {
        match self {
            Self::Watch | Self::Answer => !older,
            Self::List(requested) => !older || answered.is_none_or(|answered| answered < requested),
        }
    }

    /// Returns the arrival time of a version that arrives now, if it is an answer.
    pub(crate) fn answered(self, now: BootInstant) -> Option<BootInstant> {
        (self == Self::Answer).then_some(now)
    }
}

/// The objects that a watch has shown and that exist.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// The number of the list that contained each object, or that was current when the object was seen.
    objects: BTreeMap<ObjectKey, u64>,
    list: u64,
    requested: BootInstant,
}

impl Present {
    /// Returns the changes that an event means for consumers. A list counts only when it is complete.
    pub(crate) fn take<K: Resource>(
        &mut self,
        event: watcher::Result<Event<K>>,
        now: BootInstant,
    ) -> Vec<Change<K>> {
        match event {
            // The request for the list follows.
            Ok(Event::Init) => {
                self.list += 1;
                self.requested = now;
                Vec::new()
            }
            Ok(Event::InitApply(object)) => vec![self.see(object, Origin::List(self.requested))],
            Ok(Event::Apply(object)) => vec![self.see(object, Origin::Watch)],
            Ok(Event::InitDone) => {
                let list = self.list;
                let gone = self.objects.extract_if(.., |_, seen| *seen != list);
                gone.map(|(key, _)| Change::Gone(key))
                    .chain([Change::Synced])
                    .collect()
            }
            Ok(Event::Delete(object)) => {
                let key = ObjectKey::of(&object);
                self.objects.remove(&key);
                vec![Change::Gone(key)]
            }
            Err(error) => vec![Change::Failed(error)],
        }
    }

    fn see<K: Resource>(&mut self, object: K, origin: Origin) -> Change<K> {
        self.objects.insert(ObjectKey::of(&object), self.list);
        Change::Seen(object, origin)
    }
}

/// Reports whether this version is older than the known one. Resource versions of one kind are numbers that
/// grow; if they are not numbers, the later arrival counts.
pub(crate) fn is_older(object: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.as_ref()?.parse::<u64>().ok();
    let same = object.uid == known.uid;
    same && matches!((version(object), version(known)), (Some(new), Some(known)) if new < known)
}

/// Returns all objects that `config` selects, and every change of them. The stream never ends.
pub(crate) fn watch_objects<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Send + 'static,
{
    watch_decoded(api, config, decode)
}

/// Returns all objects of a kind of this operator, and every change of them, without the parts that are never read. The
/// stream never ends.
pub(crate) fn watch_declared<K>(
    api: Api<DeserializeGuard<K>>,
) -> impl Stream<Item = Change<DeserializeGuard<K>>> + Send
where
    K: ReadInParts<DynamicType: Clone> + Clone + Send + 'static,
{
    watch_decoded(api, watcher::Config::default(), |object| {
        read_in_parts(object.get())
    })
}

fn watch_decoded<K>(
    api: Api<K>,
    config: watcher::Config,
    decode: Decode<K>,
) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + Clone + Send + 'static,
{
    let mut present = Present::default();
    let events = watch_events(Requests::new(api, config, decode));
    events.flat_map(move |event| stream::iter(present.take(event, clock::now())))
}

struct Watch<K> {
    requests: Requests<K>,
    pause: Pause,
    /// The pause before the next request.
    wait: Option<Duration>,
    starts_anew: bool,
}

/// Returns the events of a watch, with a back-off after each error. The stream never ends.
///
/// A watch that could not be started again begins with a list: not only a connection was lost, but the API
/// server was unavailable. If etcd was restored from a backup in between, the server may take hours to reach
/// the last resourceVersion, and a watch from there would show no change until then.
fn watch_events<K>(requests: Requests<K>) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + Send + 'static,
{
    let watch = Watch {
        requests,
        pause: Pause::default(),
        wait: None,
        starts_anew: false,
    };
    stream::unfold(watch, |mut watch| async {
        if let Some(wait) = watch.wait.take() {
            time::sleep(wait).await;
        }
        if std::mem::take(&mut watch.starts_anew) {
            watch.requests.restart();
        }
        let event = watch.requests.next().await;
        match &event {
            // A request for a list proves nothing about the server; only its answer does.
            Ok(Event::Init) => {}
            Ok(_) => watch.pause.reset(),
            Err(error) => {
                watch.wait = watch.pause.next();
                watch.starts_anew = is_refused(error);
            }
        }
        Some((event, watch))
    })
}

/// Returns the reason why a request for a list or a watch failed.
pub(crate) const fn api_error(error: &watcher::Error) -> Option<&kube::Error> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
    }
}

/// Reports whether the API server refused a watch, or could not be reached to start one.
const fn is_refused(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(kube::Error::Api(_))
    )
}

#[cfg(test)]
mod tests;
