//! A watch that survives failures of the API server, and a restore of its database. Consumers keep no list of their own: the
//! watch reports as gone each object that a complete list lacks.

use std::{collections::BTreeMap, fmt, fmt::Debug, time::Duration};

use futures_util::{Stream, StreamExt, stream, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    runtime::{
        utils::Backoff,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::time;

use super::Pause;
use crate::{clock, lease::BootInstant};

/// Namespace and name of an object; the namespace is empty where the kind has none.
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
    /// Deleted, out of the selector, or not in a complete list.
    Gone(ObjectKey),
    /// A list is complete: each of its objects was seen, and all others are gone.
    Synced,
    /// Retried by the watch itself. Nothing is gone by it.
    Failed(watcher::Error),
}

/// Where a version of an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Watch,
    /// A list that was requested then.
    List(BootInstant),
    /// The answer to a write of this process.
    Answer,
}

impl Origin {
    /// Whether a version from here replaces the known one. It is `older` than the known version or not; `answered`: when
    /// the last answer to a write of this process was taken.
    ///
    /// A list is the state of the server. Its versions are older than known ones after etcd was restored from a backup. A
    /// single older version is only late, and a list may be older than an answer that came after it was requested.
    pub(crate) fn replaces(self, older: bool, answered: Option<BootInstant>) -> bool {
        match self {
            Self::Watch | Self::Answer => !older,
            Self::List(requested) => !older || answered.is_none_or(|answered| answered < requested),
        }
    }

    /// When a version that is taken now came, if it is an answer.
    pub(crate) fn answered(self, now: BootInstant) -> Option<BootInstant> {
        (self == Self::Answer).then_some(now)
    }
}

/// The objects that a watch has shown and that are there.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// Each with the number of the list that held it or that it came after.
    objects: BTreeMap<ObjectKey, u64>,
    list: u64,
    requested: BootInstant,
}

impl Present {
    /// What consumers learn from an event. A list counts only when it is complete.
    pub(crate) fn take<K: Resource>(
        &mut self,
        event: watcher::Result<Event<K>>,
        now: BootInstant,
    ) -> Vec<Change<K>> {
        match event {
            // The request follows.
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

/// Whether this version is older than the known one. Resource versions of one kind are numbers that grow; where they are
/// not, the newer arrival counts.
pub(crate) fn is_older(object: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.as_ref()?.parse::<u64>().ok();
    let same = object.uid == known.uid;
    same && matches!((version(object), version(known)), (Some(new), Some(known)) if new < known)
}

/// All objects that `config` selects, and every change of them. Never ends.
pub(crate) fn watch_objects<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut present = Present::default();
    watch_events(api, config).flat_map(move |event| stream::iter(present.take(event, clock::now())))
}

struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    pause: Pause,
    /// Before the next request.
    wait: Option<Duration>,
    starts_anew: bool,
}

/// The events of a watch, with a back-off after each error. Never ends.
///
/// A watch that could not be started again begins with a list. The API server was away for longer than a connection; if
/// etcd was restored from a backup meanwhile, the last resourceVersion may be one that does not come for hours, and a
/// watch from there would show nothing until then.
fn watch_events<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watch = Watch {
        events: watcher::watcher(api.clone(), config.clone()).boxed(),
        api,
        config,
        pause: Pause::default(),
        wait: None,
        starts_anew: false,
    };
    stream::unfold(watch, |mut watch| async {
        if let Some(wait) = watch.wait.take() {
            time::sleep(wait).await;
        }
        if std::mem::take(&mut watch.starts_anew) {
            watch.events = watcher::watcher(watch.api.clone(), watch.config.clone()).boxed();
        }
        let event = watch.events.next().await?;
        match &event {
            // A list that is asked for shows nothing of the server, only what the server answers.
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

/// Why a request for a list or a watch failed.
pub(crate) const fn api_error(error: &watcher::Error) -> Option<&kube::Error> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
    }
}

/// Whether the API server refused a watch, or could not be asked for one.
const fn is_refused(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(kube::Error::Api(_))
    )
}

#[cfg(test)]
mod tests;
