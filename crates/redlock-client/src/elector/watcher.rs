//! Notifies metrics and other observers of the events of a lock.

use std::time::Duration;

use crate::lease::{EndReason, FencingToken, LockName, Takeover, Won};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquireResult {
    Acquired,
    Contended,
    NoQuorum,
    Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenewResult {
    Renewed,
    Refused,
    Undecided,
}

/// Receives the events of locks. The elector's task calls the methods, so they must return at once.
pub trait Watcher: Send + Sync + std::fmt::Debug {
    fn acquire_ended(&self, lock: &LockName, result: AcquireResult, took: Duration);
    /// `margin` is the share of the lease that remained when the round of the renewal ended.
    fn renew_ended(&self, lock: &LockName, result: RenewResult, margin: f64);
    /// `takeover` includes the time from the end of the old lease to now, if there was an old lease.
    fn acquired(&self, lock: &LockName, won: &Won, takeover: Option<(Takeover, Duration)>);
    /// `token` is the token of the lease that ended.
    fn ended(&self, lock: &LockName, reason: EndReason, token: Option<FencingToken>);
    /// Called when the published holder of the lock has changed or is gone, but not for a renewal.
    fn changed(&self, _: &LockName) {}
}

/// Ignores all events.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watcher for Silent {
    fn acquire_ended(&self, _: &LockName, _: AcquireResult, _: Duration) {}
    fn renew_ended(&self, _: &LockName, _: RenewResult, _: f64) {}
    fn acquired(&self, _: &LockName, _: &Won, _: Option<(Takeover, Duration)>) {}
    fn ended(&self, _: &LockName, _: EndReason, _: Option<FencingToken>) {}
}
