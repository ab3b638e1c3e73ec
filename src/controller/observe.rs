//! Follows the objects of one kind: which of them exist, have changed, or are gone.
//!
//! This module judges nothing. An object that cannot be read is passed on as malformed, so that it never
//! blocks the others.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, time::Duration};

use futures_util::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, core::DeserializeGuard, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::object::{ObjectKey, trim};
use crate::{
    api::readable::ReadInParts,
    lease::BootInstant,
    targets::{Change, Origin, deepest, watch_declared, watch_objects},
};

#[derive(Debug)]
pub(super) enum Observation<K> {
    Seen(Box<K>, Origin),
    /// The object exists, but this version cannot read it.
    Malformed(Box<ObjectMeta>, String),
    Gone(ObjectKey),
    /// A list is complete: each of its objects was observed, and all others are gone.
    Synced,
    /// The watch failed and is retried. No object is gone because of this failure.
    Failed(Trouble),
}

/// The reason why objects cannot be followed now.
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

/// The interval at which the same failure of a watch is reported. A watch that keeps failing is retried every
/// few seconds.
const REPORTED_EVERY: Duration = Duration::from_secs(600);

/// For each watch, the last reported failure and its time.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<String, (String, BootInstant)>);

impl Failures {
    /// Reports whether this failure of a watch is to be reported.
    pub(super) fn is_news(&mut self, watch: &str, reason: &str, now: BootInstant) -> bool {
        let known = self.0.get(watch);
        if known.is_some_and(|(previous, at)| previous == reason && now.since(*at) < REPORTED_EVERY) {
            return false;
        }
        self.0.insert(watch.to_owned(), (reason.to_owned(), now));
        true
    }
}

/// Sends each observation to `sender`. Returns when the receiver is dropped.
pub(super) async fn follow<K, T>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    sender: mpsc::Sender<T>,
    wrap: impl Fn(Observation<K>) -> T,
) where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    K::DynamicType: Default + Clone,
{
    pass_on(watch_objects(api, config), sender, wrap).await;
}

/// Sends each observation of a kind of this operator. Returns when the receiver is dropped.
pub(super) async fn follow_declared<K, T>(
    api: Api<DeserializeGuard<K>>,
    sender: mpsc::Sender<T>,
    wrap: impl Fn(Observation<K>) -> T,
) where
    K: ReadInParts<DynamicType: Clone> + Clone + Send + 'static,
{
    pass_on(watch_declared(api), sender, wrap).await;
}

async fn pass_on<K: Resource, T>(
    changes: impl Stream<Item = Change<DeserializeGuard<K>>>,
    sender: mpsc::Sender<T>,
    wrap: impl Fn(Observation<K>) -> T,
) {
    let mut changes = pin!(changes);
    while let Some(change) = changes.next().await {
        if sender.send(wrap(change.into())).await.is_err() {
            return;
        }
    }
}

impl<K: Resource> From<Change<DeserializeGuard<K>>> for Observation<K> {
    fn from(change: Change<DeserializeGuard<K>>) -> Self {
        match change {
            Change::Seen(DeserializeGuard(Ok(mut object)), origin) => {
                trim(object.meta_mut());
                Self::Seen(Box::new(object), origin)
            }
            Change::Seen(DeserializeGuard(Err(invalid)), _) => {
                let mut metadata = invalid.metadata;
                trim(&mut metadata);
                Self::Malformed(Box::new(metadata), invalid.error)
            }
            Change::Gone(key) => Self::Gone(key),
            Change::Synced => Self::Synced,
            Change::Failed(error) => Self::Failed(Trouble::from(&error)),
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
