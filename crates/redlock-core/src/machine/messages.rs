//! Defines the input and the output of the machine: events, rounds and their outcomes, actions.

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
    /// Delete a lease that was held, and publish the release. A reservation for the candidate's own cluster is deleted
    /// with it (P-52).
    Release,
    /// Delete the remains of an attempt that never led to a published lease, and publish that, since standbys wait for
    /// the end of the granted leases. Reservations stay: the cluster of a reservation has not entered yet.
    Undo,
    /// Pass the lock to a cluster.
    Reserve {
        cluster: ClusterId,
    },
}

/// The result of a round.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    Won(Won),
    NotWon(Loss),
    /// A majority granted or healed the lease in this one round.
    Renewed {
        started: BootInstant,
    },
    /// More than N - M masters refused.
    RenewalRefused,
    /// Neither won nor refused: retry.
    RenewalUndecided,
    Observed(View),
    /// The end of a release or an undo.
    Released,
    Reserved {
        majority: bool,
    },
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// The first event, and the event at the time of `SleepUntil`.
    TimerFired,
    /// A round ended; `id` is the id that it was started with.
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
    /// The first mark of the present lease was submitted. Only a renewal after it keeps the lock for the candidate's
    /// own cluster.
    Marked,
    SpecChanged(Terms),
    /// The local clock stepped: every time that was read before is invalid.
    ClockStepped,
    /// A majority of the masters is sealed for another quorum: they keep this lease no more.
    SealedForAnother,
    /// Give the lock up, and abstain from it for this time (P-67).
    StepDown {
        abstain: Duration,
    },
    /// Pass the lock on.
    HandOver {
        to: ClusterId,
        /// The token of the lease to pass on; `None` stands for the present lease.
        token: Option<FencingToken>,
    },
    /// Give the lock up for good.
    Shutdown(ReleaseMode),
}

/// The treatment of a held lease when its candidate leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum ReleaseMode {
    /// Any candidate may acquire the lock at once.
    #[default]
    Release,
    /// Only a sibling may acquire the lock: the guarded targets continue to run.
    Reserve,
    /// The lease runs out: the guarded targets may still run.
    Abandon,
}

/// The reason for the local end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Released,
    Reserved,
    Expired,
    QuorumLost,
    Refused,
    SteppedDown,
    /// The lease was given up without a release, and runs out at the masters.
    Abandoned,
    /// The local clock stepped: the end of the lease is no longer known.
    ClockStepped,
    /// A majority of the masters is sealed for another quorum.
    SealedForAnother,
}

#[derive(Clone, Debug)]
pub enum Action {
    StartRound {
        id: u64,
        round: Round,
    },
    /// Replaces the time of an earlier `SleepUntil`.
    SleepUntil(BootInstant),
    /// The lease is held, with this authority. `won` is set if the lease was just acquired, not renewed.
    PublishActive {
        authority: Authority,
        won: Option<(Won, Option<Takeover>)>,
    },
    PublishStandby {
        ended: Option<EndReason>,
        holder: Option<Holder>,
    },
    /// The answer to `Shutdown`: no lease is held and no round is under way.
    Stopped,
}

/// The end of the lease before the one that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// Whether the previous holder released its lease; otherwise the lease ran out.
    pub released: bool,
    /// The time at which this candidate received the release, or at which the lease ended by its own observation.
    pub ended_at: BootInstant,
}
