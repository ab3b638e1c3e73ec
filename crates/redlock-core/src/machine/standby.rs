//! While somebody else holds the lock: know when it can be free, and take it then.

use std::time::Duration;

use super::{Action, Machine, Participation, Round, State, Takeover, on_grid};
use crate::{BootInstant, ClusterId, Loss, View, obstacle::Holder};

/// A key is still alive in its last millisecond.
const LAST_MILLISECOND: Duration = Duration::from_millis(1);
/// After the first message of a release: time for the other masters' to arrive. They run the release at the same
/// time, so it is a fraction of a round trip; more would only delay a release whose other messages were lost.
const RELEASE_SPREAD: Duration = Duration::from_millis(1);
/// Who only looks is told of a release, and of no acquisition: it looks so soon after the end of a lease, then after twice
/// the time, and so on.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// Least back-off after a clash; it doubles each time, up to the retry period.
const CLASH_BACKOFF: Duration = Duration::from_millis(2);
/// After a lease that ran out, a sibling of its holder goes first: what the lease guarded runs on under it, where another
/// cluster would have it stopped, and would wait for that. More than a busy machine is late, and little beside that wait.
const SIBLINGS_FIRST: Duration = Duration::from_millis(250);

/// What a standby knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Standby {
    /// Own observed end of the lease (or reservation) that stands in the way. Only a release brings it nearer, so a
    /// clock step or FLUSHALL on the masters does not let this candidate in early.
    busy_until: BootInstant,
    /// Back-off after a clash or without a quorum.
    not_before: BootInstant,
    /// The last attempt or look found no quorum.
    no_quorum: bool,
    /// A majority of the masters came back while a round was under way that may still have missed it.
    quorum_back: bool,
    pub(super) abstain_until: BootInstant,
    clashes: u32,
    /// When the last attempt or look began.
    asked_at: BootInstant,
    holder: Option<Holder>,
    last_cluster: Option<ClusterId>,
    reserved_for_us: bool,
    /// Somebody was seen to hold it; and when a release of it was heard of.
    was_held: bool,
    released_at: Option<BootInstant>,
    /// Masters that published a release since the last look or attempt began, a bit each.
    released: u8,
}

impl Standby {
    /// The lock was won, by this candidate of `cluster`.
    pub(super) fn forget(&mut self, cluster: &ClusterId) {
        *self = Self {
            abstain_until: self.abstain_until,
            // A frozen candidate may succeed itself.
            last_cluster: Some(cluster.clone()),
            ..Self::default()
        };
    }

    /// The own lease was lost and is left to run out.
    pub(super) fn leave(&mut self, ends: BootInstant) {
        self.busy_until = self.busy_until.max(ends);
    }

    /// The local clock stepped, or those of the masters did together. The observed end of the lease stays in force, and
    /// a lease of the duration `missed` may have been renewed just before the step.
    pub(super) fn distrust_clock(&mut self, now: BootInstant, missed: Duration) {
        self.busy_until = self.busy_until.max(now + missed);
        (self.not_before, self.asked_at) = (now, now);
        (self.was_held, self.released_at) = (false, None);
    }

    /// What a lease that is won now comes after.
    pub(super) fn takeover(&self) -> Option<Takeover> {
        match self.released_at {
            Some(ended_at) => Some(Takeover {
                released: true,
                ended_at,
            }),
            None if self.was_held => Some(Takeover {
                released: false,
                ended_at: self.busy_until - LAST_MILLISECOND,
            }),
            None => None,
        }
    }
}

impl Machine {
    fn may_take(&self) -> bool {
        match self.terms.participation {
            Participation::Contend => true,
            Participation::SucceedSibling => {
                self.standby.reserved_for_us
                    || self
                        .standby
                        .last_cluster
                        .as_ref()
                        .is_some_and(|last| self.is_own(last))
            }
            Participation::Observe => false,
        }
    }

    /// The name of a cluster may change; its UID does not.
    fn is_own(&self, cluster: &ClusterId) -> bool {
        cluster.uid() == self.terms.cluster.uid()
    }

    /// When this candidate may try.
    fn due(&self) -> BootInstant {
        let siblings = if self.goes_after_siblings() {
            SIBLINGS_FIRST
        } else {
            Duration::ZERO
        };
        let ordered = match self.standby.busy_until + self.terms.ordered_delay.max(siblings) {
            // Reserved for this cluster: nobody else may enter, so there is no order to keep.
            _ if self.standby.reserved_for_us => self.standby.busy_until,
            ordered => ordered,
        };
        ordered
            .max(self.standby.not_before)
            .max(self.standby.abstain_until)
    }

    fn goes_after_siblings(&self) -> bool {
        let last = self.standby.last_cluster.as_ref();
        let elsewhere = last.is_some_and(|last| !self.is_own(last));
        self.terms.siblings_first && elsewhere && self.standby.released_at.is_none()
    }

    /// Nothing is under way: acquire if it is time, look if it is not known who holds it, else sleep.
    pub(super) fn look_or_take(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        if self.standby.busy_until == BootInstant::default() {
            // First visit. With an ordered delay, it begins now.
            self.standby.busy_until = now;
        }
        self.standby.released = 0;
        self.standby.quorum_back = false;
        self.standby.asked_at = now;
        if self.may_take() && now >= self.due() {
            let lease_duration = self.terms.timings.lease_duration;
            self.state = State::Acquiring { lease_duration };
            return self.start(Round::Acquire { lease_duration }, out);
        }
        self.observe(out);
    }

    pub(super) fn observe(&mut self, out: &mut Vec<Action>) {
        self.state = State::Observing;
        self.start(Round::Observe, out);
    }

    /// Sleeps until the lock can be free, and looks now and then: messages get lost.
    fn sleep(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        self.state = State::Waiting;
        let half = self.terms.timings.lease_duration / 2;
        let look = on_grid(now + half, half);
        let wake = if self.standby.no_quorum {
            self.standby.not_before
        } else if self.may_take() {
            self.due().min(look)
        } else {
            let ended = self.standby.busy_until;
            let soon = now + FIRST_LOOK.max(now.since(ended));
            look.min(if now < ended { ended } else { soon })
        };
        out.push(Action::SleepUntil(wake));
    }

    pub(super) fn on_loss(&mut self, loss: Loss, now: BootInstant, entropy: u64, out: &mut Vec<Action>) {
        match loss {
            Loss::Refused(view) => self.learn(&view, now, entropy, out),
            Loss::NoQuorum(_) | Loss::TooLate => self.back_off(now, entropy),
        }
        if !self.heed_release(now, out) {
            self.sleep(now, out);
        }
    }

    pub(super) fn on_view(&mut self, view: &View, now: BootInstant, entropy: u64, out: &mut Vec<Action>) {
        self.learn(view, now, entropy, out);
        // Only a look tells: a grant of a reserved lock does not say that it was.
        if view.decided() {
            self.standby.reserved_for_us = view.reserved_for_us();
        }
        if self.heed_release(now, out) {
            return;
        }
        if self.may_take() && !self.standby.no_quorum && now >= self.due() {
            return self.look_or_take(now, out);
        }
        self.sleep(now, out);
    }

    /// A release was heard while the round that has just ended was under way: its masters may have answered before
    /// they ran it. Looks again, or tries, once the others have had their time; true if so.
    fn heed_release(&mut self, now: BootInstant, out: &mut Vec<Action>) -> bool {
        if self.standby.released == 0 {
            return false;
        }
        let again = now + RELEASE_SPREAD;
        self.standby.released_at.get_or_insert(now);
        self.standby.busy_until = self.standby.busy_until.min(again);
        if self.standby.no_quorum {
            self.standby.no_quorum = false;
            self.standby.not_before = again;
        }
        self.state = State::Waiting;
        out.push(Action::SleepUntil(again));
        true
    }

    fn learn(&mut self, view: &View, now: BootInstant, entropy: u64, out: &mut Vec<Action>) {
        let Some(free_at) = view.free_at() else {
            return self.back_off(now, entropy);
        };
        self.standby.no_quorum = false;
        if view.blocked() {
            self.standby.reserved_for_us = false;
            self.standby.clashes = 0;
            self.standby.was_held = true;
            self.standby.released_at = None;
            let ends = if free_at == BootInstant::NEVER {
                // A key without an expiry tells nothing of an end, and must not keep this candidate out once it is
                // gone: look again.
                now + self.terms.timings.lease_duration / 2
            } else {
                free_at + LAST_MILLISECOND
            };
            self.standby.busy_until = self.standby.busy_until.max(ends);
        } else if !view.free() {
            self.clash(now, entropy);
        }
        let holder = view.holder();
        if let Some(holder) = &holder {
            self.standby.last_cluster = Some(holder.cluster.clone());
        }
        // A split, which one late answer may make of a lease that a bare majority has, says nothing of who holds it: whoever
        // was seen last is good until the end.
        let tells = holder.is_some() || view.free() || view.blocked();
        if tells && holder != self.standby.holder {
            self.standby.holder.clone_from(&holder);
            out.push(Action::PublishStandby { ended: None, holder });
        }
    }

    /// Several candidates split the masters: try again after a random delay.
    fn clash(&mut self, now: BootInstant, entropy: u64) {
        // Spread over less than an attempt takes, they would only meet again.
        let first = CLASH_BACKOFF.max(now.since(self.standby.asked_at));
        let ceiling = first
            .saturating_mul(1 << self.standby.clashes.min(10))
            .min(self.terms.timings.retry_period);
        self.standby.clashes = self.standby.clashes.saturating_add(1);
        self.standby.not_before = now + LAST_MILLISECOND + random(ceiling, entropy);
    }

    /// No majority answered: again after the retry period, give or take a quarter.
    fn back_off(&mut self, now: BootInstant, entropy: u64) {
        let period = self.terms.timings.retry_period;
        self.standby.no_quorum = true;
        // What is won after an outage was not taken over: the time would be the outage's.
        (self.standby.was_held, self.standby.released_at) = (false, None);
        if std::mem::take(&mut self.standby.quorum_back) {
            self.standby.not_before = now;
            return;
        }
        self.standby.not_before = now + period * 3 / 4 + random(period / 2, entropy);
    }

    pub(super) fn on_released(&mut self, master: usize, now: BootInstant, out: &mut Vec<Action>) {
        let first = self.standby.released == 0;
        self.standby.released |= 1_u8
            .checked_shl(u32::try_from(master).unwrap_or(u32::MAX))
            .unwrap_or(0);
        // While a round is under way, its end comes first: see `heed_release`.
        if !matches!(self.state, State::Waiting) {
            return;
        }
        if first {
            self.standby.released_at = Some(now);
        }
        let all = self.standby.released.count_ones() as usize >= self.majority;
        let free = if all { now } else { now + RELEASE_SPREAD };
        self.standby.busy_until = self.standby.busy_until.min(free);
        // It was held, so there is nobody to clash with from before, and the masters can be heard.
        self.standby.not_before = self.standby.not_before.min(free);
        self.standby.clashes = 0;
        self.standby.no_quorum = false;
        if all {
            // Looks if it may not take it yet: it may be reserved for this cluster.
            self.look_or_take(now, out);
        } else {
            out.push(Action::SleepUntil(free));
        }
    }

    pub(super) fn on_quorum_back(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        match self.state {
            State::Waiting if self.standby.no_quorum => {
                self.standby.no_quorum = false;
                self.standby.not_before = now;
                self.look_or_take(now, out);
            }
            State::Observing | State::Acquiring { .. } => self.standby.quorum_back = true,
            // A renewal that failed meanwhile need not wait for the retry period.
            State::Active(held) if held.retries => self.renew_now(now, out),
            State::Waiting | State::Active(_) | State::Ending | State::Stopped => {}
        }
    }
}

/// Uniform below `ceiling`.
fn random(ceiling: Duration, entropy: u64) -> Duration {
    let ceiling = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(entropy % ceiling)
}
