//! The decision: timings, identity, votes, validity and the state machine of one lock.
//!
//! Pure. Nothing here waits, reads a clock or draws a random number: `now` and randomness are arguments, so the same
//! code runs in production, in a simulation and in a model check. Nothing here imports anything else of the crate.

pub mod attempt;
pub mod clocks;
pub mod identity;
pub mod machine;
pub mod marks;
pub mod moment;
pub mod obstacle;
pub mod slot;
pub mod timing;
pub mod token;
pub mod value;
pub mod vote;

pub use attempt::{Attempt, GrantReply, Loss, Step, Won};
pub use clocks::{Clocks, Judgement, Sample};
pub use identity::{ClusterId, HolderIdentity, LockName};
pub use machine::{
    Action, EndReason, Event, Farewell, Machine, Outcome, Participation, Round, Takeover, Terms,
};
pub use marks::{DeclaredDelay, Mark, Marks, UNDECLARED_DELAY};
pub use moment::Moment;
pub use obstacle::{Holder, Obstacle, Sighting, View};
pub use slot::{Claim, Fate, Gone, SlotRegister, SlotView, same_job};
pub use timing::Timings;
pub use token::{Authority, FencingToken};
pub use value::{LeaseStem, LeaseValue, Nonce};
pub use vote::{MAX_MASTERS, QuorumSize, Tally, Verdict, Vote};
