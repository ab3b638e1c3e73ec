//! The input and the output of the machine: events, rounds and their outcomes, actions.

use std::time::Duration;

use super::{
    super::{Authority, BootInstant, ClusterId, FencingToken, Loss, View, Won, obstacle::Holder},
    Terms,
};

/// One parallel exchange with all masters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// A whole attempt: grant, confirm if needed, undo if lost; with a fresh nonce.
    Acquire {
        lease_duration: Duration,
    },
    Renew {
        lease_duration: Duration,
        token: FencingToken,
    },
    Observe,
    /// Delete a lease that was held, and publish the release. A reservation for the own cluster goes with it.
    Release,
    /// Delete what an attempt may have left that never led to a published lease, and publish that, since standbys wait
    /// for the end of what was granted. Reservations stay: the cluster that one is for has not entered yet.
    Undo,
    /// Pass the lock to a cluster.
    Reserve {
        cluster: ClusterId,
    },
}

/// How a round ended.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    Won(Won),
    NotWon(Loss),
    /// A majority granted or healed in this one round.
    Renewed {
        started: BootInstant,
    },
    /// More than N - M masters refused.
    RenewalRefused,
    /// Neither: try again.
    RenewalUndecided,
    Observed(View),
    /// Of a release or an undo.
    Released,
    Reserved {
        majority: bool,
    },
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// The first event, and whenever the time of `SleepUntil` has come.
    TimerFired,
    /// A round ended; `id` is the one that it was started with.
    RoundFinished {
        id: u64,
        outcome: Outcome,
    },
    /// This master published that the lock was released.
    Released {
        master: usize,
    },
    /// A majority of the masters can be asked again.
    QuorumBack,
    SpecChanged(Terms),
    /// The local clock stepped: every moment that was read before is worth nothing.
    ClockStepped,
    /// Give the lock up, and do not take it for so long.
    StepDown {
        abstain: Duration,
    },
    /// Pass the lock on.
    HandOver {
        to: ClusterId,
        /// Only the lease with this token; the present one, whichever it is, without.
        token: Option<FencingToken>,
    },
    /// Give the lock up for good.
    Shutdown(ReleaseMode),
}

/// What becomes of a lease that is held when its candidate leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum ReleaseMode {
    /// Anybody may take it at once.
    #[default]
    Release,
    /// Only a sibling may take it: what it guards runs on meanwhile.
    Reserve,
    /// It runs out: what it guards may still run.
    Abandon,
}

/// Why a lease came to its local end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Released,
    Reserved,
    Expired,
    QuorumLost,
    Refused,
    SteppedDown,
    /// The local clock stepped: when the lease ends cannot be told any more.
    ClockStepped,
}

#[derive(Clone, Debug)]
pub enum Action {
    StartRound {
        id: u64,
        round: Round,
    },
    /// Replaces the moment of an earlier one.
    SleepUntil(BootInstant),
    /// Held now, and until when. `won` when it was just acquired, not renewed.
    PublishActive {
        authority: Authority,
        won: Option<(Won, Option<Takeover>)>,
    },
    PublishStandby {
        ended: Option<EndReason>,
        holder: Option<Holder>,
    },
    /// The answer to `Shutdown`: nothing is held, nothing is under way.
    Stopped,
}

/// What the lease that was won came after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The holder before gave it back; otherwise its lease ran out.
    pub released: bool,
    /// When this candidate heard of the release, or when the lease ended by its own observation.
    pub ended_at: BootInstant,
}
