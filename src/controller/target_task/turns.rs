//! Schedules the steps of a target within the rate limit of requests to the API server. Pure.

use std::sync::Arc;

use crate::{api::lock_status::TargetState, controller::rate_limiter::RateLimiter, lease::BootInstant};

/// The purpose of a step: the turn of a start must not be used for a stop, nor vice versa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Start,
    Stop,
}

impl Lane {
    /// Returns the state that its steps lead to.
    pub(super) const fn goal(self) -> TargetState {
        match self {
            Self::Start => TargetState::Active,
            Self::Stop => TargetState::Standby,
        }
    }

    /// Returns the usual number of requests of a step.
    const fn requests(self) -> u32 {
        match self {
            Self::Start => 2,
            Self::Stop => 3,
        }
    }
}

/// The turn of one target.
pub(super) struct Turns {
    rate_limiter: Arc<RateLimiter>,
    turn: Option<(Lane, BootInstant)>,
}

impl Turns {
    pub(super) fn new(rate_limiter: Arc<RateLimiter>) -> Self {
        Self {
            rate_limiter,
            turn: None,
        }
    }

    /// Returns when the pending step may be taken.
    pub(super) fn due(&self) -> Option<BootInstant> {
        self.turn.map(|(_, at)| at)
    }

    /// Reports whether the step has to wait for its turn. Otherwise counts its requests.
    pub(super) fn wait(&mut self, lane: Lane, now: BootInstant) -> bool {
        let requests = lane.requests();
        let at = match (self.turn, lane) {
            (Some((of, at)), _) if of == lane => at,
            (_, Lane::Start) => self.rate_limiter.turn(requests, now),
            (_, Lane::Stop) => self.rate_limiter.turn_to_stop(requests, now),
        };
        let again = match lane {
            _ if at > now => Some(at),
            Lane::Start => self.rate_limiter.send(requests, now),
            Lane::Stop => self.rate_limiter.send_stop(requests, now),
        };
        self.turn = again.map(|at| (lane, at));
        self.turn.is_some()
    }

    /// Counts the requests of a step that does not wait.
    pub(super) fn count(&self, lane: Lane, now: BootInstant) {
        self.rate_limiter.count(lane.requests(), now);
    }

    /// Drops the pending turn.
    pub(super) fn forgo(&mut self) {
        self.turn = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_waits_for_its_turn_and_a_turn_is_for_one_kind_of_step() {
        let (rate_limiter, now) = (
            Arc::new(RateLimiter::new(1)),
            BootInstant::from_nanos(1_000_000_000_000),
        );
        let mut first = Turns::new(rate_limiter.clone());
        assert!(!first.wait(Lane::Start, now), "nothing was sent yet");
        let mut second = Turns::new(rate_limiter);
        assert!(second.wait(Lane::Start, now));
        let due = second.due().unwrap();
        assert!(due > now);
        assert!(second.wait(Lane::Start, now));
        assert_eq!(second.due(), Some(due), "the same turn");
        assert!(!second.wait(Lane::Stop, now), "starts do not hold up a stop");
        assert_eq!(second.due(), None);
        assert!(second.wait(Lane::Start, now));
        second.forgo();
        assert_eq!(second.due(), None);
    }
}
