//! Defines the core's interface to a target task: configuration, commands and reports.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

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
        coordination::CoordinatorView, index::OwnTokens, object::ObjectKey, problem::Problem,
        rate_limiter::RateLimiter, sibling_answers::Round,
    },
    elector::{Elector, LockView},
    lease::{BootInstant, ClusterId, FencingToken, TakeoverDelay},
    masters::Masters,
    targets::{Note, Shared},
    telemetry::Telemetry,
};

/// A command to a target task.
#[derive(Debug)]
pub(in crate::controller) enum Command {
    /// The declared lock, and the permissions to act on it.
    Plan(Arc<LockPlan>, Permissions),
    /// Stop everything, then answer: true if the end is recorded as clean, or the lock is not held. A closed
    /// channel means that the stop was not carried out.
    Stop(StopRequest, oneshot::Sender<bool>),
    /// Revoke a stop under the present lease, so that its targets run again, unless it is already carried out.
    Resume,
    /// Revoke any stop, unless it is already carried out.
    CancelDeparture,
}

/// A request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct StopRequest {
    pub(in crate::controller) by: BootInstant,
    pub(in crate::controller) scope: StopScope,
}

impl StopRequest {
    /// Returns the lease with which the request ends.
    pub(super) const fn lease(&self) -> Option<FencingToken> {
        match self.scope {
            StopScope::Lease(token) => Some(token),
            StopScope::Departure | StopScope::EndOfHolder | StopScope::EndOfLastProcess => None,
        }
    }

    pub(super) const fn departs(&self) -> bool {
        matches!(self.scope, StopScope::Departure)
    }
}

/// The time for which a request to stop applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum StopScope {
    /// The request applies only while this lease is held, and is given up after its deadline.
    Lease(FencingToken),
    /// The lock ends here: what a start has set is undone, and nothing new is created. The request applies regardless of
    /// which replica holds the lock, until it is cancelled.
    Departure,
    /// The process ends, and holds the lock.
    EndOfHolder,
    /// The process ends, and does not hold the lock: no other process of this cluster runs on. The request is given up when a
    /// process of this cluster acquires the lock, or renews its lease, after the request.
    EndOfLastProcess,
}

/// The permissions of a target task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Permissions {
    /// Whether nothing is switched, because of `enforcement: Observe` or the paused annotation.
    pub(in crate::controller) off: bool,
    /// Whether the finalizer is set, so that the object cannot disappear before its targets are stopped.
    pub(in crate::controller) guarded: bool,
    /// Whether the object has the finalizer: some target may run.
    pub(in crate::controller) finalizer: bool,
    /// Whether the present spec cannot be read. It may declare more targets than the plan, so no end counts
    /// as clean.
    pub(in crate::controller) unreadable: bool,
    /// Whether targets may be started: the object is not being deleted, and the lock is not being given up.
    pub(in crate::controller) starts: bool,
    /// The time at which the last consistent read of the object was sent.
    pub(in crate::controller) read: Option<BootInstant>,
}

impl Permissions {
    /// Reports whether the targets have to be inspected again under these permissions. A newer read alone changes
    /// nothing for targets in their desired state.
    pub(super) fn differ(self, before: Self) -> bool {
        let read = None;
        Self { read, ..self } != Self { read, ..before }
    }
}

/// The state of the targets, reported by a target task.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct TargetReport {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) targets: Vec<TargetStatus>,
    /// The targets that were removed from the spec and are not known to be stopped.
    pub(in crate::controller) removed: Vec<TargetStatus>,
    /// All targets that the task switches, including removed ones that are not stopped yet.
    pub(in crate::controller) has: Vec<TargetWork>,
    /// Whether a target was found running, or may run.
    pub(in crate::controller) runs: bool,
    /// Whether a start waits for the finalizer.
    pub(in crate::controller) wants_guard: bool,
    /// A consistent read of the object is required that is sent at this time or later.
    pub(in crate::controller) wants_read: Option<BootInstant>,
    /// The wait before the start of the targets, while it lasts.
    pub(in crate::controller) takeover: Option<TakeoverWait>,
    /// Whether all targets are in the desired state.
    pub(in crate::controller) settled: bool,
    /// The obstacle to the desired state, such as the owner of a field.
    pub(in crate::controller) trouble: Option<Problem>,
    /// Whether this cluster can switch no target of the lock, and has started none.
    pub(in crate::controller) unswitchable: bool,
    /// Whether the running targets have been unready for longer than the lock allows.
    pub(in crate::controller) unready: bool,
    /// The nodes on which pods of a fenced lock run; `None` while they are not known.
    pub(in crate::controller) nodes: Option<BTreeSet<String>>,
    /// The events to emit, each contained in one report.
    pub(in crate::controller) notes: Vec<Note>,
}

/// The wait of a new holder after an unclean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct TakeoverWait {
    pub(in crate::controller) until: BootInstant,
    pub(in crate::controller) delay: TakeoverDelay,
    /// Time since 1970 at the end of the wait, for people.
    pub(in crate::controller) ends: Duration,
    /// The token of the lease that did not end cleanly.
    pub(in crate::controller) after: FencingToken,
}

/// The core's handle of a target task.
#[derive(Debug)]
pub(in crate::controller) struct Handle {
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) task: JoinHandle<()>,
    /// The view of the lock, if no masters can be asked for it.
    pub(in crate::controller) detached: Option<watch::Sender<LockView>>,
}

impl Handle {
    pub(in crate::controller) fn send(&self, command: Command) {
        // A task ends only after a panic, or when this handle is dropped; after a panic it is started again.
        let _ = self.commands.send(command);
    }

    /// Reports whether the task has panicked, so that no task switches the targets.
    pub(in crate::controller) fn is_broken(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The configuration of a target task.
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
    /// The masters of the quorum; `None` if no masters can be asked.
    pub(in crate::controller) masters: Option<Masters>,
    /// The latest answers of the siblings.
    pub(in crate::controller) sibling_answers: watch::Receiver<Arc<Round>>,
    /// The coordinator of the replicas; `None` without an election.
    pub(in crate::controller) coordinator: watch::Receiver<Option<CoordinatorView>>,
    /// Whether the API server does not answer.
    pub(in crate::controller) lost: watch::Receiver<bool>,
    /// The tokens of this cluster's holders, from the statuses of the object and from this task's own marks.
    pub(in crate::controller) own_tokens: OwnTokens,
}
