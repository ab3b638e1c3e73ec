//! Counts the events of one quorum.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use super::{
    Telemetry,
    locks::{LockCounts, Names},
};
use crate::{
    clock,
    elector::{AcquireResult, Elector, RenewResult, Watcher},
    lease::{BootInstant, EndReason, FencingToken, LockName, Takeover, Won},
    masters::{Meter, Operation},
};

/// See [`Telemetry::quorum`].
#[derive(Debug)]
pub(crate) struct QuorumMeter {
    pub(super) name: String,
    /// Names and failure domains, in the order of the votes.
    pub(super) masters: Vec<(String, Option<String>)>,
    telemetry: Arc<Telemetry>,
    locks: RwLock<HashMap<LockName, Arc<LockCounts>>>,
}

impl QuorumMeter {
    pub(super) fn new(name: &str, masters: Vec<(String, Option<String>)>, telemetry: Arc<Telemetry>) -> Self {
        Self {
            name: name.to_owned(),
            masters,
            telemetry,
            locks: RwLock::default(),
        }
    }

    /// Sets the object that declares a lock. Before that, no series of the lock is written.
    pub(crate) fn declare(&self, lock: &LockName, namespace: &str, name: &str) {
        let names: Names = (namespace.into(), name.into());
        let counts = self.telemetry.counts(&names);
        let mut locks = self.locks.write().unwrap_or_else(PoisonError::into_inner);
        locks.insert(lock.clone(), counts);
    }

    /// Drops a lock whose object is gone.
    pub(crate) fn forget(&self, lock: &LockName) {
        let mut locks = self.locks.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = locks.remove(lock) {
            self.telemetry.forget(&counts.names);
        }
    }

    /// Counts the time of each lock up to `now`, held or unheld.
    pub(super) fn sample(&self, elector: &Elector, now: BootInstant) {
        let locks = self.locks.read().unwrap_or_else(PoisonError::into_inner);
        elector.each(|lock, standing| {
            if let Some(counts) = locks.get(lock) {
                counts.sample(standing, now);
            }
        });
    }

    pub(super) fn counts(&self, lock: &LockName) -> Option<Arc<LockCounts>> {
        self.locks
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(lock)
            .cloned()
    }
}

impl Meter for QuorumMeter {
    fn exchanged(&self, master: usize, operation: Operation, votes: [u64; 3], took: Duration) {
        if let Some((master, _)) = self.masters.get(master) {
            let events = &self.telemetry.events;
            events.exchanged(&self.name, master, operation, votes, took);
        }
    }
}

impl Watcher for QuorumMeter {
    fn acquire_ended(&self, lock: &LockName, result: AcquireResult, took: Duration) {
        self.telemetry.events.acquire_ended(result, took);
        if let Some(counts) = self.counts(lock) {
            counts.attempt_ended(result);
        }
    }

    fn renew_ended(&self, lock: &LockName, result: RenewResult, margin: f64) {
        if result == RenewResult::Renewed {
            self.telemetry.events.renewed(margin);
        }
        if let Some(counts) = self.counts(lock) {
            counts.renewal_ended(result);
        }
    }

    fn acquired(&self, lock: &LockName, _: &Won, takeover: Option<(Takeover, Duration)>) {
        let now = clock::now();
        if let Some((takeover, gap)) = takeover {
            self.telemetry.events.took_over(takeover.released, gap);
        }
        if let Some(counts) = self.counts(lock) {
            counts.unheld_until(now, takeover.map(|(takeover, _)| takeover.ended_at));
        }
    }

    fn ended(&self, _: &LockName, reason: EndReason, _: Option<FencingToken>) {
        self.telemetry.events.ended(reason);
    }
}
