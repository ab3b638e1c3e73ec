//! Handles a held lock: renews in time, and ends before another candidate can acquire it.

use std::time::Duration;

use super::{Action, EndReason, Held, Machine, Participation, Round, State, on_grid};
use crate::{Authority, BootInstant, ClusterId, FencingToken, Won, planted::Plant, timing};

impl Machine {
    /// Handles a win; `lease_duration` is the duration that the attempt carried.
    pub(super) fn on_won(
        &mut self,
        won: Won,
        lease_duration: Duration,
        now: BootInstant,
        out: &mut Vec<Action>,
    ) {
        let authority = Authority {
            token: won.token,
            valid_until: won.valid_until + self.planted_drift(lease_duration),
        };
        let held = self.held(authority, won.started, lease_duration);
        let takeover = self.standby.takeover();
        self.standby.forget(&self.terms.cluster);
        let unwanted = self.terms.participation == Participation::Observe || now < self.standby.abstain_until;
        // A lease that ended before the attempt did is not held (P-36).
        if unwanted || now >= held.end() {
            return self.undo(out);
        }
        self.state = State::Active(held);
        out.push(Action::PublishActive {
            authority,
            won: Some((won, takeover)),
        });
        self.renew_if_due(now, out);
    }

    /// Returns a lease by its last won round: it is renewed on the grid after the interval (P-43), and given up at the
    /// renew deadline, or earlier where only the time to stop and the slack are left (P-49).
    fn held(&self, authority: Authority, started: BootInstant, lease_duration: Duration) -> Held {
        let timings = &self.terms.timings;
        let interval = timings.renew_interval();
        Held {
            authority,
            step_down_at: timings
                .latest_end(authority.valid_until)
                .min(started + timings.renew_deadline),
            renew_at: if lease_duration == timings.lease_duration {
                on_grid(started + interval, interval)
            } else {
                // The terms changed during the attempt: this lease may end before the new interval does.
                started
            },
            renewing: None,
            retries: false,
            marked: false,
        }
    }

    /// Renews after the first mark, and after a renewal under way: only then the lock is kept for the cluster (P-112).
    pub(super) fn on_marked(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        if let State::Active(held) = &mut self.state {
            held.marked = held.renewing.is_some();
            self.renew_now(now, out);
        }
    }

    pub(super) fn renew_now(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        if let State::Active(held) = &mut self.state {
            held.renew_at = now;
            self.renew_if_due(now, out);
        }
    }

    /// Handles a won renewal. The new end counts from the start of the round, not from its end (P-30, P-44). A round
    /// that started before the end of the lease but was won after it changes nothing: `handle` has ended the lease
    /// (P-42).
    pub(super) fn on_renewed(
        &mut self,
        held: Held,
        started: BootInstant,
        now: BootInstant,
        out: &mut Vec<Action>,
    ) {
        let lease = held.renewing.unwrap_or(self.terms.timings.lease_duration);
        let valid_until = started + lease - timing::drift(lease) + self.planted_drift(lease);
        let authority = Authority {
            valid_until,
            ..held.authority
        };
        let mut next = self.held(authority, started, lease);
        if held.marked {
            next.renew_at = now;
        }
        self.state = State::Active(next);
        out.push(Action::PublishActive { authority, won: None });
        self.renew_if_due(now, out);
        #[cfg(feature = "planted")]
        self.take_delayed(now, out);
    }

    fn planted_drift(&self, lease: Duration) -> Duration {
        if self.plant.is(Plant::NoDrift) {
            timing::drift(lease)
        } else {
            Duration::ZERO
        }
    }

    /// Retries until the renew deadline. A failed renewal deletes nothing and moves nothing (P-48).
    pub(super) fn on_undecided(&mut self, held: Held, now: BootInstant, out: &mut Vec<Action>) {
        let held = Held {
            renew_at: now + self.terms.timings.retry_period,
            renewing: None,
            retries: true,
            ..held
        };
        self.state = State::Active(held);
        out.push(Action::SleepUntil(held.next()));
    }

    pub(super) fn renew_if_due(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        let State::Active(mut held) = self.state else {
            return;
        };
        if held.renewing.is_none() && now >= held.renew_at {
            let lease_duration = self.terms.timings.lease_duration;
            // Later renewals extend the keys by the shorter duration alone, so the authority is shortened first (P-51).
            let cut = now + lease_duration - timing::drift(lease_duration);
            if cut < held.authority.valid_until {
                held.authority.valid_until = cut;
                out.push(Action::PublishActive {
                    authority: held.authority,
                    won: None,
                });
            }
            // A shorter renew deadline must not wait for the renewal to be won, either.
            held.step_down_at = held.step_down_at.min(now + self.terms.timings.renew_deadline);
            held.renewing = Some(lease_duration);
            self.start(
                Round::Renew {
                    lease_duration,
                    token: held.authority.token,
                },
                out,
            );
        }
        self.state = State::Active(held);
        out.push(Action::SleepUntil(held.next()));
    }

    /// Gives up a lease that ran out, or was not renewed by the renew deadline.
    pub(super) fn end_if_over(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        let State::Active(held) = self.state else { return };
        if now >= held.authority.valid_until {
            self.end(EndReason::Expired, out);
        } else if now >= held.step_down_at {
            self.lose(EndReason::QuorumLost, now, out);
        }
    }

    /// Handles the local end of a lease that was not given up. If it guards targets, they have not stopped yet, so the
    /// lease is left to run out: deleting it would let another cluster start next to them (P-50).
    pub(super) fn lose(&mut self, reason: EndReason, now: BootInstant, out: &mut Vec<Action>) {
        if !self.terms.guards {
            return self.end(reason, out);
        }
        let State::Active(held) = self.state else { return };
        out.push(Action::PublishStandby {
            ended: Some(reason),
            holder: None,
        });
        self.standby.leave(held.authority.valid_until);
        if self.closing {
            return self.stop(out);
        }
        self.observe_or_acquire(now, out);
    }

    /// Publishes the local end, before the first byte of the release. From this point, no renewal and no heal
    /// of this lease is sent (P-46): the lock is acquired again, with a new token (P-42).
    pub(super) fn end(&mut self, reason: EndReason, out: &mut Vec<Action>) {
        if let State::Active(_held) = self.state {
            #[cfg(feature = "planted")]
            self.remember_ended(&_held, reason);
            out.push(Action::PublishStandby {
                ended: Some(reason),
                holder: None,
            });
            self.state = State::Ending;
            self.start(Round::Release, out);
        }
    }

    /// Gives up an attempt, won or not: its lease was never published, so there is no local end (P-37).
    pub(super) fn undo(&mut self, out: &mut Vec<Action>) {
        self.state = State::Ending;
        let round = if self.plant.is(Plant::AttemptReleased) {
            Round::Release
        } else {
            Round::Undo
        };
        self.start(round, out);
    }

    /// Ends the present lease, or only the one with this token (P-59), before the reserve is sent (P-55).
    pub(super) fn hand_over(
        &mut self,
        cluster: ClusterId,
        token: Option<FencingToken>,
        out: &mut Vec<Action>,
    ) {
        if let State::Active(held) = self.state
            && token.is_none_or(|token| token == held.authority.token)
        {
            if !self.plant.is(Plant::ReserveBeforeTheEnd) {
                out.push(Action::PublishStandby {
                    ended: Some(EndReason::Reserved),
                    holder: None,
                });
            }
            self.state = State::Ending;
            self.start(Round::Reserve { cluster }, out);
        }
    }

    /// Handles a reserve that reached only a minority: the leases on the other masters would block every
    /// candidate, so they are released. If work still runs, leases and reservations may run out instead (P-56).
    pub(super) fn on_not_reserved(&mut self, out: &mut Vec<Action>) {
        if self.closing && self.terms.guards {
            return self.stop(out);
        }
        self.start(Round::Release, out);
    }

    pub(super) fn on_ended(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        if self.closing {
            return self.stop(out);
        }
        #[cfg(feature = "planted")]
        if self.heals(now, out) {
            return;
        }
        self.state = State::Waiting;
        self.observe_or_acquire(now, out);
    }
}

impl Held {
    fn end(&self) -> BootInstant {
        self.step_down_at.min(self.authority.valid_until)
    }

    fn next(&self) -> BootInstant {
        if self.renewing.is_some() {
            self.end()
        } else {
            self.end().min(self.renew_at)
        }
    }
}
