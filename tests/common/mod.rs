//! What the integration tests of the program share beside `redlock_testkit`.
//!
//! The one `mod.rs` of the project: cargo would make a test binary of its own out of `tests/common.rs`.

// Each test binary uses a part of it. The lints' leave for tests covers test functions, not what they share.
#![allow(dead_code, unreachable_pub, unused_imports)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod cgroups;
pub mod http;
pub mod pages;
pub mod processes;
mod resource;
pub mod tools;

pub use resource::{Answer, Resource};

/// What is set here for redlock must not reach a process under test.
pub fn forget_variables(command: &mut std::process::Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLOCK_")) {
        command.env_remove(name);
    }
}
