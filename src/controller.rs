//! `redlock operator` in a cluster: follows `RedisQuorum` and `LeaderLock` objects, contends for the locks, tells in
//! statuses and events who holds them.
//!
//! Observations come in ([`observe`]), are resolved ([`index::resolve`]), applied and told by one task ([`core`]). What is decided
//! is pure; whoever writes a status is decided by [`status::author`]. Never speaks to Redis itself.

mod backoff;
mod clients;
mod cluster;
mod core;
mod declared;
mod error;
mod events;
mod hand_over;
mod index;
mod jobs;
mod object;
mod observe;
mod password;
mod problem;
pub(crate) mod process;
mod rate_limiter;
mod reviews;
mod secrets;
mod sibling_answers;
mod siblings;
mod status;
mod target_task;
mod templates;
mod writer;

pub(crate) use error::OperatorError;
pub(crate) use password::NewSecret;
pub(crate) use process::{Options, run};
pub(crate) use siblings::Siblings;
