//! Emits events (events.k8s.io/v1), for `kubectl describe`.
//!
//! Events are best effort: they yield to all other requests, wait while the API server is unavailable, and
//! are dropped beyond the capacity of a queue. Statuses and metrics are complete. Each namespace has its own
//! queue, so that a namespace that refuses events (it is terminating, or a quota is exhausted) delays no
//! other.

mod event_object;
mod queue;
mod record;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::{Client, Resource};
use tokio::sync::mpsc;

use super::rate_limiter::RateLimiter;
pub(crate) use crate::api::vocabulary::EventReason;
use crate::{api::LeaderLock, clock};

/// Capacity of the channel, which is drained after each request.
const WAITING: usize = 1_024;

/// An event about one object.
#[derive(Debug)]
pub(crate) struct EventRecord {
    pub(crate) reason: EventReason,
    pub(crate) object: ObjectReference,
    pub(crate) note: String,
}

impl EventRecord {
    /// Returns a record for each of these events about one lock.
    pub(super) fn all(lock: &LeaderLock, all: Vec<(EventReason, String)>) -> impl Iterator<Item = Self> {
        let object = lock.object_ref(&());
        all.into_iter().map(move |(reason, note)| Self {
            reason,
            object: object.clone(),
            note,
        })
    }
}

/// The sender of events to be written.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<EventRecord>);

impl Events {
    pub(crate) fn emit(&self, record: EventRecord) {
        if let Err(error) = self.0.try_send(record) {
            tracing::debug!(%error, "event dropped");
        }
    }
}

/// The program that emits the events.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    pub(crate) controller: &'static str,
    pub(crate) instance: String,
}

/// Returns the sender of events, and the task that writes them.
pub(crate) fn recorder(
    client: Client,
    reporter: Reporter,
    rate_limiter: Arc<RateLimiter>,
) -> (Events, impl Future<Output = ()> + Send) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (
        Events(sender),
        record::record(client, reporter, rate_limiter, receiver),
    )
}

/// Returns the wall clock time, for human readers.
pub(super) fn timestamp() -> Timestamp {
    timestamp_at(clock::unix_time())
}

/// Converts the time since 1970 into the form used by objects.
pub(super) fn timestamp_at(unix: Duration) -> Timestamp {
    Timestamp::new(
        i64::try_from(unix.as_secs()).unwrap_or(i64::MAX),
        i32::try_from(unix.subsec_nanos()).unwrap_or(0),
    )
    .unwrap_or_default()
}
