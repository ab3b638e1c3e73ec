//! Handles a lock that another candidate holds: determines when it can be free, and acquires it then.

use std::time::Duration;

use super::{Action, Machine, Participation, Round, State, Takeover, on_grid};
use crate::{
    BootInstant, ClusterId, Loss, View,
    obstacle::{Holder, LAST_MILLISECOND},
};

/// The wait after the first message of a release, for the messages of the other masters. They run the release at the
/// same time, so a fraction of a round trip is enough; a longer wait would only delay a release whose other messages
/// were lost.
const RELEASE_SPREAD: Duration = Duration::from_millis(1);
/// The first wait after the end of a lease for a candidate that only observes; each further wait is twice as long.
/// Releases are published, but acquisitions are not.
const FIRST_WAIT: Duration = Duration::from_millis(5);
/// The wait after a view that misses a master and rests on an end that is late beside another one. The masters may all be
/// about to lose the lease, and from then on none shows its end.
const MISSED_END: Duration = Duration::from_millis(250);
/// The least back-off after a clash; it doubles each time, up to the retry period.
const CLASH_BACKOFF: Duration = Duration::from_millis(2);
/// The head start of a sibling after a lease that ran out: the guarded targets continue under a sibling, whereas
/// another cluster would have to wait until they are stopped (P-66). Longer than the delays of a busy machine, and
/// short compared with that wait.
const SIBLINGS_FIRST: Duration = Duration::from_millis(250);

/// The end of the lease or reservation that was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Until(BootInstant),
    /// The masters showed more time than any key can have. Then a majority that is free is believed.
    AtMostUntil(BootInstant),
}

impl Default for Busy {
    fn default() -> Self {
        Self::Until(BootInstant::default())
    }
}

impl Busy {
    const fn end(self) -> BootInstant {
        match self {
            Self::Until(end) | Self::AtMostUntil(end) => end,
        }
    }
}

/// The knowledge of a standby.
#[derive(Clone, Debug, Default)]
pub(super) struct Standby {
    /// The end of the blocking lease (or reservation), as this candidate observed it last. Masters that show no lease do
    /// not move it earlier, so FLUSHALL does not let this candidate in early; a release does (P-62).
    busy: Busy,
    /// The end of the wait after a step of the local clock, or of the masters' clocks together. A release ends it, too.
    stepped_until: BootInstant,
    /// Whether a master that did not answer may show a nearer end.
    misses_end: bool,
    /// The end of the back-off after a clash or without a quorum.
    not_before: BootInstant,
    /// Whether the last attempt or observation found no quorum.
    no_quorum: bool,
    /// Whether a majority of the masters came back while a round was under way that may still have missed it.
    quorum_back: bool,
    pub(super) abstain_until: BootInstant,
    clashes: u32,
    /// The start of the last attempt or observation.
    asked_at: BootInstant,
    holder: Option<Holder>,
    last_cluster: Option<ClusterId>,
    reserved_for_us: bool,
    /// Whether another candidate was seen to hold the lock. `released_at` is the time at which its release
    /// was received.
    was_held: bool,
    released_at: Option<BootInstant>,
    /// The masters that published a release since the last observation or attempt began, one bit each.
    released: u8,
}

impl Standby {
    /// Resets the knowledge after a win of the lock by this candidate of `cluster`.
    pub(super) fn forget(&mut self, cluster: &ClusterId) {
        *self = Self {
            abstain_until: self.abstain_until,
            // A frozen candidate may succeed itself.
            last_cluster: Some(cluster.clone()),
            ..Self::default()
        };
    }

    /// Records that the lease of this candidate was lost and is left to run out.
    pub(super) fn leave(&mut self, ends: BootInstant) {
        self.busy = Busy::Until(self.busy_until().max(ends));
    }

    /// Returns the end of what this candidate waits for.
    fn busy_until(&self) -> BootInstant {
        self.busy.end().max(self.stepped_until)
    }

    /// Records that the lock may be free at this time.
    fn free_by(&mut self, at: BootInstant) {
        self.busy = Busy::Until(self.busy.end().min(at));
        self.stepped_until = self.stepped_until.min(at);
    }

    /// Handles a step of the local clock, or a common step of the masters' clocks. The observed end of the lease stays
    /// in force unless no lease can have it, and a lease of the duration `missed` may have been renewed just before the
    /// step (P-97).
    pub(super) fn distrust_clock(&mut self, now: BootInstant, missed: Duration) {
        self.stepped_until = now + missed;
        if let Busy::AtMostUntil(_) = self.busy {
            self.busy = Busy::Until(now);
        }
        (self.not_before, self.asked_at) = (now, now);
        (self.was_held, self.released_at) = (false, None);
    }

    /// Returns the end of the lease that a win now would follow.
    pub(super) fn takeover(&self) -> Option<Takeover> {
        match self.released_at {
            Some(ended_at) => Some(Takeover {
                released: true,
                ended_at,
            }),
            None if self.was_held => Some(Takeover {
                released: false,
                ended_at: self.busy_until() - LAST_MILLISECOND,
            }),
            None => None,
        }
    }
}

impl Machine {
    /// Reports whether this candidate may hold the lock next. A frozen one succeeds a sibling, or enters by a
    /// reservation (P-67).
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

    /// Compares UIDs, because the name of a cluster may change (P-16).
    fn is_own(&self, cluster: &ClusterId) -> bool {
        cluster.uid() == self.terms.cluster.uid()
    }

    /// Returns the time from which this candidate may try: after its place in the order, and after siblings (P-66).
    fn due(&self) -> BootInstant {
        let siblings = if self.goes_after_siblings() {
            SIBLINGS_FIRST
        } else {
            Duration::ZERO
        };
        let busy_until = self.standby.busy_until();
        let ordered = match busy_until + self.terms.ordered_delay.max(siblings) {
            // Reserved for this cluster: no other cluster may enter, so there is no order to keep.
            _ if self.standby.reserved_for_us => busy_until,
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

    /// Acquires the lock if the candidate may do so now, and observes it otherwise. No round is under way.
    pub(super) fn observe_or_acquire(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        if self.standby.busy == Busy::default() {
            // This is the first call. An ordered delay begins now.
            self.standby.busy = Busy::Until(now);
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

    /// Sleeps until the lock can be free, and observes periodically, since messages can get lost (P-64).
    fn sleep(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        self.state = State::Waiting;
        let half = self.terms.timings.lease_duration / 2;
        let periodic = if self.standby.misses_end {
            on_grid(now + MISSED_END, MISSED_END)
        } else {
            on_grid(now + half, half)
        };
        let wake = if self.standby.no_quorum {
            self.standby.not_before
        } else if self.may_take() {
            self.due().min(periodic)
        } else {
            let ended = self.standby.busy_until();
            let soon = now + FIRST_WAIT.max(now.since(ended));
            periodic.min(if now < ended { ended } else { soon })
        };
        out.push(Action::SleepUntil(wake));
    }

    pub(super) fn on_loss(&mut self, loss: Loss, now: BootInstant, entropy: u64, out: &mut Vec<Action>) {
        match loss {
            Loss::Refused(view) => self.learn(&view, now, entropy, out),
            Loss::NoQuorum(_) | Loss::TooLate => self.back_off(now, entropy),
        }
        if !self.follow_release(now, out) {
            self.sleep(now, out);
        }
    }

    pub(super) fn on_view(&mut self, view: &View, now: BootInstant, entropy: u64, out: &mut Vec<Action>) {
        self.learn(view, now, entropy, out);
        // Only an observation shows this: a grant of a reserved lock does not show the reservation.
        if view.decided() {
            self.standby.reserved_for_us = view.reserved_for_us();
        }
        if self.follow_release(now, out) {
            return;
        }
        if self.may_take() && !self.standby.no_quorum && now >= self.due() {
            return self.observe_or_acquire(now, out);
        }
        self.sleep(now, out);
    }

    /// Handles a release that was received during the round that has just ended: the masters may have answered before
    /// they ran it (P-63). Tries again once the other masters' messages have had time to arrive; returns whether it
    /// does so.
    fn follow_release(&mut self, now: BootInstant, out: &mut Vec<Action>) -> bool {
        if self.standby.released == 0 {
            return false;
        }
        let again = now + RELEASE_SPREAD;
        self.standby.released_at.get_or_insert(now);
        self.standby.free_by(again);
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
        self.standby.misses_end = view.misses_end();
        if view.blocked() {
            self.standby.reserved_for_us = false;
            self.standby.clashes = 0;
            self.standby.was_held = true;
            self.standby.released_at = None;
            self.standby.busy = self.busy_by(view, free_at, now);
        } else if !view.free() {
            self.clash(now, entropy);
        } else if let Busy::AtMostUntil(_) = self.standby.busy {
            self.standby.busy = Busy::Until(now);
        }
        let holder = view.holder();
        if let Some(holder) = &holder {
            self.standby.last_cluster = Some(holder.cluster.clone());
        }
        // A split does not show the holder, and one late answer may turn a lease on a bare majority into a split. The
        // last seen holder stays until the end of its lease.
        let conclusive = holder.is_some() || view.free() || view.blocked();
        if conclusive && holder != self.standby.holder {
            self.standby.holder.clone_from(&holder);
            out.push(Action::PublishStandby { ended: None, holder });
        }
    }

    /// Returns the end of the lease or reservation that a majority shows.
    fn busy_by(&self, view: &View, free_at: BootInstant, now: BootInstant) -> Busy {
        let ends = free_at + LAST_MILLISECOND;
        match self.standby.busy {
            // A key without an expiry has no known end, and must not block this candidate once it is deleted (P-65):
            // observe again.
            _ if free_at == BootInstant::NEVER => Busy::Until(now + self.terms.timings.lease_duration / 2),
            // Each view bounds the end anew: the first bound must be reached, and the attempt then shortens the key.
            Busy::AtMostUntil(before) if view.is_bounded() && now < before => {
                Busy::AtMostUntil(before.min(ends))
            }
            Busy::AtMostUntil(_) | Busy::Until(_) if view.is_bounded() => Busy::AtMostUntil(ends),
            Busy::AtMostUntil(_) | Busy::Until(_) => Busy::Until(ends),
        }
    }

    /// Handles a clash, in which several candidates split the masters: retries after a random delay (P-38).
    fn clash(&mut self, now: BootInstant, entropy: u64) {
        // If the delays spread over less time than an attempt takes, the candidates would clash again.
        let first = CLASH_BACKOFF.max(now.since(self.standby.asked_at));
        let ceiling = first
            .saturating_mul(1 << self.standby.clashes.min(10))
            .min(self.terms.timings.retry_period);
        self.standby.clashes = self.standby.clashes.saturating_add(1);
        self.standby.not_before = now + LAST_MILLISECOND + random(ceiling, entropy);
    }

    /// Handles a round without a majority: retries after the retry period, plus or minus a quarter (P-38).
    fn back_off(&mut self, now: BootInstant, entropy: u64) {
        let period = self.terms.timings.retry_period;
        (self.standby.no_quorum, self.standby.misses_end) = (true, false);
        // A win after an outage does not count as a takeover: its duration would be that of the outage.
        (self.standby.was_held, self.standby.released_at) = (false, None);
        if std::mem::take(&mut self.standby.quorum_back) {
            self.standby.not_before = now;
            return;
        }
        self.standby.not_before = now + period * 3 / 4 + random(period / 2, entropy);
    }

    /// Handles the message of a release: a majority of the masters wakes this candidate at once, fewer wake it after a
    /// moment, and each message ends the back-off (P-63).
    pub(super) fn on_released(&mut self, master: usize, now: BootInstant, out: &mut Vec<Action>) {
        let first = self.standby.released == 0;
        self.standby.released |= 1_u8
            .checked_shl(u32::try_from(master).unwrap_or(u32::MAX))
            .unwrap_or(0);
        // While a round is under way, its end comes first: see `follow_release`.
        if !matches!(self.state, State::Waiting) {
            return;
        }
        if first {
            self.standby.released_at = Some(now);
        }
        let all = self.standby.released.count_ones() as usize >= self.majority;
        let free = if all { now } else { now + RELEASE_SPREAD };
        self.standby.free_by(free);
        // The lock was held, so no earlier clash is pending, and the masters can be reached.
        self.standby.not_before = self.standby.not_before.min(free);
        self.standby.clashes = 0;
        self.standby.no_quorum = false;
        if all {
            // A candidate that may not acquire the lock yet observes it: the lock may be reserved for its
            // cluster.
            self.observe_or_acquire(now, out);
        } else {
            out.push(Action::SleepUntil(free));
        }
    }

    pub(super) fn on_quorum_back(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        match self.state {
            State::Waiting if self.standby.no_quorum => {
                self.standby.no_quorum = false;
                self.standby.not_before = now;
                self.observe_or_acquire(now, out);
            }
            State::Observing | State::Acquiring { .. } => self.standby.quorum_back = true,
            // A renewal that failed in the meantime need not wait for the retry period.
            State::Active(held) if held.retries => self.renew_now(now, out),
            State::Waiting | State::Active(_) | State::Ending | State::Stopped => {}
        }
    }
}

/// Returns a uniform duration below `ceiling`.
fn random(ceiling: Duration, entropy: u64) -> Duration {
    let ceiling = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(entropy % ceiling)
}
