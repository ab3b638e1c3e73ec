//! Starts and stops the target objects of a lock, with one file for each action.
//!
//! The modules observe, start and stop an object. They do not decide when: the caller passes a permit to start or to
//! stop, and an action checks it after the last await before each write.

mod action;
mod allowed;
mod attempts;
mod data_loss;
mod error;
#[cfg(test)]
pub(crate) mod fake_server;
mod fencing;
mod following;
mod in_flight;
mod kind;
mod kind_check;
mod label_pods;
mod leader_lease;
mod observed_generation;
mod once_per_schedule;
mod owner;
mod pages;
mod patch;
mod pause;
mod permit;
mod pods;
mod read;
mod rights;
mod rollout;
mod scale;
mod shared;
mod slim;
#[cfg(test)]
mod stop_tests;
mod suspend;
mod template;
mod watch;
mod write;

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::Stream;
use kube::Client;
use tokio::sync::mpsc;

pub(crate) use action::Action;
pub(crate) use allowed::{AllowedField, AllowedFields};
pub(crate) use error::{TargetError, deepest};
pub(crate) use fencing::{Epoch, FencedPods, Gone, RuntimeClasses};
pub(crate) use kind_check::check_kind;
pub(crate) use leader_lease::{LeaseFence, ReleaseName};
pub(crate) use pages::all as list_all;
pub(crate) use pause::Pause;
pub(crate) use permit::{Found, StartPermit, StopPermit};
pub(crate) use rollout::{Rollout, is_judged};
#[cfg(test)]
pub(crate) use scale::plant_forgotten_orphans;
pub(crate) use shared::Shared;
pub(crate) use template::{Content, Template};
#[cfg(test)]
pub(crate) use watch::Present;
use watch::api_error;
pub(crate) use watch::{Change, ObjectKey, Origin, is_older, watch_declared, watch_objects};

pub(crate) use crate::api::vocabulary::{ConditionReason, EventReason};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork},
    elector::Elector,
    lease::{ClusterId, LockName},
    telemetry::Telemetry,
};

/// A stream with one item for each change of the object.
pub(crate) type Changes = Pin<Box<dyn Stream<Item = ()> + Send>>;

/// The outcome of one step towards the goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The object is in the desired state: it runs, or every part of it is gone.
    Done,
    /// Like `Done`, but further work is due after this time.
    Waiting(Duration),
    /// The object is changing; the state is the one that the step found.
    Working(TargetState),
    /// Another writer started the object after it was stopped, and it was stopped again; or vice versa. The
    /// text describes the change of the other writer.
    Contested(String),
    Trouble(Trouble),
}

/// The reason why a target is not in the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The state of the object despite the trouble.
    pub(crate) state: TargetState,
    pub(crate) reason: ConditionReason,
    pub(crate) text: String,
}

impl Step {
    /// Reports whether no part of the object runs, even if the step reports trouble.
    pub(crate) fn is_stopped(&self) -> bool {
        match self {
            Self::Done | Self::Waiting(_) => true,
            Self::Working(_) | Self::Contested(_) => false,
            Self::Trouble(why) => why.state == TargetState::Standby,
        }
    }

    pub(crate) fn trouble(state: TargetState, reason: ConditionReason, text: String) -> Self {
        Self::Trouble(Trouble { state, reason, text })
    }
}

/// The place of a target, and the parts of the lock that its action needs.
#[derive(Clone)]
pub(crate) struct TargetContext {
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) namespace: String,
    /// The name of the object that declares the lock.
    pub(crate) object: String,
    pub(crate) lock: LockName,
    /// Whether the node agents keep the pods of the target from running without the lock.
    pub(crate) fenced: bool,
    /// Whether the lock switches its targets, and not only observes.
    pub(crate) switches: bool,
    /// The name of the target in the spec of the lock.
    pub(crate) target: String,
    /// The cluster of this process.
    pub(crate) cluster: ClusterId,
    pub(crate) elector: Elector,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) notes: mpsc::UnboundedSender<Note>,
}

impl TargetContext {
    /// Emits an event for the lock.
    pub(crate) fn emit(&self, reason: EventReason, text: String) {
        // The receiver is closed when the lock is gone.
        let _ = self.notes.send(Note { reason, text });
    }
}

/// An event for the lock, sent to the task of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) reason: EventReason,
    pub(crate) text: String,
}

/// Reports whether two declarations switch the same object with the same action. Their settings may differ.
pub(crate) fn is_same(one: &TargetWork, other: &TargetWork) -> bool {
    use TargetWork::{LabelPods, Lease, OncePerSchedule, Patch, Scale, Suspend};
    match (one, other) {
        (Scale { object, .. }, Scale { object: another, .. })
        | (Suspend { object }, Suspend { object: another })
        | (OncePerSchedule { object, .. }, OncePerSchedule { object: another, .. })
        | (Lease { object, .. }, Lease { object: another, .. })
        | (Patch { object, .. }, Patch { object: another, .. }) => object == another,
        (LabelPods { selector }, LabelPods { selector: another }) => selector == another,
        _ => false,
    }
}
