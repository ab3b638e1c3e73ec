//! Events (events.k8s.io/v1): what happened, for whoever runs `kubectl describe`.
//!
//! Best effort by nature: they wait behind everything else, also for an API server that is away, and when more happens
//! than anybody could read, the rest is dropped. Statuses and metrics miss nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use tokio::{sync::mpsc, time};

use super::pace::Pace;
use crate::{
    api::LeaderLock,
    clock,
    targets::{Pause, deepest},
};

/// As many may wait. More come only when thousands of locks change at once.
const WAITING: usize = 1_024;
/// One that says the same of the same object within this time is counted, not written anew.
const SERIES: Duration = Duration::from_secs(360);
/// How many events of the last minutes are remembered for that.
const REMEMBERED: usize = 1_024;
const PATIENCE: Duration = Duration::from_secs(10);
/// In seconds. One that could not be written for so long is dropped: the API server forgets them after an hour.
const KEPT: i64 = 600;
const CONTROLLER: &str = "redlock.dev/operator";
/// The API refuses a longer note.
const NOTE: usize = 1_000;

/// What happened. The names are part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Acquired,
    Released,
    LeaseLost,
    TakenOver,
    QuorumLost,
    QuorumRestored,
    MasterQuarantined,
    TokenImplausible,
    TargetActivated,
    TargetStopped,
    EnforcementConflict,
    /// By the action of a target, in this word.
    Told(&'static str),
    /// The same, and somebody should look.
    Warned(&'static str),
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Acquired => "Acquired",
            Self::Released => "Released",
            Self::LeaseLost => "LeaseLost",
            Self::TakenOver => "TakenOver",
            Self::QuorumLost => "QuorumLost",
            Self::QuorumRestored => "QuorumRestored",
            Self::MasterQuarantined => "MasterQuarantined",
            Self::TokenImplausible => "TokenImplausible",
            Self::TargetActivated => "TargetActivated",
            Self::TargetStopped => "TargetStopped",
            Self::EnforcementConflict => "EnforcementConflict",
            Self::Told(reason) | Self::Warned(reason) => reason,
        }
    }

    /// What was done, in the words of the events API.
    const fn action(self) -> &'static str {
        match self {
            Self::Acquired | Self::TakenOver => "Acquire",
            Self::Released => "Release",
            Self::LeaseLost => "Renew",
            Self::QuorumLost | Self::QuorumRestored | Self::MasterQuarantined => "Watch",
            Self::TokenImplausible => "WriteStatus",
            Self::TargetActivated
            | Self::TargetStopped
            | Self::EnforcementConflict
            | Self::Told(_)
            | Self::Warned(_) => "Switch",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Acquired
            | Self::Released
            | Self::TakenOver
            | Self::QuorumRestored
            | Self::TargetActivated
            | Self::TargetStopped
            | Self::Told(_) => "Normal",
            Self::LeaseLost
            | Self::QuorumLost
            | Self::MasterQuarantined
            | Self::TokenImplausible
            | Self::EnforcementConflict
            | Self::Warned(_) => "Warning",
        }
    }
}

/// One thing that happened to one object.
#[derive(Debug)]
pub(super) struct Happening {
    pub(super) what: What,
    pub(super) object: ObjectReference,
    pub(super) note: String,
}

/// Takes events to be written.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::Sender<Happening>);

impl Events {
    pub(super) fn tell(&self, happening: Happening) {
        if let Err(error) = self.0.try_send(happening) {
            tracing::debug!(%error, "event dropped");
        }
    }

    /// All of them about one lock.
    pub(super) fn tell_all(&self, lock: &LeaderLock, all: Vec<(What, String)>) {
        for (what, note) in all {
            let object = lock.object_ref(&());
            self.tell(Happening { what, object, note });
        }
    }
}

/// A place to tell events, and the task that writes them.
pub(super) fn recorder(
    client: Client,
    instance: String,
    pace: Arc<Pace>,
) -> (Events, impl Future<Output = ()> + Send) {
    let (events, told) = mpsc::channel(WAITING);
    (Events(events), record(client, instance, pace, told))
}

type Key = (What, Option<String>, String);

async fn record(client: Client, instance: String, pace: Arc<Pace>, mut told: mpsc::Receiver<Happening>) {
    let mut written: HashMap<Key, Event> = HashMap::new();
    while let Some(happening) = told.recv().await {
        let now = timestamp();
        let key = (
            happening.what,
            happening.object.uid.clone(),
            happening.note.clone(),
        );
        let recent = |event: &Event| {
            let last = event.series.as_ref().map(|series| series.last_observed_time.0);
            let last = last.or_else(|| event.event_time.as_ref().map(|time| time.0));
            last.is_some_and(|last| {
                now.as_second() - last.as_second() < i64::try_from(SERIES.as_secs()).unwrap_or(0)
            })
        };
        let before = written.get(&key).filter(|event| recent(event)).cloned();
        let namespace = happening
            .object
            .namespace
            .clone()
            .unwrap_or_else(|| "default".into());
        let api = Api::<Event>::namespaced(client.clone(), &namespace);
        let (event, new) = match before {
            Some(mut event) => {
                let count = event.series.as_ref().map_or(2, |series| series.count + 1);
                event.series = Some(EventSeries {
                    count,
                    last_observed_time: MicroTime(now),
                });
                (event, false)
            }
            None => (event(happening, &instance, now), true),
        };
        let write = async || {
            if new {
                return api.create(&PostParams::default(), &event).await;
            }
            let name = event.metadata.name.clone().unwrap_or_default();
            let series = serde_json::json!({ "series": event.series });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&series))
                .await
        };
        let mut pause = Pause::default();
        loop {
            pace.told().await;
            let refused = match time::timeout(PATIENCE, write()).await {
                Ok(Ok(_)) => {
                    remember(&mut written, key, event, recent);
                    break;
                }
                Ok(Err(error)) => {
                    tracing::debug!(error = deepest(&error), "event could not be written");
                    is_refusal(&error)
                }
                Err(_) => false,
            };
            // What happened while the server was away is what people look for afterwards.
            if refused || timestamp().as_second() - now.as_second() > KEPT {
                break;
            }
            time::sleep(pause.next().unwrap_or(PATIENCE)).await;
        }
    }
}

/// Not before the server knows the roles again: until then, one that has just started forbids everything.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500 && ![403, 429].contains(&status.code))
}

fn remember(written: &mut HashMap<Key, Event>, key: Key, event: Event, recent: impl Fn(&Event) -> bool) {
    if written.len() >= REMEMBERED {
        written.retain(|_, event| recent(event));
    }
    if written.len() >= REMEMBERED {
        written.clear();
    }
    written.insert(key, event);
}

fn event(happening: Happening, instance: &str, now: Timestamp) -> Event {
    let Happening { what, object, note } = happening;
    let name = object.name.clone().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            // Two things of one object in one nanosecond: the second is refused, and dropped.
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        action: Some(what.action().into()),
        reason: Some(what.name().into()),
        type_: Some(what.kind().into()),
        note: Some(note.chars().take(NOTE).collect()),
        event_time: Some(MicroTime(now)),
        regarding: Some(object),
        reporting_controller: Some(CONTROLLER.into()),
        reporting_instance: Some(instance.chars().take(128).collect()),
        ..Event::default()
    }
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
