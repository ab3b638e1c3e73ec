//! Stores the state of the planted faults of the machine.

use super::{Action, EndReason, Held, Machine, Round, State, Terms};
use crate::{Authority, BootInstant, FencingToken, planted::Plant};

#[derive(Clone, Debug, Default)]
pub(super) struct Planted {
    /// Terms that take effect late.
    delayed: Option<Terms>,
    /// The token of a lease that has ended and is renewed once more.
    ended: Option<FencingToken>,
}

impl Machine {
    /// Plants a fault.
    pub fn plant(&mut self, plant: Plant) {
        self.plant = plant;
    }

    /// Returns the terms, unless they are to take effect late.
    pub(super) fn delayed(&mut self, terms: Terms) -> Option<Terms> {
        let renews = matches!(
            self.state,
            State::Active(Held {
                renewing: Some(_),
                ..
            })
        );
        if self.plant.is(Plant::TimingsTakeEffectLate) && renews {
            self.planted.delayed = Some(terms);
            return None;
        }
        self.planted.delayed = None;
        Some(terms)
    }

    pub(super) fn take_delayed(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        if let Some(terms) = self.planted.delayed.take() {
            self.on_spec(terms, now, out);
        }
    }

    pub(super) fn remember_ended(&mut self, held: &Held, reason: EndReason) {
        let late = matches!(reason, EndReason::Expired | EndReason::QuorumLost);
        if late && self.plant.is(Plant::HealAfterTheEnd) {
            self.planted.ended = Some(held.authority.token);
        }
    }

    /// Renews the lease that has ended and was released.
    pub(super) fn heals(&mut self, now: BootInstant, out: &mut Vec<Action>) -> bool {
        let Some(token) = self.planted.ended.take() else {
            return false;
        };
        let lease_duration = self.terms.timings.lease_duration;
        let valid_until = now + lease_duration;
        self.state = State::Active(Held {
            authority: Authority { token, valid_until },
            step_down_at: valid_until,
            renew_at: valid_until,
            renewing: Some(lease_duration),
            retries: false,
            marked: false,
        });
        self.start(
            Round::Renew {
                lease_duration,
                token,
            },
            out,
        );
        out.push(Action::SleepUntil(valid_until));
        true
    }
}
