//! Holds one lock of the elector: its machine, its lease on the masters, and its published view.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    clock,
    elector::{AcquireResult, LockView, RenewResult, Watcher},
    lease::{
        Authority, BootInstant, EndReason, Holder, LockName, Loss, Machine, Takeover, Terms, Won, timing,
        trace::Recorded,
    },
    masters::{Completion, LeaseAttempt, LockKeys},
};

pub(super) struct Slot {
    pub(super) lock: LockName,
    pub(super) generation: u64,
    pub(super) keys: Arc<LockKeys>,
    pub(super) machine: Recorded<Machine>,
    /// The last attempt.
    pub(super) attempt: Option<Arc<LeaseAttempt>>,
    pub(super) timer: Option<BootInstant>,
    pub(super) leaving: bool,
    /// The terms to contend with again after the lock has been given up.
    pub(super) again: Option<Terms>,
    pub(super) ending_by_reserve: bool,
    view: watch::Sender<LockView>,
}

impl Slot {
    pub(super) fn new(
        lock: LockName,
        generation: u64,
        keys: Arc<LockKeys>,
        machine: Recorded<Machine>,
    ) -> (Self, watch::Receiver<LockView>) {
        let (view, receiver) = watch::channel(LockView::new(machine.terms().participation));
        let slot = Self {
            lock,
            generation,
            keys,
            machine,
            attempt: None,
            timer: None,
            leaving: false,
            again: None,
            ending_by_reserve: false,
            view,
        };
        (slot, receiver)
    }

    pub(super) fn publish(&self, change: impl FnOnce(&mut LockView)) {
        self.view.send_modify(change);
    }

    pub(super) fn on_active(
        &self,
        watcher: &dyn Watcher,
        authority: Authority,
        won: Option<(Won, Option<Takeover>)>,
        now: BootInstant,
    ) {
        self.publish(|view| {
            view.active(authority, self.attempt.clone(), now);
            if let Some((won, takeover)) = won {
                view.marks = won.marks;
                view.succession = won.succession;
                view.acquired = Some(clock::unix_time());
                view.takeover = takeover;
                view.takeover_gap = takeover.map(|t| now.since(t.ended_at));
            }
        });
        if let Some((won, takeover)) = won {
            let gap = takeover.map(|t| (t, now.since(t.ended_at)));
            let after_ms = gap.map(|(_, gap)| (gap.as_secs_f64() * 1e6).round() / 1e3);
            let after = takeover.map(|t| if t.released { "release" } else { "expiry" });
            // JSON has no numbers of 128 bits.
            let valid_ms = u64::try_from(authority.valid_until.left(now).as_millis()).unwrap_or(u64::MAX);
            tracing::info!(lock = %self.lock, token = authority.token.0, valid_ms, after, after_ms, "lease acquired");
            watcher.acquired(&self.lock, &won, gap);
            watcher.changed(&self.lock);
        }
    }

    pub(super) fn on_standby(&self, watcher: &dyn Watcher, ended: Option<EndReason>, holder: Option<Holder>) {
        if let Some(reason) = ended {
            let ended = self.view.borrow().last_token();
            let token = ended.map(|token| token.0);
            match reason {
                EndReason::Released | EndReason::Reserved | EndReason::SteppedDown | EndReason::Abandoned => {
                    tracing::info!(lock = %self.lock, token, ?reason, "lease given up");
                }
                EndReason::Expired
                | EndReason::QuorumLost
                | EndReason::Refused
                | EndReason::ClockStepped
                | EndReason::SealedForAnother => {
                    tracing::warn!(lock = %self.lock, token, ?reason, "lease lost");
                }
            }
            watcher.ended(&self.lock, reason, ended);
        }
        let (mut new, mut changed) = (false, ended.is_some());
        self.publish(|view| {
            changed |= view.holder.is_some() != holder.is_some();
            new = view.standby(holder.clone());
        });
        if new || changed {
            watcher.changed(&self.lock);
        }
        // An observation that only shows a renewal is not a change.
        if let Some(holder) = holder.filter(|_| new) {
            let token = holder.token.0;
            tracing::info!(lock = %self.lock, token, holder = holder.identity, cluster = %holder.cluster, "lease held by another");
        }
    }

    /// Reports the result of a delivery to the watcher.
    pub(super) fn count(
        &self,
        watcher: &dyn Watcher,
        delivery: &Completion,
        started: BootInstant,
        now: BootInstant,
    ) {
        let acquired = |result| watcher.acquire_ended(&self.lock, result, now.since(started));
        match delivery {
            Completion::Won(_) => acquired(AcquireResult::Acquired),
            Completion::NotWon(Loss::Refused(_)) => acquired(AcquireResult::Contended),
            Completion::NotWon(Loss::NoQuorum(_)) => acquired(AcquireResult::NoQuorum),
            Completion::NotWon(Loss::TooLate) => acquired(AcquireResult::Timeout),
            Completion::Renewed { .. } => {
                watcher.renew_ended(&self.lock, RenewResult::Renewed, self.margin(now))
            }
            Completion::RenewalRefused => {
                watcher.renew_ended(&self.lock, RenewResult::Refused, self.margin(now))
            }
            Completion::RenewalUndecided => {
                watcher.renew_ended(&self.lock, RenewResult::Undecided, self.margin(now))
            }
            Completion::Observed(_) | Completion::Slots(_) | Completion::Done { .. } => {}
        }
    }

    /// Returns the remaining share of the lease.
    fn margin(&self, now: BootInstant) -> f64 {
        let lease = self.machine.terms().timings.lease_duration;
        let whole: Duration = lease - timing::drift(lease);
        let left = self
            .machine
            .authority_at(now)
            .map_or(Duration::ZERO, |a| a.valid_until.left(now));
        left.as_secs_f64() / whole.as_secs_f64()
    }
}
