//! What a warden knows when it decides.

use std::time::Duration;

use super::{
    TargetTask,
    goal::{Facts, Other, Siblings, has_room},
};
use crate::{
    api::leader_lock::{Candidates, LockState, OnQuorumLoss},
    clock,
    elector::Standing,
    lease::{ClusterId, FencingToken, Holder, Moment},
    targets::Leave,
};

/// Whose lease is seen. The own one, lost and left to run out, is no sibling's: what it guarded must be gone by its end.
pub(super) fn other_at(standing: &Standing, cluster: &ClusterId, now: Moment) -> Option<Other> {
    let holder = standing
        .holder_at(now)
        .filter(|holder| !standing.is_own(holder))?;
    Some(if holder.cluster.uid() == cluster.uid() {
        Other::Sibling
    } else {
        Other::Elsewhere
    })
}

/// The end of the own lease by which all must be gone still, after the word of the siblings: none where a sibling took
/// over, or where there is time to leave it to the sibling. Pure.
pub(super) fn still_owed(
    lost: Option<Moment>,
    (siblings, proven): (Siblings, Option<FencingToken>),
    last: Option<FencingToken>,
    has_room: bool,
) -> Option<Moment> {
    let held = matches!(siblings, Siblings::Held(_));
    lost.filter(|_| !(held && (proven > last || has_room)))
}

impl TargetTask {
    /// What is known now, also of leases that have ended since.
    pub(super) fn facts(&mut self, now: Moment) -> Facts {
        let standing = self.config.standing.borrow_and_update().clone();
        let authority = standing.authority_at(now);
        if let Some(authority) = authority {
            if self.seen_token != Some(authority.token) {
                self.seen_token = Some(authority.token);
                let (wait, adopted) = self.delay(&standing);
                self.start_after = now + wait;
                self.delays.won(adopted);
                let elsewhere = |holder: &Holder| holder.cluster.uid() != self.config.cluster.uid();
                self.from_elsewhere = standing.last_holder.as_ref().is_some_and(elsewhere);
            }
            self.last_until = Some(authority.valid_until);
            (self.lost, self.sibling_until) = (None, None);
            self.blind.passed_on = false;
        } else if let Some(until) = self.last_until.take() {
            self.lost = Some(until);
        }
        let other = other_at(&standing, &self.config.cluster, now);
        if other == Some(Other::Sibling) {
            self.lost = None;
            self.sibling_until = standing.holder_at(now).map(|holder| holder.ends);
        }
        let siblings = self.heed_siblings(&standing, now);
        self.halts.expire(authority.map(|authority| authority.token), now);
        let takeover_delay = self.takeover_delay();
        let elsewhere = |holder: &Holder| {
            holder.cluster.uid() != self.config.cluster.uid() && Some(holder.token) > self.seen_token
        };
        Facts {
            passed_on: self.blind.passed_on || standing.last_holder.as_ref().is_some_and(elsewhere),
            held_until: authority.map(|authority| authority.valid_until),
            start_after: self.start_after,
            from_elsewhere: self.from_elsewhere,
            other,
            lost: self.lost,
            sibling_until: self.sibling_until,
            siblings,
            observes: self.observes(),
            began: self.began,
            ordered: self.halts.by(),
            takeover_delay,
            stop: self.config.plan.timings.stop,
            // Whoever steps down leaves nothing running.
            on_quorum_loss: match self.config.plan.state {
                LockState::SteppedDown => OnQuorumLoss::Stop,
                LockState::Enabled | LockState::Frozen => self.config.plan.on_quorum_loss,
            },
        }
    }

    /// The lease that a sibling proves counts as one that this replica has seen.
    fn heed_siblings(&mut self, standing: &Standing, now: Moment) -> Siblings {
        let (siblings, token) = self.siblings(standing, now);
        if let Siblings::Held(until) = siblings {
            self.sibling_until = self.sibling_until.max(Some(until));
        }
        let room = has_room(self.takeover_delay(), self.config.plan.timings.stop);
        self.lost = still_owed(self.lost, (siblings, token), self.seen_token, room);
        siblings
    }

    /// How long a lease that was just won waits: after an unclean end in another cluster, until what ran there is gone.
    /// After one in this cluster, what was declared for what is adopted.
    fn delay(&self, standing: &Standing) -> (Duration, Option<Duration>) {
        if !standing.marks.ended_uncleanly() {
            return (Duration::ZERO, None);
        }
        let held = standing.marks.held;
        let own = standing.last_holder.as_ref().is_some_and(|holder| {
            holder.token.0 == held && holder.cluster.uid() == self.config.cluster.uid()
        });
        if own || self.config.own_tokens.has(held) {
            (Duration::ZERO, standing.marks.declared_delay())
        } else {
            let plan = &self.config.plan;
            let wait = standing
                .marks
                .takeover_delay(plan.explicit_takeover_delay, plan.takeover_delay);
            (wait, None)
        }
    }

    /// How long other clusters wait at least after the end of the lease that this cluster has or had.
    fn takeover_delay(&mut self) -> Duration {
        let planned = self.config.plan.takeover_delay;
        self.delays.see(planned, self.sibling_until.is_some());
        self.delays.bound(self.seen_token, planned)
    }

    /// `candidates: Agents`: whoever holds the lock is a process of its own.
    pub(super) fn observes(&self) -> bool {
        self.config.plan.candidates == Candidates::Agents
    }

    /// The lease under which targets run, and where nobody tells of its end, when it is over.
    pub(super) fn leave(&self) -> Option<(Leave, Option<Moment>)> {
        let standing = self.config.standing.clone();
        if !self.observes() {
            return self.seen_token.map(|token| (Leave::new(standing, token), None));
        }
        let holder = standing.borrow().holder_at(clock::now()).cloned();
        let holder = holder.filter(|holder| holder.cluster.uid() == self.config.cluster.uid())?;
        let until = holder.ends;
        Some((Leave::observed(standing, holder), Some(until)))
    }

    /// Where nothing tells when another cluster begins, a target gets the time that it was declared to need, from the
    /// first try on: the grace period of its pods may be any length.
    pub(super) fn stop_bound(&mut self, by: Option<Moment>, now: Moment) -> Moment {
        by.unwrap_or_else(|| *self.stop_began.get_or_insert(now) + self.config.plan.timings.stop)
    }
}
