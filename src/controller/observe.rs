//! Follows objects of one kind: what is there, what changed, what is gone.
//!
//! Judges nothing; an object that cannot be read is passed on as such, so that it never stops the others.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::object::{ObjectKey, trim};
use crate::{
    lease::BootInstant,
    targets::{deepest, watch_events},
};

#[derive(Debug)]
pub(super) enum Observation<K> {
    /// The whole list follows.
    Restarted,
    Seen(Box<K>),
    /// It is there, and this version cannot read it.
    Malformed(Box<ObjectMeta>, String),
    Gone(ObjectKey),
    /// The list is complete: what it did not hold is gone.
    Synced,
    /// Tried again by itself.
    Failed(Trouble),
}

/// Why objects cannot be followed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) forbidden: bool,
    pub(super) text: String,
}

impl From<&watcher::Error> for Trouble {
    fn from(error: &watcher::Error) -> Self {
        let (forbidden, text) = match error {
            watcher::Error::InitialListFailed(e)
            | watcher::Error::WatchStartFailed(e)
            | watcher::Error::WatchFailed(e) => match e {
                kube::Error::Api(status) => (status.is_forbidden(), status.message.clone()),
                other => (false, deepest(other)),
            },
            watcher::Error::WatchError(status) => (status.is_forbidden(), status.message.clone()),
            watcher::Error::NoResourceVersion => (false, error.to_string()),
        };
        Self { forbidden, text }
    }
}

/// A watch that goes on failing is tried again every few seconds. For the same reason it is reported this often.
const REPORTED_EVERY: Duration = Duration::from_secs(600);

/// Of each watch, why it could not be followed when that was reported last.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<String, (String, BootInstant)>);

impl Failures {
    /// Whether this failure of a watch is to be reported.
    pub(super) fn is_news(&mut self, watch: &str, reason: &str, now: BootInstant) -> bool {
        let known = self.0.get(watch);
        if known.is_some_and(|(said, at)| said == reason && now.since(*at) < REPORTED_EVERY) {
            return false;
        }
        self.0.insert(watch.to_owned(), (reason.to_owned(), now));
        true
    }
}

/// Returns when nobody listens any more.
pub(super) async fn follow<K, T>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    told: mpsc::Sender<T>,
    tell: impl Fn(Observation<K>) -> T,
) where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    K::DynamicType: Default + Clone,
{
    let mut events = pin!(watch_events(api, config));
    while let Some(event) = events.next().await {
        let observation = match event {
            Ok(Event::Init) => Observation::Restarted,
            Ok(Event::InitDone) => Observation::Synced,
            Ok(Event::Apply(guard) | Event::InitApply(guard)) => seen(guard),
            Ok(Event::Delete(guard)) => Observation::Gone(ObjectKey::of(&guard)),
            Err(error) => Observation::Failed(Trouble::from(&error)),
        };
        if told.send(tell(observation)).await.is_err() {
            return;
        }
    }
}

fn seen<K: Resource>(guard: DeserializeGuard<K>) -> Observation<K> {
    match guard.0 {
        Ok(mut object) => {
            trim(object.meta_mut());
            Observation::Seen(Box::new(object))
        }
        Err(invalid) => {
            let mut metadata = invalid.metadata;
            trim(&mut metadata);
            Observation::Malformed(Box::new(metadata), invalid.error)
        }
    }
}

impl<K: ResourceExt> Observation<K> {
    /// Which object it is about, if about one.
    pub(super) fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Seen(object) => Some(ObjectKey::of(object.as_ref())),
            Self::Malformed(metadata, _) => Some(ObjectKey {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
            }),
            Self::Gone(key) => Some(key.clone()),
            Self::Restarted | Self::Synced | Self::Failed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_watch_is_reported_once_for_each_reason_and_then_every_ten_minutes() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let mut failures = Failures::default();
        assert!(failures.is_news("a", "forbidden", at(0)));
        assert!(!failures.is_news("a", "forbidden", at(599)));
        assert!(failures.is_news("b", "forbidden", at(5)), "another watch");
        assert!(failures.is_news("a", "forbidden", at(600)));
        assert!(!failures.is_news("a", "forbidden", at(1_199)));
        assert!(failures.is_news("a", "refused", at(1_199)));
        assert!(failures.is_news("a", "forbidden", at(1_200)));
    }
}
