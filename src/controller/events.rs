//! Events (events.k8s.io/v1): what happened, for `kubectl describe`.
//!
//! Best effort by nature: they wait behind everything else, also for an API server that is away, and when more happens
//! than anybody could read, the rest is dropped. Statuses and metrics miss nothing. Each namespace has a queue of its
//! own: one that refuses events (it is terminating, or a quota is exhausted) holds up no other.

mod queue;
mod record;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::{Client, Resource};
use tokio::sync::mpsc;

use super::rate_limiter::RateLimiter;
pub(super) use crate::api::vocabulary::EventReason;
use crate::{api::LeaderLock, clock};

/// As many may wait for the queue to be looked at, which is the length of one request.
const WAITING: usize = 1_024;

/// An event of one object.
#[derive(Debug)]
pub(super) struct EventRecord {
    pub(super) reason: EventReason,
    pub(super) object: ObjectReference,
    pub(super) note: String,
}

impl EventRecord {
    /// All of these about one lock.
    pub(super) fn all(lock: &LeaderLock, all: Vec<(EventReason, String)>) -> impl Iterator<Item = Self> {
        let object = lock.object_ref(&());
        all.into_iter().map(move |(reason, note)| Self {
            reason,
            object: object.clone(),
            note,
        })
    }
}

/// Takes events to be written.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::Sender<EventRecord>);

impl Events {
    pub(super) fn emit(&self, record: EventRecord) {
        if let Err(error) = self.0.try_send(record) {
            tracing::debug!(%error, "event dropped");
        }
    }
}

/// A place to emit events, and the task that writes them.
pub(super) fn recorder(
    client: Client,
    instance: String,
    rate_limiter: Arc<RateLimiter>,
) -> (Events, impl Future<Output = ()> + Send) {
    let (events, told) = mpsc::channel(WAITING);
    (
        Events(events),
        record::record(client, instance, rate_limiter, told),
    )
}

/// The wall clock, for people.
pub(super) fn timestamp() -> Timestamp {
    timestamp_at(clock::unix_time())
}

/// A time since 1970, as objects write it.
pub(super) fn timestamp_at(unix: Duration) -> Timestamp {
    Timestamp::new(
        i64::try_from(unix.as_secs()).unwrap_or(i64::MAX),
        i32::try_from(unix.subsec_nanos()).unwrap_or(0),
    )
    .unwrap_or_default()
}
