//! Leader election for everything that must run once: Redlock leases on independent Redis masters.
//!
//! Imports point one way: `cli → standalone/inspect/demo/run → elector → masters → lease`. [`lease`] is pure: it decides
//! and never waits, reads no clock and draws no random number. [`masters`] talks to Redis and never sees Kubernetes.
//! `api` holds the types that users write.

pub mod agent;
pub mod api;
pub mod cli;
pub mod controller;
pub mod demo;
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
