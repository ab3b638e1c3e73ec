//! Tests the machine, with one test for each rule.

mod active;
mod endings;
mod standby;
mod terms;

use super::*;
use crate::{
    FencingToken, HolderIdentity, LeaseValue, Loss, Marks, Nonce, Obstacle, QuorumSize, Sighting, View, Won,
    timing,
};

pub(super) const LEASE: u64 = 15_000;

/// Boot time in the tests is far from 0, as it is in production.
const BOOT: u64 = 1_000_000;

/// Returns the time at this many milliseconds after the beginning of the test.
pub(super) fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos((BOOT + ms) * 1_000_000)
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name, name).unwrap()
}

pub(super) fn hand_over(to: &str, token: Option<u64>) -> Event {
    Event::HandOver {
        to: cluster(to),
        token: token.map(FencingToken),
    }
}

/// Returns terms with this lease, a renew deadline of 2/3 of it, and a retry period of 2 s.
pub(super) fn terms(lease: u64) -> Terms {
    Terms {
        cluster: cluster("here"),
        timings: Timings {
            lease_duration: ms(lease),
            renew_deadline: ms(lease * 2 / 3),
            retry_period: ms(2_000),
            stop: Duration::ZERO,
        },
        participation: Participation::Contend,
        ordered_delay: Duration::ZERO,
        guards: false,
        siblings_first: false,
        fenced: false,
    }
}

/// Returns a view in which the masters of a set of three show these sightings.
pub(super) fn view(sightings: &[Sighting]) -> View {
    let mut view = View::new(QuorumSize::new(3).unwrap());
    for (master, sighting) in sightings.iter().enumerate() {
        view.record(master, sighting.clone());
    }
    view
}

pub(super) fn lease_of(name: &str, nonce: u128, ends: BootInstant) -> Sighting {
    Sighting::blocked(
        Obstacle::Lease(LeaseValue {
            cluster: cluster(name),
            identity: HolderIdentity::parse("other").unwrap(),
            nonce: Nonce(nonce),
            grant: 5,
        }),
        ends,
    )
}

pub(super) fn held_until(ends: BootInstant) -> View {
    view(&[lease_of("there", 1, ends), lease_of("there", 1, ends)])
}

/// A machine and its last requests.
pub(super) struct Rig {
    pub(super) machine: Machine,
    pub(super) round: Option<(u64, Round)>,
    pub(super) wake: Option<BootInstant>,
    pub(super) actions: Vec<Action>,
}

impl Rig {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            machine: Machine::new(terms, 2),
            round: None,
            wake: None,
            actions: Vec::new(),
        }
    }

    pub(super) fn event(&mut self, now: u64, event: Event) -> &mut Self {
        self.actions = self.machine.handle(at(now), 7, event);
        for action in &self.actions {
            match action {
                Action::StartRound { id, round } => self.round = Some((*id, round.clone())),
                Action::SleepUntil(moment) => self.wake = Some(*moment),
                _ => {}
            }
        }
        self
    }

    pub(super) fn timer(&mut self, now: u64) -> &mut Self {
        self.event(now, Event::TimerFired)
    }

    /// Ends the round that was started last.
    pub(super) fn outcome(&mut self, now: u64, outcome: Outcome) -> &mut Self {
        let (id, _) = self.round.take().expect("a round is under way");
        self.event(now, Event::RoundFinished { id, outcome })
    }

    /// Wins, at `now`, an attempt that was started at `started` with this duration.
    pub(super) fn won(&mut self, started: u64, now: u64, lease: u64) -> &mut Self {
        self.outcome(now, Outcome::Won(won(started, lease)))
    }

    /// Returns a machine that has been active since 0.
    pub(super) fn active(terms: Terms) -> Self {
        let lease = u64::try_from(terms.timings.lease_duration.as_millis()).unwrap();
        let mut rig = Self::new(terms);
        rig.timer(0).won(0, 1, lease);
        rig
    }

    /// Returns a standby that waits for a lease that ends at `ends`.
    pub(super) fn standby(terms: Terms, ends: u64) -> Self {
        let mut rig = Self::new(terms);
        rig.timer(0);
        let outcome = match rig.round {
            Some((_, Round::Acquire { .. })) => Outcome::NotWon(Loss::Refused(held_until(at(ends)))),
            _ => Outcome::Observed(held_until(at(ends))),
        };
        rig.outcome(1, outcome);
        rig
    }

    pub(super) fn asked(&self) -> Option<&Round> {
        self.round.as_ref().map(|(_, round)| round)
    }

    pub(super) fn published_end(&self) -> Option<BootInstant> {
        self.actions.iter().find_map(|action| match action {
            Action::PublishActive { authority, .. } => Some(authority.valid_until),
            _ => None,
        })
    }

    pub(super) fn ended(&self) -> Option<EndReason> {
        self.actions.iter().find_map(|action| match action {
            Action::PublishStandby { ended, .. } => *ended,
            _ => None,
        })
    }

    pub(super) fn stopped(&self) -> bool {
        self.actions.iter().any(|a| matches!(a, Action::Stopped))
    }
}

pub(super) fn won(started: u64, lease: u64) -> Won {
    Won {
        succession: None,
        token: FencingToken(9),
        valid_until: at(started) + ms(lease) - timing::drift(ms(lease)),
        started: at(started),
        marks: Marks::default(),
    }
}
