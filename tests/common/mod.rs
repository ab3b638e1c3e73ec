//! Helpers of the integration tests, in addition to `redlock_testkit`.
//!
//! The only `mod.rs` of the project: cargo would build `tests/common.rs` as a test binary.

// Each test binary uses a part of it. Clippy's exemptions for tests cover test functions, not these helpers.
#![allow(dead_code, unreachable_pub, unused_imports)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod cgroups;
pub mod http;
pub mod metrics;
pub mod pages;
pub mod processes;
pub mod programs;
mod resource;
pub mod sandbox;
pub mod tools;

pub use resource::{Answer, Resource};

/// Removes the variables of redlock from the environment of a process under test.
pub fn forget_variables(command: &mut std::process::Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLOCK_")) {
        command.env_remove(name);
    }
}
