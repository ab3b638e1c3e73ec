//! What a watch shows, by name: read as often as is needed without a request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt, future::ready};
use kube::{
    Api,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;

use crate::targets::{Changes, watch_events};

/// What arrives together is taken together.
const AT_ONCE: usize = 256;

/// It may be behind the API server: whoever writes says which version is meant. Clones share it.
#[derive(Debug)]
pub(super) struct Cache<T>(Arc<Mutex<Content<T>>>);

#[derive(Debug)]
struct Content<T> {
    /// None before the first list is complete.
    known: Option<BTreeMap<String, T>>,
    /// A list that is not complete yet.
    coming: BTreeMap<String, T>,
    /// Why there is no first list.
    failed: Option<Arc<kube::Error>>,
}

/// How things are, as far as is known.
#[derive(Debug)]
pub(super) enum Snapshot<T> {
    NotYet,
    Failed(Arc<kube::Error>),
    All(BTreeMap<String, T>),
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Content {
            known: None,
            coming: BTreeMap::new(),
            failed: None,
        })))
    }
}

impl<T: Clone + PartialEq + Send + 'static> Cache<T> {
    /// Keeps it as the watch shows it, as long as the stream is read; says when something is another than before.
    /// `read` makes of an object what is kept, or nothing.
    pub(super) fn follow<K>(
        self,
        api: Api<K>,
        config: watcher::Config,
        read: impl Fn(K) -> Option<(String, T)> + Send + 'static,
    ) -> Changes
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    {
        watch_events(api, config)
            .ready_chunks(AT_ONCE)
            .filter_map(move |events| {
                let mut content = self.content();
                let mut changed = false;
                for event in events {
                    changed |= content.take(event, &read);
                }
                ready(changed.then_some(()))
            })
            .boxed()
    }

    pub(super) fn snapshot(&self) -> Snapshot<T> {
        let content = self.content();
        match (&content.known, &content.failed) {
            (Some(known), _) => Snapshot::All(known.clone()),
            (None, Some(error)) => Snapshot::Failed(error.clone()),
            (None, None) => Snapshot::NotYet,
        }
    }

    fn content(&self) -> MutexGuard<'_, Content<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: PartialEq> Content<T> {
    /// True if something is another than before.
    fn take<K: kube::Resource>(
        &mut self,
        event: watcher::Result<Event<K>>,
        read: impl Fn(K) -> Option<(String, T)>,
    ) -> bool {
        match event {
            Ok(Event::Init) => self.coming.clear(),
            Ok(Event::InitApply(object)) => self.coming.extend(read(object)),
            Ok(Event::InitDone) => {
                self.failed = None;
                self.known = Some(std::mem::take(&mut self.coming));
                return true;
            }
            Ok(Event::Apply(object)) => {
                let name = object.meta().name.clone().unwrap_or_default();
                let Some(known) = &mut self.known else {
                    return false;
                };
                return match read(object) {
                    Some((name, object)) => {
                        let same = known.get(&name) == Some(&object);
                        known.insert(name, object);
                        !same
                    }
                    None => known.remove(&name).is_some(),
                };
            }
            Ok(Event::Delete(object)) => {
                let name = object.meta().name.clone().unwrap_or_default();
                let known = self.known.as_mut();
                return known.is_some_and(|known| known.remove(&name).is_some());
            }
            // Once there was a list, whoever writes learns of a server that is away.
            Err(error) => {
                self.failed = cause(error).map(Arc::new);
                return self.known.is_none();
            }
        }
        false
    }
}

fn cause(error: watcher::Error) -> Option<kube::Error> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        watcher::Error::WatchError(status) => Some(kube::Error::Api(status)),
        watcher::Error::NoResourceVersion => None,
    }
}
