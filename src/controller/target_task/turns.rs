//! Schedules the steps of a target within the rate limit of requests to the API server. Pure.

use std::{sync::Arc, time::Duration};

use crate::{
    api::lock_status::TargetState,
    controller::rate_limiter::{RateLimiter, Turn},
    lease::{BootInstant, FencingToken},
    targets::Step,
};

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

/// The time for which a target counts as running while the check of its present state waits for its turn.
const UNCHECKED: Duration = Duration::from_secs(1);

/// Whether the last step found that the target runs as declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StartConfirmation {
    #[default]
    Missing,
    /// A start under the lease with this token.
    Present(FencingToken),
    /// A further check under the same lease waits for its turn since this time.
    Awaited(FencingToken, BootInstant),
}

impl StartConfirmation {
    pub(super) const fn new(step: &Step, token: FencingToken) -> Self {
        match step {
            Step::Done | Step::Waiting(_) => Self::Present(token),
            Step::Working(_) | Step::Contested(_) | Step::Trouble(_) => Self::Missing,
        }
    }

    /// Returns for how long a check under this lease may wait for its turn before the target counts as unchecked; `None`
    /// if the target counts as unchecked now.
    pub(super) fn rests(&mut self, token: FencingToken, now: BootInstant) -> Option<Duration> {
        let since = match *self {
            Self::Present(confirmed) if confirmed == token => now,
            Self::Awaited(confirmed, since) if confirmed == token => since,
            Self::Missing | Self::Present(_) | Self::Awaited(..) => return None,
        };
        *self = Self::Awaited(token, since);
        let until = since + UNCHECKED;
        (now < until).then(|| until.left(now))
    }
}

/// A step that waits, until this time at least.
enum Pending {
    Start(Turn, BootInstant),
    Stop(BootInstant),
}

/// The turn of one target.
pub(super) struct Turns {
    rate_limiter: Arc<RateLimiter>,
    namespace: String,
    pending: Option<Pending>,
}

impl Turns {
    pub(super) fn new(rate_limiter: Arc<RateLimiter>, namespace: &str) -> Self {
        Self {
            rate_limiter,
            namespace: namespace.to_owned(),
            pending: None,
        }
    }

    /// Returns when the pending step may be taken.
    pub(super) fn due(&self) -> Option<BootInstant> {
        match &self.pending {
            Some(Pending::Start(_, at) | Pending::Stop(at)) => Some(*at),
            None => None,
        }
    }

    /// Reports whether the step has to wait for its turn. Otherwise counts its requests.
    pub(super) fn wait(&mut self, lane: Lane, now: BootInstant) -> bool {
        self.pending = match lane {
            Lane::Start => self.wait_to_start(now),
            Lane::Stop => self.wait_to_stop(now),
        };
        self.pending.is_some()
    }

    fn wait_to_start(&mut self, now: BootInstant) -> Option<Pending> {
        let mut turn = match self.pending.take() {
            Some(Pending::Start(turn, at)) if at > now => return Some(Pending::Start(turn, at)),
            Some(Pending::Start(turn, _)) => turn,
            Some(Pending::Stop(_)) | None => {
                Turn::enter(&self.rate_limiter, &self.namespace, Lane::Start.requests(), now)
            }
        };
        let again = turn.send(now)?;
        Some(Pending::Start(turn, again))
    }

    fn wait_to_stop(&mut self, now: BootInstant) -> Option<Pending> {
        let requests = Lane::Stop.requests();
        let at = match self.pending.take() {
            Some(Pending::Stop(at)) => at,
            Some(Pending::Start(..)) | None => self.rate_limiter.turn_to_stop(requests, now),
        };
        if at > now {
            return Some(Pending::Stop(at));
        }
        self.rate_limiter.send_stop(requests, now).map(Pending::Stop)
    }

    /// Counts the requests of a step that does not wait.
    pub(super) fn count(&self, lane: Lane, now: BootInstant) {
        self.rate_limiter.count(lane.requests(), now);
    }

    /// Drops the pending turn.
    pub(super) fn forgo(&mut self) {
        self.pending = None;
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
        let mut first = Turns::new(rate_limiter.clone(), "n");
        assert!(!first.wait(Lane::Start, now), "nothing was sent yet");
        let mut second = Turns::new(rate_limiter, "n");
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

    #[test]
    fn confirmed_start_counts_for_a_second_while_the_next_check_waits() {
        let at = |ms: u64| BootInstant::from_nanos(ms * 1_000_000);
        let (token, next) = (FencingToken(1), FencingToken(2));
        assert_eq!(StartConfirmation::Missing.rests(token, at(0)), None);
        let mut confirmation = StartConfirmation::new(&Step::Done, token);
        assert_eq!(confirmation.rests(next, at(100)), None, "another lease");
        assert_eq!(confirmation.rests(token, at(100)), Some(UNCHECKED));
        let left = Duration::from_millis(1);
        assert_eq!(confirmation.rests(token, at(1_099)), Some(left));
        assert_eq!(confirmation.rests(token, at(1_100)), None);
        assert_eq!(confirmation.rests(next, at(1_099)), None, "another lease");
    }
}
