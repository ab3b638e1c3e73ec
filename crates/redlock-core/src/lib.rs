//! The lease protocol: timings, identity, votes, validity, the state machine of one lock, and the engine of one quorum.
//!
//! Pure. Nothing here waits, reads a clock or draws a random number: `now` and randomness are arguments, so the same
//! code runs in production, in a simulation and in a replay of a recorded trace.

pub mod attempt;
pub mod boot_instant;
pub mod clocks;
pub mod command;
pub mod eligibility;
pub mod engine;
pub mod facts;
pub mod fence;
pub mod fingerprint;
pub mod identity;
pub mod keys;
pub mod lease_attempt;
pub mod machine;
pub mod marks;
pub mod observed_ends;
pub mod obstacle;
pub mod planted;
pub mod plausible;
pub mod quorum_id;
pub mod reply;
mod round;
pub mod script;
pub mod seal;
pub mod server;
pub mod slot;
pub mod timing;
pub mod token;
#[cfg(feature = "trace")]
pub mod trace;
pub mod unknown;
pub mod value;
pub mod vote;

pub use attempt::{Attempt, GrantReply, Loss, Step, Won};
pub use boot_instant::BootInstant;
pub use clocks::{Clocks, Judgement, Sample};
pub use command::{Admission, Command, Completion, Operation, Request, RequestId};
pub use eligibility::Ineligible;
pub use engine::{Config, ConnectionId, Engine, Input, Output, Transmit, TransmitId};
pub use facts::MasterFacts;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use identity::{ClusterId, HolderIdentity, LockName};
pub use keys::{Keyspace, LockKeys};
pub use lease_attempt::LeaseAttempt;
pub use machine::{
    Action, EndReason, Event, Machine, Outcome, Participation, ReleaseMode, Round, Takeover, Terms,
};
pub use marks::{DeclaredDelay, DelaySource, Mark, Marks, TakeoverDelay, UNDECLARED_DELAY};
pub use observed_ends::ObservedEnds;
pub use obstacle::{EndIs, Holder, Obstacle, Sighting, View};
pub use quorum_id::{Identity, QuorumId};
pub use reply::{Answer, Reply};
pub use server::{Refusal, Server};
pub use slot::{Claim, Fate, Gone, NO_JOB, SlotRegister, SlotView, same_job};
pub use timing::Timings;
pub use token::{Authority, FencingToken};
pub use unknown::Unknown;
pub use value::{LeaseStem, LeaseValue, Nonce};
pub use vote::{MAX_MASTERS, QuorumSize, Tally, Verdict, Vote};
