//! Remembers the leases of a lock and derives the facts that decisions are based on. Pure.

use std::time::Duration;

use super::{
    blind::{Blind, LatestAnswer},
    delay::Delays,
    goal::{Other, Siblings, TargetFacts, has_room},
    handle::TakeoverWait,
    lease_view::LeaseView,
};
use crate::{
    api::{
        leader_lock::{Candidates, LockState, OnQuorumLoss},
        plan::LockPlan,
    },
    controller::index::OwnTokens,
    lease::{BootInstant, FencingToken, TakeoverDelay},
};

/// The inputs observed at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) lease: LeaseView,
    /// Whether this replica has a majority of the masters.
    pub(super) majority: bool,
    /// The latest answers of the siblings.
    pub(super) latest_answer: LatestAnswer,
    /// The time until which a replica that does not see the masters leaves stops to the coordinator.
    pub(super) coordinated_until: Option<BootInstant>,
    /// Whether every pod of the targets is fenced.
    pub(super) fenced: bool,
    /// The deadline of a requested stop.
    pub(super) stop_by: Option<BootInstant>,
    pub(super) now: BootInstant,
    /// Time since 1970.
    pub(super) unix: Duration,
}

/// Returns the end of this process's lost lease if all targets must still stop by it, given the siblings' answers:
/// `None` if a sibling took over, or if there is time to leave the stop to the sibling.
pub(super) fn still_owed(
    lost: Option<BootInstant>,
    siblings: Siblings,
    last: Option<FencingToken>,
    has_room: bool,
) -> Option<BootInstant> {
    lost.filter(|_| !matches!(siblings, Siblings::Held(_, proven) if Some(proven) > last || has_room))
}

/// The memory of a lock's leases.
#[derive(Debug)]
pub(super) struct Leases {
    /// The time at which this replica began to watch the lock.
    began: BootInstant,
    start_after: BootInstant,
    /// Whether the lease before this process's lease belonged to another cluster.
    from_elsewhere: bool,
    /// The last lease of this process.
    pub(super) own: Option<FencingToken>,
    /// The time at which that lease was first observed.
    won: Option<BootInstant>,
    /// The wait of that lease before it starts targets.
    wait: Option<TakeoverWait>,
    /// The end of this process's present lease, and of the lease that it lost.
    own_until: Option<BootInstant>,
    lost: Option<BootInstant>,
    /// The lease that was handed to this cluster while its pods run: the next holder adopts them.
    handed: Option<FencingToken>,
    sibling_until: Option<BootInstant>,
    pub(super) delays: Delays,
    pub(super) blind: Blind,
}

impl Leases {
    pub(super) fn new(now: BootInstant) -> Self {
        Self {
            began: now,
            start_after: now,
            from_elsewhere: false,
            own: None,
            won: None,
            wait: None,
            own_until: None,
            lost: None,
            handed: None,
            sibling_until: None,
            delays: Delays::default(),
            blind: Blind::default(),
        }
    }

    /// Returns the facts at this moment, including those about leases that have ended.
    pub(super) fn observe(
        &mut self,
        seen: &Observation,
        plan: &LockPlan,
        own_tokens: &OwnTokens,
    ) -> TargetFacts {
        let (lease, now) = (&seen.lease, seen.now);
        if let Some((token, until)) = lease.held {
            if self.own != Some(token) {
                self.win(token, lease, plan, own_tokens, (now, seen.unix));
            }
            self.own_until = Some(until);
            (self.lost, self.sibling_until) = (None, None);
            self.blind.passed_on = false;
        } else if let Some(until) = self.own_until.take() {
            self.lost = Some(until);
        }
        if let Some(sibling) = lease.other.filter(|other| other.of == Other::Sibling) {
            self.lost = None;
            self.sibling_until = Some(sibling.ends);
        }
        let siblings = self.blind.siblings(seen.majority, seen.latest_answer, now);
        // A lease that a sibling proves counts like one that this replica has observed.
        if let Siblings::Held(until, _) = siblings {
            self.sibling_until = self.sibling_until.max(Some(until));
        }
        let takeover_delay = self.takeover_delay(plan);
        // A cluster that stepped down keeps nothing running, and asks no sibling to.
        let keeps = plan.state != LockState::SteppedDown || plan.awaits_confirmation;
        let fenced = seen.fenced && keeps;
        let stop = if fenced {
            Duration::ZERO
        } else {
            plan.longest_stop_of_present()
        };
        let has_room = fenced || has_room(takeover_delay, stop);
        self.lost = still_owed(self.lost, siblings, self.own, has_room);
        let elsewhere = |(of, token): (Other, FencingToken)| of == Other::Elsewhere && Some(token) > self.own;
        TargetFacts {
            passed_on: self.blind.passed_on || lease.last.is_some_and(elsewhere),
            held_until: lease.held.map(|(_, until)| until),
            start_after: self.start_after,
            from_elsewhere: self.from_elsewhere,
            other: lease.holder(),
            // The pods of a lease that was handed over continue to run, except those that are not fenced.
            lost: self.lost.filter(|_| self.own != self.handed || !seen.fenced),
            sibling_until: self.sibling_until,
            siblings,
            coordinated_until: seen.coordinated_until,
            observes: observes(plan),
            began: self.began,
            stop_by: seen.stop_by,
            takeover_delay,
            fenced,
            stop,
            on_quorum_loss: if keeps {
                plan.on_quorum_loss
            } else {
                OnQuorumLoss::Stop
            },
        }
    }

    /// Returns the time at which the present lease of this process was first observed.
    pub(super) fn won(&self) -> Option<BootInstant> {
        self.own_until?;
        self.won
    }

    /// Returns the wait before the start of targets under the present lease, while it lasts.
    pub(super) fn takeover(&self, now: BootInstant) -> Option<TakeoverWait> {
        self.own_until?;
        self.wait.filter(|wait| now < wait.until)
    }

    /// Records that this cluster continues under the lease after this one. The pods are fenced, so they
    /// continue to run.
    pub(super) fn hand_to_sibling(&mut self, token: FencingToken) {
        self.handed = Some(token);
    }

    /// Records a new lease of this process.
    fn win(
        &mut self,
        token: FencingToken,
        lease: &LeaseView,
        plan: &LockPlan,
        own_tokens: &OwnTokens,
        (now, unix): (BootInstant, Duration),
    ) {
        self.own = Some(token);
        let (delay, adopted) = delay(lease, plan, own_tokens);
        self.wait = delay.map(|delay| TakeoverWait {
            until: now + delay.length,
            delay,
            ends: unix + delay.length,
            after: FencingToken(lease.marks.held),
        });
        self.start_after = self.wait.map_or(now, |wait| wait.until);
        self.won = Some(now);
        self.delays.won(adopted);
        self.from_elsewhere = lease.last.is_some_and(|(of, _)| of == Other::Elsewhere);
    }

    /// Returns the minimum time that other clusters wait after the end of this cluster's present or last lease.
    fn takeover_delay(&mut self, plan: &LockPlan) -> Duration {
        let planned = plan.takeover_delay;
        // An assumed delay is no delay that a sibling has declared.
        if plan.targets.iter().all(|target| target.awaits.is_none()) {
            self.delays.see(planned, self.sibling_until.is_some());
        }
        self.delays.bound(self.own, planned)
    }

    /// Records that all targets have stopped.
    pub(super) fn stopped(&mut self) {
        self.lost = None;
        // Another replica may have stopped the target that was found running.
        self.blind.forget_started();
    }
}

/// Reports whether the replica only observes: with `candidates: Agents` the holder is a separate process.
pub(super) fn observes(plan: &LockPlan) -> bool {
    plan.candidates == Candidates::Agents
}

/// Returns how long a new lease waits before it starts targets, and the delay declared for the targets it
/// adopts. After an unclean end in another cluster, the lease waits until the targets there are gone; after
/// an unclean end in this cluster, it adopts the targets (P-86).
fn delay(
    lease: &LeaseView,
    plan: &LockPlan,
    own_tokens: &OwnTokens,
) -> (Option<TakeoverDelay>, Option<Duration>) {
    let marks = lease.marks;
    if !marks.ended_uncleanly() {
        return (None, None);
    }
    let sibling = lease.last == Some((Other::Sibling, FencingToken(marks.held)));
    if sibling || lease.succeeds_sibling || own_tokens.has(marks.held) {
        (None, marks.declared_delay())
    } else {
        let wait = marks.takeover_delay(plan.explicit_takeover_delay, plan.takeover_delay);
        (Some(wait), None)
    }
}

#[cfg(test)]
mod tests;
