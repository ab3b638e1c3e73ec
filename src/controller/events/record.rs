//! Writes the queued events one after the other.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::events::v1::{Event, EventSeries},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use tokio::{
    sync::mpsc::{self, error::TryRecvError},
    time,
};

use super::{EventReason, EventRecord, Reporter, event_object::event, queue::Queue, timestamp};
use crate::{
    clock,
    controller::{backoff, rate_limiter::RateLimiter},
    lease::BootInstant,
    targets::{Pause, deepest},
};

/// Time, in seconds, within which an event equal to an earlier one about the same object is counted in a
/// series, not created again.
const SERIES: i64 = 360;
/// The number of recent events that are remembered for series.
const REMEMBERED: usize = 1_024;
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which an event that could not be written is dropped: the API server deletes events after an
/// hour.
const KEPT: Duration = Duration::from_secs(600);
/// The longest wait while the whole server fails, short enough to notice its return within seconds.
const SERVER_AWAY: Duration = Duration::from_secs(5);

type Key = (EventReason, Option<String>, String);

/// A queued event.
#[derive(Debug)]
struct Waiting {
    record: EventRecord,
    at: Timestamp,
    since: BootInstant,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    /// The server rejects this event permanently.
    Never,
    /// The namespace, or the permissions in it, do not allow the event at present.
    RefusedNow,
    /// The server does not answer, or answers with a failure.
    Failed,
}

struct Recorder {
    client: Client,
    reporter: Reporter,
    written: HashMap<Key, Event>,
}

/// Runs until all senders are gone.
pub(super) async fn record(
    client: Client,
    reporter: Reporter,
    rate_limiter: Arc<RateLimiter>,
    mut receiver: mpsc::Receiver<EventRecord>,
) {
    let (mut queue, mut pause) = (Queue::default(), Pause::default());
    let mut recorder = Recorder {
        client,
        reporter,
        written: HashMap::new(),
    };
    loop {
        let open = loop {
            match receiver.try_recv() {
                Ok(record) => push(&mut queue, record),
                Err(error) => break error == TryRecvError::Empty,
            }
        };
        let now = clock::now();
        let Some((namespace, waiting)) = queue.next(now) else {
            if !open {
                return;
            }
            let due = queue.due_at(now).unwrap_or(now + KEPT);
            tokio::select! {
                record = receiver.recv() => if let Some(record) = record {
                    push(&mut queue, record);
                },
                () = clock::sleep_until(due) => {}
            }
            continue;
        };
        if now.since(waiting.since) > KEPT {
            queue.dropped(&namespace);
            continue;
        }
        rate_limiter.wait_to_report().await;
        let outcome = recorder.write(&namespace, &waiting).await;
        let (now, jitter) = (clock::now(), fastrand::f64());
        match outcome {
            Outcome::Written | Outcome::Never => {
                queue.settled(&namespace);
                pause = Pause::default();
            }
            Outcome::RefusedNow => queue.put_back(&namespace, waiting, backoff::LONGEST, now, jitter),
            Outcome::Failed => {
                queue.put_back(&namespace, waiting, SERVER_AWAY, now, jitter);
                // The pause covers the whole server: separate backoffs would load it with a request for every
                // namespace.
                time::sleep(pause.next().unwrap_or(SERVER_AWAY)).await;
            }
        }
    }
}

fn push(queue: &mut Queue<Waiting>, record: EventRecord) {
    let namespace = record.object.namespace.clone();
    let waiting = Waiting {
        record,
        at: timestamp(),
        since: clock::now(),
    };
    if let Some(dropped) = queue.push(namespace.as_deref().unwrap_or(NO_NAMESPACE), waiting) {
        tracing::debug!(object = ?dropped.record.object.name, "event dropped: too many events wait");
    }
}

/// The namespace for the events of cluster-scoped objects.
const NO_NAMESPACE: &str = "default";

impl Recorder {
    async fn write(&mut self, namespace: &str, waiting: &Waiting) -> Outcome {
        let record = &waiting.record;
        let uid = record.object.uid.clone();
        let key = (record.reason, uid, record.note.clone());
        let before = self.written.get(&key).filter(|event| recent(event, waiting.at));
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let counted = before.map(|event| counted(event, waiting.at));
        let event = counted
            .clone()
            .unwrap_or_else(|| event(record, namespace, &self.reporter, waiting.at));
        let write = async {
            if counted.is_none() {
                return api.create(&PostParams::default(), &event).await;
            }
            let name = event.metadata.name.clone().unwrap_or_default();
            let series = serde_json::json!({ "series": event.series });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&series))
                .await
        };
        match time::timeout(PATIENCE, write).await {
            Ok(Ok(_)) => {
                self.remember(key, event, waiting.at);
                Outcome::Written
            }
            Ok(Err(error)) => {
                tracing::debug!(namespace, error = deepest(&error), "event could not be written");
                if counted.is_some() {
                    // The counted event may have expired: the next equal event is created again.
                    self.written.remove(&key);
                }
                outcome(&error)
            }
            Err(_) => Outcome::Failed,
        }
    }

    fn remember(&mut self, key: Key, event: Event, now: Timestamp) {
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, event| recent(event, now));
        }
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        self.written.insert(key, event);
    }
}

/// Classifies an error of the server by whether a retry can succeed.
fn outcome(error: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = error else {
        return Outcome::Failed;
    };
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        // A terminating namespace accepts no new object until it is gone.
        403 if causes().any(|cause| cause.reason == "NamespaceTerminating") => Outcome::Never,
        // A quota, or a server that has just started and forbids everything until it knows the roles.
        403 => Outcome::RefusedNow,
        // Credentials that are being replaced, or an overloaded server.
        401 | 408 | 429 => Outcome::Failed,
        code if code < 500 => Outcome::Never,
        _ => Outcome::Failed,
    }
}

fn recent(event: &Event, now: Timestamp) -> bool {
    let last = event.series.as_ref().map(|series| series.last_observed_time.0);
    let last = last.or_else(|| event.event_time.as_ref().map(|time| time.0));
    last.is_some_and(|last| now.as_second() - last.as_second() < SERIES)
}

/// Returns the same event with its count increased.
fn counted(before: &Event, now: Timestamp) -> Event {
    let count = before.series.as_ref().map_or(2, |series| series.count + 1);
    Event {
        series: Some(EventSeries {
            count,
            last_observed_time: MicroTime(now),
        }),
        ..before.clone()
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, extract::Path, http::StatusCode, routing::post};
    use k8s_openapi::api::core::v1::ObjectReference;
    use serde_json::{Value, json};

    use super::*;
    use crate::targets::fake_server::fake_server;

    fn refusal(text: &str) -> kube::Error {
        kube::Error::Api(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn only_requests_that_can_still_succeed_are_retried() {
        let terminating = r#"{"status": "Failure", "code": 403, "reason": "Forbidden", "message": "it is being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"}]}}"#;
        let status =
            |code: u16| format!(r#"{{"status": "Failure", "code": {code}, "reason": "", "message": "no"}}"#);
        for (text, wanted) in [
            (terminating.to_owned(), Outcome::Never),
            (status(403), Outcome::RefusedNow),
            (status(404), Outcome::Never),
            (status(409), Outcome::Never),
            (status(422), Outcome::Never),
            (status(401), Outcome::Failed),
            (status(429), Outcome::Failed),
            (status(500), Outcome::Failed),
            (status(503), Outcome::Failed),
        ] {
            assert_eq!(outcome(&refusal(&text)), wanted, "{text}");
        }
    }

    /// The namespace and the note of each event that the server receives.
    type Asked = mpsc::UnboundedReceiver<(String, String)>;

    /// Starts a server on which namespace `gone` is being terminated and `full` has no room.
    async fn server() -> (Client, Asked) {
        let (asked, asks) = mpsc::unbounded_channel();
        let answer = move |Path(namespace): Path<String>, Json(event): Json<Value>| async move {
            let note = event["note"].as_str().unwrap_or_default().to_owned();
            let _ = asked.send((namespace.clone(), note));
            let cause = match namespace.as_str() {
                "gone" => "NamespaceTerminating",
                "full" => "Quota",
                _ => return (StatusCode::CREATED, Json(event)),
            };
            let status = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "",
                "details": {"causes": [{"reason": cause, "message": "", "field": ""}]}});
            (StatusCode::FORBIDDEN, Json(status))
        };
        let path = "/apis/events.k8s.io/v1/namespaces/{namespace}/events";
        (fake_server(Router::new().route(path, post(answer))).await, asks)
    }

    fn in_namespace(namespace: &str, note: &str) -> EventRecord {
        EventRecord {
            reason: EventReason::Acquired,
            object: ObjectReference {
                namespace: Some(namespace.to_owned()),
                name: Some("a".to_owned()),
                ..ObjectReference::default()
            },
            note: note.to_owned(),
        }
    }

    #[tokio::test]
    async fn events_that_are_refused_hold_up_no_other_namespace_and_hopeless_ones_not_even_their_own() {
        let (client, mut asks) = server().await;
        let (sender, receiver) = mpsc::channel(16);
        for (namespace, note) in [
            ("full", "1"),
            ("full", "2"),
            ("gone", "1"),
            ("gone", "2"),
            ("good", "1"),
            ("good", "2"),
        ] {
            sender.try_send(in_namespace(namespace, note)).unwrap();
        }
        let reporter = Reporter {
            controller: "redlock.dev/operator",
            instance: "me".to_owned(),
        };
        let recording = record(client, reporter, Arc::new(RateLimiter::new(100)), receiver);
        let recorder = tokio::spawn(recording);
        let mut seen: Vec<(String, String)> = Vec::new();
        let wanted = [("gone", "2"), ("good", "2")].map(|(n, t)| (n.to_owned(), t.to_owned()));
        let bound = time::Instant::now() + Duration::from_secs(60);
        while !wanted.iter().all(|wanted| seen.contains(wanted)) {
            let next = time::timeout_at(bound, asks.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("only {seen:?}")).unwrap();
            let once = next.0 == "full" || !seen.contains(&next);
            assert!(once, "{next:?} again, after {seen:?}");
            seen.push(next);
        }
        let second = ("full".to_owned(), "2".to_owned());
        assert!(!seen.contains(&second), "in their order: {seen:?}");
        recorder.abort();
    }
}
