//! Leader election for everything that must run once: Redlock leases on independent Redis masters.
//!
//! The decision is in `redlock-core`, which is pure and is [`lease`] here. `redlock-client` runs it against Redis and never
//! sees Kubernetes: [`masters`] and [`elector`]. This package adds Kubernetes and the commands; [`api`] holds the types that
//! users write.

pub mod agent;
pub mod api;
pub mod cli;
pub mod controller;
pub mod inspect;
pub mod operator;
pub mod run;
pub mod standalone;
mod targets;
pub mod telemetry;

pub use redlock_client::{clock, elector, masters};
pub use redlock_core as lease;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
