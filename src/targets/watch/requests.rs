//! Sends the requests of a watch: a list in pages, then the changes after it.
//!
//! The events are those of [`kube::runtime::watcher()`]. That one bounds a page by a number of objects, of which 500 may
//! have hundreds of megabytes, and decodes all of them at once.

use std::{collections::VecDeque, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
    runtime::watcher::{self, Error, Event},
};
use serde_json::value::RawValue;
use tokio::time;

use crate::targets::pages::{PageSize, read_page};

/// The time without any event after which a watch is broken: the API server ends each watch after 290 s.
const SILENT: Duration = Duration::from_secs(295);

/// Decodes one object.
pub(super) type Decode<K> = fn(&RawValue) -> serde_json::Result<K>;
type Events = BoxStream<'static, kube::Result<WatchEvent<Box<RawValue>>>>;

/// A watch of the objects that `config` selects.
pub(super) struct Requests<K> {
    selection: Selection<K>,
    state: State,
}

/// The objects of a watch.
struct Selection<K> {
    api: Api<K>,
    config: watcher::Config,
    decode: Decode<K>,
}

#[derive(Default)]
enum State {
    #[default]
    Begin,
    Listing(Listing),
    Listed {
        version: String,
    },
    Watching {
        version: String,
        events: Events,
    },
}

/// A list of which some pages were read.
#[derive(Default)]
struct Listing {
    size: PageSize,
    /// The objects of the last page that are not decoded yet.
    items: VecDeque<Box<RawValue>>,
    next: Option<String>,
    version: Option<String>,
}

/// The state after a step, and the event of the step if it has one.
type Step<K> = (State, Option<watcher::Result<Event<K>>>);

impl<K: Resource + Clone> Requests<K> {
    pub(super) fn new(api: Api<K>, config: watcher::Config, decode: Decode<K>) -> Self {
        Self {
            selection: Selection { api, config, decode },
            state: State::Begin,
        }
    }

    /// Begins with a list again.
    pub(super) fn restart(&mut self) {
        self.state = State::Begin;
    }

    /// Returns the next event. After an error the caller waits before the next call.
    pub(super) async fn next(&mut self) -> watcher::Result<Event<K>> {
        loop {
            let (state, event) = match std::mem::take(&mut self.state) {
                State::Begin => (State::Listing(Listing::default()), Some(Ok(Event::Init))),
                State::Listing(listing) => self.selection.list(listing).await,
                State::Listed { version } => self.selection.start(version).await,
                State::Watching { version, events } => self.selection.watch(version, events).await,
            };
            self.state = state;
            if let Some(event) = event {
                return event;
            }
        }
    }
}

impl<K: Resource + Clone> Selection<K> {
    async fn list(&self, mut listing: Listing) -> Step<K> {
        if let Some(object) = listing.items.pop_front() {
            return match (self.decode)(&object) {
                Ok(object) => (State::Listing(listing), Some(Ok(Event::InitApply(object)))),
                Err(error) => (
                    State::Begin,
                    Some(Err(Error::InitialListFailed(kube::Error::SerdeError(error)))),
                ),
            };
        }
        if let (Some(version), None) = (&listing.version, &listing.next) {
            let version = version.clone();
            return (State::Listed { version }, Some(Ok(Event::InitDone)));
        }
        let which = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            continue_token: listing.next.take(),
            ..ListParams::default()
        };
        match read_page(&self.api, &which, &mut listing.size).await {
            Ok(page) if page.version.is_none() && page.next.is_none() => {
                (State::Begin, Some(Err(Error::NoResourceVersion)))
            }
            Ok(page) => {
                (listing.items, listing.next, listing.version) = (page.items, page.next, page.version);
                (State::Listing(listing), None)
            }
            Err(error) => (State::Begin, Some(Err(Error::InitialListFailed(error)))),
        }
    }

    async fn start(&self, version: String) -> Step<K> {
        match self.events(&version).await {
            Ok(events) => (State::Watching { version, events }, None),
            Err(error) => (
                State::Listed { version },
                Some(Err(Error::WatchStartFailed(error))),
            ),
        }
    }

    async fn events(&self, version: &str) -> kube::Result<Events> {
        let parameters = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            ..WatchParams::default()
        };
        let request = Request::new(self.api.resource_url()).watch(&parameters, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let events = self.api.clone().into_client().request_events(request).await?;
        Ok(events.boxed())
    }

    async fn watch(&self, version: String, mut events: Events) -> Step<K> {
        let Ok(Some(event)) = time::timeout(SILENT, events.next()).await else {
            return (State::Listed { version }, None);
        };
        match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                self.changed(&object, (version, events), Event::Apply)
            }
            Ok(WatchEvent::Deleted(object)) => self.changed(&object, (version, events), Event::Delete),
            Ok(WatchEvent::Bookmark(bookmark)) => {
                let version = bookmark.metadata.resource_version;
                (State::Watching { version, events }, None)
            }
            Ok(WatchEvent::Error(status)) => {
                // The API server no longer has the changes after this version.
                let state = if status.code == 410 {
                    State::Begin
                } else {
                    State::Watching { version, events }
                };
                (state, Some(Err(Error::WatchError(status))))
            }
            Err(error) => (
                State::Watching { version, events },
                Some(Err(Error::WatchFailed(error))),
            ),
        }
    }

    /// Returns the step of a change of one object.
    fn changed(
        &self,
        object: &RawValue,
        (version, events): (String, Events),
        event: fn(K) -> Event<K>,
    ) -> Step<K> {
        match (self.decode)(object) {
            Ok(object) => match object
                .meta()
                .resource_version
                .clone()
                .filter(|version| !version.is_empty())
            {
                Some(version) => (State::Watching { version, events }, Some(Ok(event(object)))),
                None => (State::Begin, Some(Err(Error::NoResourceVersion))),
            },
            Err(error) => {
                let error = Error::WatchFailed(kube::Error::SerdeError(error));
                (State::Watching { version, events }, Some(Err(error)))
            }
        }
    }
}
