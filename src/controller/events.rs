//! Events (events.k8s.io/v1): what happened, for whoever runs `kubectl describe`.
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

use super::pace::Pace;
use crate::{api::LeaderLock, clock};

/// As many may wait for the queue to be looked at, which is the length of one request.
const WAITING: usize = 1_024;

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
    (Events(events), record::record(client, instance, pace, told))
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
