//! Forwards the elector's notifications to the metrics, and the changed locks to the writer of statuses.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::{
    elector::{AcquireResult, RenewResult, Watcher},
    lease::{EndReason, FencingToken, LockName, Takeover, Won},
    telemetry::QuorumMeter,
};

/// A change of a lock of a quorum.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) quorum: Arc<str>,
    pub(crate) lock: LockName,
    /// The end of this process's lease, if it ended.
    pub(crate) ended: Option<EndedLease>,
}

/// The end of a lease of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedLease {
    pub(crate) reason: EndReason,
    pub(crate) token: Option<FencingToken>,
}

/// Unbounded on purpose: the elector must never wait, and a lock changes no faster than rounds to its masters end.
pub(crate) type Changes = mpsc::UnboundedSender<Change>;

#[derive(Debug)]
pub(crate) struct MetricsWatcher {
    quorum: Arc<str>,
    meter: Arc<QuorumMeter>,
    changes: Option<Changes>,
}

impl MetricsWatcher {
    pub(crate) fn new(quorum: &str, meter: Arc<QuorumMeter>, changes: Option<Changes>) -> Self {
        Self {
            quorum: quorum.into(),
            meter,
            changes,
        }
    }

    fn send(&self, lock: &LockName, ended: Option<EndedLease>) {
        if let Some(changes) = &self.changes {
            // At the end of the process the receiver is gone.
            let _ = changes.send(Change {
                quorum: self.quorum.clone(),
                lock: lock.clone(),
                ended,
            });
        }
    }
}

impl Watcher for MetricsWatcher {
    fn acquire_ended(&self, lock: &LockName, result: AcquireResult, took: Duration) {
        self.meter.acquire_ended(lock, result, took);
    }

    fn renew_ended(&self, lock: &LockName, result: RenewResult, margin: f64) {
        self.meter.renew_ended(lock, result, margin);
    }

    fn acquired(&self, lock: &LockName, won: &Won, takeover: Option<(Takeover, Duration)>) {
        self.meter.acquired(lock, won, takeover);
    }

    fn ended(&self, lock: &LockName, reason: EndReason, token: Option<FencingToken>) {
        self.meter.ended(lock, reason, token);
        self.send(lock, Some(EndedLease { reason, token }));
    }

    fn changed(&self, lock: &LockName) {
        self.send(lock, None);
    }
}
