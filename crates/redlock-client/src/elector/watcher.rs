//! Who is told what happens, for metrics and for whoever acts on it.

use std::time::Duration;

use crate::lease::{EndReason, LockName, Takeover, Won};

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

/// Called from the elector's task: must return at once.
pub trait Watcher: Send + Sync + std::fmt::Debug {
    fn acquire_ended(&self, lock: &LockName, result: AcquireResult, took: Duration);
    /// `margin` is the share of the lease that was left when the renewal was won.
    fn renew_ended(&self, lock: &LockName, result: RenewResult, margin: f64);
    /// `gap` is the time from the end of the old lease to now, where there was one.
    fn acquired(&self, lock: &LockName, won: &Won, takeover: Option<(Takeover, Duration)>);
    fn ended(&self, lock: &LockName, reason: EndReason);
    /// What is published of the lock names another holder than before, or none: not called for a renewal.
    fn changed(&self, _: &LockName) {}
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watcher for Silent {
    fn acquire_ended(&self, _: &LockName, _: AcquireResult, _: Duration) {}
    fn renew_ended(&self, _: &LockName, _: RenewResult, _: f64) {}
    fn acquired(&self, _: &LockName, _: &Won, _: Option<(Takeover, Duration)>) {}
    fn ended(&self, _: &LockName, _: EndReason) {}
}
