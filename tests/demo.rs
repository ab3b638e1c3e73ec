//! `redlock demo` as people and programs run it.

// The lints' leave for tests covers test functions, not the functions that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "demo/leftovers.rs"]
mod leftovers;
#[path = "demo/runs.rs"]
mod runs;
