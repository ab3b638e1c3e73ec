//! A target task as the core knows it: what it is started with, its commands and its events.

use std::sync::Arc;

use kube::Client;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use crate::{
    api::{
        lock_status::TargetStatus,
        plan::{LockPlan, TargetWork},
    },
    controller::{
        index::OwnTokens, object::ObjectKey, problem::Problem, rate_limiter::RateLimiter,
        sibling_answers::Round,
    },
    elector::{Elector, LockView},
    lease::{BootInstant, ClusterId, FencingToken},
    masters::Masters,
    targets::{Note, Shared},
    telemetry::Telemetry,
};

/// What the core asks of a target task.
#[derive(Debug)]
pub(in crate::controller) enum Command {
    /// The lock as it is declared now, and the permissions to act on it.
    Plan(Arc<LockPlan>, Permissions),
    /// Stop everything, and answer when it is done: true if that is written down as clean, where the lock is held. The end
    /// of the channel means that it was not done.
    Stop(StopRequest, oneshot::Sender<bool>),
    /// What was to be stopped under the present lease runs again, unless it is stopped already.
    Resume,
}

/// A request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct StopRequest {
    pub(in crate::controller) by: BootInstant,
    /// Only while this lease is held, and given up when it is not done in time; without one for good, whichever replica holds
    /// the lock.
    pub(in crate::controller) lease: Option<FencingToken>,
}

/// What a target task may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Permissions {
    /// `enforcement: Observe` or the paused annotation: nothing is switched.
    pub(in crate::controller) off: bool,
    /// The object cannot vanish before what runs is stopped: its finalizer is there.
    pub(in crate::controller) guarded: bool,
    /// The present spec cannot be read, and may declare more targets than the plan: no end may be called clean.
    pub(in crate::controller) unreadable: bool,
}

/// How the targets are: the event of a target task.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct TargetReport {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) targets: Vec<TargetStatus>,
    /// All that it switches, also what is not declared any more and not stopped yet.
    pub(in crate::controller) has: Vec<TargetWork>,
    /// Something was found running, or may be.
    pub(in crate::controller) runs: bool,
    /// Wants to start, and waits for the finalizer.
    pub(in crate::controller) wants_guard: bool,
    /// Everything is as it should be.
    pub(in crate::controller) settled: bool,
    /// What keeps it from that, such as the owner of a field.
    pub(in crate::controller) trouble: Option<Problem>,
    /// What runs has not been ready for longer than the lock lets it be.
    pub(in crate::controller) unready: bool,
    /// What people want to know, each in one report.
    pub(in crate::controller) notes: Vec<Note>,
}

/// The core's side of a target task.
#[derive(Debug)]
pub(in crate::controller) struct Handle {
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) task: JoinHandle<()>,
    /// Where no masters can be asked how the lock stands.
    pub(in crate::controller) detached: Option<watch::Sender<LockView>>,
}

impl Handle {
    pub(in crate::controller) fn send(&self, command: Command) {
        // A task ends only when this handle is dropped, or broken: then it is started anew.
        let _ = self.commands.send(command);
    }

    /// It panicked: nothing switches the targets any more.
    pub(in crate::controller) fn is_broken(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a target task is started with.
pub(in crate::controller) struct Config {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) plan: Arc<LockPlan>,
    pub(in crate::controller) permissions: Permissions,
    pub(in crate::controller) cluster: ClusterId,
    pub(in crate::controller) client: Client,
    pub(in crate::controller) shared: Arc<Shared>,
    pub(in crate::controller) rate_limiter: Arc<RateLimiter>,
    pub(in crate::controller) elector: Elector,
    pub(in crate::controller) telemetry: Arc<Telemetry>,
    pub(in crate::controller) view: watch::Receiver<LockView>,
    /// Of its quorum; none where no masters can be asked.
    pub(in crate::controller) masters: Option<Masters>,
    /// What the siblings said last.
    pub(in crate::controller) said: watch::Receiver<Arc<Round>>,
    /// The API server does not answer.
    pub(in crate::controller) lost: watch::Receiver<bool>,
    /// Of this cluster's holders: by the object's statuses, then by what this task marked.
    pub(in crate::controller) own_tokens: OwnTokens,
}
