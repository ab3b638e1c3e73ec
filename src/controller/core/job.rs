//! The tasks that the core starts beside its own work, and what each ends with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Core, drain, failover, in_use::Guarded};
use crate::{
    api::LeaderLock,
    clock,
    controller::{object::ObjectKey, said::Round},
    lease::FencingToken,
    masters::{InitError, InitReport, Reporters, RetireOutcome},
};

/// What a task ends with, by what it was started for.
pub(super) enum Job {
    /// `None` if it broke off.
    Initialized(String, Option<Result<InitReport, InitError>>),
    /// The token that a status has, and the largest counter that a majority reports.
    Counter(ObjectKey, i64, Option<FencingToken>),
    /// The clusters that report on a quorum.
    Clusters(String, Reporters),
    /// A request for a hand-over.
    Answered(ObjectKey),
    /// Nothing hangs on how it ended.
    Over,
    Said(Round),
    /// Whether everything of a lock that is being deleted was stopped.
    Stopped(ObjectKey, bool),
    /// The same of one that is to be passed on.
    Drained(ObjectKey, drain::Purpose, Box<drain::Drained>),
    /// That this cluster abstains is in the object, or not.
    Abstains(
        ObjectKey,
        Box<failover::Failover>,
        Result<Box<LeaderLock>, String>,
    ),
    /// The finalizer of a quorum.
    Guarded(String, Guarded),
    /// What the siblings say of the use of a quorum whose finalizer is to be removed; none if the question broke off.
    Uses(String, Option<Round>),
    Finalizer(ObjectKey, Result<Option<Box<LeaderLock>>, String>),
    /// An unreadable object that is being deleted, if it is still there; its metadata as seen before, if the read broke
    /// off.
    Salvaged(ObjectKey, Result<Option<Box<serde_json::Value>>, Box<ObjectMeta>>),
    Retired {
        quorum: String,
        master: String,
        /// The old one and the new one.
        urls: (String, String),
        outcome: Result<RetireOutcome, String>,
    },
}

impl Core {
    pub(super) fn on_job(&mut self, end: Job) {
        match end {
            Job::Initialized(quorum, result) => self.on_initialized(&quorum, result),
            Job::Counter(key, written, largest) => self.on_counter(&key, written, largest),
            Job::Answered(key) => self.on_answered(&key),
            Job::Over => {}
            Job::Said(round) => self.on_said(round),
            Job::Stopped(key, stopped) => self.on_stopped(&key, stopped),
            Job::Drained(key, purpose, drained) => self.on_drained(&key, purpose, &drained),
            Job::Abstains(key, failover, end) => self.on_abstains(&key, *failover, end),
            Job::Guarded(name, end) => self.on_guarded(&name, end),
            Job::Uses(name, said) => self.on_uses(&name, said.as_ref()),
            Job::Finalizer(key, end) => self.on_finalizer(&key, end),
            Job::Salvaged(key, object) => self.on_salvaged(&key, object, clock::now()),
            Job::Clusters(quorum, reporters) => self.on_clusters(&quorum, &reporters),
            Job::Retired {
                quorum,
                master,
                urls: (old, new),
                outcome,
            } => self.on_retired(&quorum, &master, (&old, &new), outcome, clock::now()),
        }
    }
}
