//! The state machine of one lock: events in, actions out.
//!
//! Decides when to acquire, renew, observe, give up and wait. It does none of that itself: the elector
//! carries out the actions and reports the results. `now` and randomness are arguments.

mod active;
mod messages;
#[cfg(feature = "planted")]
mod planted;
mod standby;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use messages::{Action, EndReason, Event, Outcome, ReleaseMode, Round, Takeover};

use super::{Authority, BootInstant, ClusterId, Timings, planted::Plant};

/// Whether this process takes part in the election of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Participation {
    Contend,
    /// `state: Frozen`: take the lock only after a candidate of the own cluster, or by a reservation for it.
    SucceedSibling,
    /// `state: SteppedDown`, or another process contends: observe the lock, never acquire it.
    Observe,
}

/// The settings of a lock that the machine needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Terms {
    pub cluster: ClusterId,
    pub timings: Timings,
    pub participation: Participation,
    /// The extra wait after the lock became free: rank in `clusterPreference` × `preferenceDelaySeconds`.
    pub ordered_delay: Duration,
    /// Whether work runs, or is marked as active, that must end when the lease is lost. A lost lease then
    /// runs out and is not deleted, even if the timings count no time for the end of the work.
    pub guards: bool,
    /// Whether a sibling of a dead holder can continue the work: candidates of other clusters wait a moment
    /// for it.
    pub siblings_first: bool,
    /// Whether agents on the nodes keep the pods of the lock from running without it. Its leases are then
    /// marked.
    pub fenced: bool,
}

impl Terms {
    /// Returns the settings of a process that contends for its own work alone. It stops the work before the lease may
    /// be deleted, so a lost lease runs out, and no sibling can continue the work.
    #[must_use]
    pub fn of_own_work(cluster: ClusterId, timings: Timings) -> Self {
        Self {
            cluster,
            timings,
            participation: Participation::Contend,
            ordered_delay: Duration::ZERO,
            guards: true,
            siblings_first: false,
            fenced: false,
        }
    }
}

/// The lease while it is held. `valid_until` is never later than the time at which another candidate could
/// acquire it.
#[derive(Clone, Copy, Debug)]
struct Held {
    authority: Authority,
    /// The renew deadline after the start of the last won round, or earlier if the lease leaves less time to
    /// stop.
    step_down_at: BootInstant,
    renew_at: BootInstant,
    /// The lease duration that the renewal under way carries.
    renewing: Option<Duration>,
    /// Whether the last renewal was undecided.
    retries: bool,
    /// Whether the renewal under way may have been written before the first mark.
    marked: bool,
}

/// Each state is left by the events named in it, and by `SpecChanged`, `ClockStepped`, `SealedForAnother`, `StepDown` and `Shutdown`.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing is under way. Left at the timer, on a release, or when the quorum is back.
    Waiting,
    /// Left by `Observed`.
    Observing,
    /// Left by `Won` or `NotWon`.
    Acquiring {
        lease_duration: Duration,
    },
    /// Left at the local end, whatever its cause.
    Active(Held),
    /// The local end has come, or an attempt was given up, and the masters are being informed. Left by `Released` or
    /// `Reserved`.
    Ending,
    Stopped,
}

/// Number of grid points in an interval. The timers of one process fire together on this grid, so that the
/// renewals and observations of all its locks share their round trips, whenever the locks were acquired.
const GRID: u32 = 16;

/// Returns the last point of the grid of `interval` that is not after `moment`.
fn on_grid(moment: BootInstant, interval: Duration) -> BootInstant {
    let step = u64::try_from((interval / GRID).as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    BootInstant::from_nanos(moment.as_nanos() / step * step)
}

/// The state machine of one lock. See the module.
#[derive(Clone, Debug)]
pub struct Machine {
    terms: Terms,
    majority: usize,
    state: State,
    round: u64,
    closing: bool,
    standby: standby::Standby,
    plant: Plant,
    #[cfg(feature = "planted")]
    planted: planted::Planted,
}

impl Machine {
    /// Creates a machine. `majority` is M. Nothing happens before the first event.
    #[must_use]
    pub fn new(terms: Terms, majority: usize) -> Self {
        Self {
            terms,
            majority,
            state: State::Waiting,
            round: 0,
            closing: false,
            standby: standby::Standby::default(),
            plant: Plant::Nothing,
            #[cfg(feature = "planted")]
            planted: planted::Planted::default(),
        }
    }

    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns the name of the present state, for logs and tests.
    #[must_use]
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            State::Waiting => "waiting",
            State::Observing => "observing",
            State::Acquiring { .. } => "acquiring",
            State::Active(Held { renewing: None, .. }) => "active",
            State::Active(_) => "renewing",
            State::Ending => "ending",
            State::Stopped => "stopped",
        }
    }

    /// Returns the authority that is held at `now`, if any.
    #[must_use]
    pub fn authority_at(&self, now: BootInstant) -> Option<Authority> {
        match self.state {
            State::Active(held) => held.authority.at(now),
            _ => None,
        }
    }

    /// Handles one event; `entropy` is a fresh random number, used for jitter.
    ///
    /// A lease that has run out is given up before anything else: after a pause, the first output is that the lease is
    /// lost.
    #[must_use]
    pub fn handle(&mut self, now: BootInstant, entropy: u64, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.end_if_over(now, &mut out);
        match event {
            Event::TimerFired => self.on_timer(now, &mut out),
            Event::RoundFinished { id, outcome } if id == self.round => {
                self.on_outcome(outcome, now, entropy, &mut out);
            }
            // The round of a lease that has ended since. The lease is being deleted, or runs out.
            Event::RoundFinished { .. } => {}
            Event::Released { master } => self.on_released(master, now, &mut out),
            Event::QuorumBack => self.on_quorum_back(now, &mut out),
            Event::Marked => self.on_marked(now, &mut out),
            Event::SpecChanged(terms) => self.on_spec(terms, now, &mut out),
            Event::ClockStepped => self.on_clock_step(now, &mut out),
            Event::SealedForAnother => self.lose(EndReason::SealedForAnother, now, &mut out),
            Event::StepDown { abstain } => {
                self.standby.abstain_until = now + abstain;
                self.end(EndReason::SteppedDown, &mut out);
            }
            Event::HandOver { to, token } => self.hand_over(to, token, &mut out),
            Event::Shutdown(release_mode) => self.on_shutdown(release_mode, &mut out),
        }
        out
    }

    fn on_timer(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        match self.state {
            State::Waiting => self.observe_or_acquire(now, out),
            State::Active(_) => self.renew_if_due(now, out),
            State::Observing | State::Acquiring { .. } | State::Ending | State::Stopped => {}
        }
    }

    fn on_outcome(&mut self, outcome: Outcome, now: BootInstant, entropy: u64, out: &mut Vec<Action>) {
        match (self.state, outcome) {
            (State::Acquiring { lease_duration }, Outcome::Won(won)) => {
                self.on_won(won, lease_duration, now, out);
            }
            (State::Acquiring { .. }, Outcome::NotWon(loss)) => self.on_loss(loss, now, entropy, out),
            (State::Observing, Outcome::Observed(view)) => self.on_view(&view, now, entropy, out),
            (State::Active(held), Outcome::Renewed { started }) => self.on_renewed(held, started, now, out),
            (State::Active(_), Outcome::RenewalRefused) => self.lose(EndReason::Refused, now, out),
            (State::Active(held), Outcome::RenewalUndecided) => self.on_undecided(held, now, out),
            (State::Ending, Outcome::Reserved { majority: false }) => self.on_not_reserved(out),
            (State::Ending, Outcome::Released | Outcome::Reserved { .. }) => self.on_ended(now, out),
            // No round of this kind is under way in this state.
            _ => {}
        }
    }

    fn on_spec(&mut self, terms: Terms, now: BootInstant, out: &mut Vec<Action>) {
        #[cfg(feature = "planted")]
        let Some(terms) = self.delayed(terms) else { return };
        let leaves = terms.participation == Participation::Observe;
        self.terms = terms;
        match &mut self.state {
            State::Active(_) if leaves => self.end(EndReason::SteppedDown, out),
            // New timings take effect at the next renewal, which starts now (P-51). A renewal under way that carries
            // another duration no longer counts. A lease that leaves no time for a longer stop is held for
            // the slack at most.
            State::Active(held) => {
                let timings = &self.terms.timings;
                let latest = timings.latest_end(held.authority.valid_until);
                held.step_down_at = held.step_down_at.min(latest.max(now + timings.slack()));
                held.renewing = held.renewing.filter(|carried| *carried == timings.lease_duration);
                held.renew_at = now;
                self.renew_if_due(now, out);
            }
            State::Waiting => self.observe_or_acquire(now, out),
            State::Observing | State::Acquiring { .. } | State::Ending | State::Stopped => {}
        }
    }

    /// No end that was computed before can be trusted: a held lease is lost, an attempt under way is ignored,
    /// and the masters are asked again (P-96). If the clocks of the masters stepped together instead, the masters
    /// forgot a lease that its holder still relies on. A candidate that is not itself the holder therefore
    /// waits for the end of the latest lease that it can have missed. A release ends this wait (P-97).
    fn on_clock_step(&mut self, now: BootInstant, out: &mut Vec<Action>) {
        let missed = match self.state {
            State::Active(_) => Duration::ZERO,
            _ => self.terms.timings.lease_duration,
        };
        self.standby.distrust_clock(now, missed);
        match self.state {
            State::Active(_) if !self.terms.guards => self.end(EndReason::ClockStepped, out),
            State::Active(_) => {
                out.push(Action::PublishStandby {
                    ended: Some(EndReason::ClockStepped),
                    holder: None,
                });
                if self.closing {
                    return self.stop(out);
                }
                self.observe(out);
            }
            State::Acquiring { .. } => self.undo(out),
            State::Waiting | State::Observing => self.observe(out),
            State::Ending | State::Stopped => {}
        }
    }

    fn on_shutdown(&mut self, release_mode: ReleaseMode, out: &mut Vec<Action>) {
        self.closing = true;
        match (self.state, release_mode) {
            (State::Active(_), ReleaseMode::Release) => self.end(EndReason::Released, out),
            (State::Active(_), ReleaseMode::Reserve) => self.hand_over(self.terms.cluster.clone(), None, out),
            (State::Active(_), ReleaseMode::Abandon) => {
                out.push(Action::PublishStandby {
                    ended: Some(EndReason::Abandoned),
                    holder: None,
                });
                self.stop(out);
            }
            // The undo travels on the connections of the grant under way, so it runs after the grant.
            (State::Acquiring { .. }, _) => self.undo(out),
            (State::Ending | State::Stopped, _) => {}
            (State::Waiting | State::Observing, _) => self.stop(out),
        }
    }

    fn stop(&mut self, out: &mut Vec<Action>) {
        self.state = State::Stopped;
        out.push(Action::Stopped);
    }

    fn start(&mut self, round: Round, out: &mut Vec<Action>) {
        self.round += 1;
        out.push(Action::StartRound {
            id: self.round,
            round,
        });
    }
}
