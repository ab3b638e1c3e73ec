//! The decision: timings, identity, votes, validity and the state machine of one lock. Pure.

pub mod identity;
pub mod timing;
