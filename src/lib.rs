//! Leader election for everything that must run once: Redlock leases on independent Redis masters.
//!
//! The decisions are made in `redlock-core`, which is pure and is [`lease`] here. `redlock-client` runs it
//! against Redis and does not know Kubernetes: [`masters`] and [`elector`]. This package adds Kubernetes and
//! the commands; [`api`] contains the types that users write.

mod agent;
pub mod api;
pub mod cli;
mod controller;
mod http_server;
pub mod inspect;
mod node_agent;
mod operator;
mod run;
mod standalone;
mod targets;
mod telemetry;

pub use redlock_client::{clock, elector, masters, transport};
pub use redlock_core as lease;
