//! Tests `redlock demo` as users and programs run it.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "demo/leftovers.rs"]
mod leftovers;
#[path = "demo/runs.rs"]
mod runs;
