//! Runs `redlock operator` in a cluster: follows `RedisQuorum` and `LeaderLock` objects, contends for the locks, and
//! reports the holders in statuses and events.
//!
//! Watches deliver observations ([`observe`]); one task ([`core`]) applies them to the index, which resolves them
//! ([`index::resolve`]), and performs the effects. All decisions are pure; [`status::author`] decides which replica
//! writes a status. This module never talks to Redis itself.

mod backoff;
pub(crate) mod clients;
pub(crate) mod cluster;
mod coordination;
mod core;
mod declared;
mod error;
pub(crate) mod events;
mod hand_over;
mod index;
mod jobs;
mod node_guards;
mod object;
mod observe;
mod password;
mod planted;
mod problem;
pub(crate) mod process;
pub(crate) mod rate_limiter;
mod reviews;
mod secrets;
mod sibling_answers;
mod siblings;
mod status;
mod target_task;
mod templates;
#[cfg(test)]
mod world;
mod writer;

pub(crate) use error::{ConfigurationError, OperatorError};
pub(crate) use password::NewSecret;
pub(crate) use process::{Options, run};
pub(crate) use siblings::Siblings;
