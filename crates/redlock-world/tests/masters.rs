//! Tests the simulated masters: with the client as it ships, and beside a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "masters/electors.rs"]
mod electors;
#[path = "masters/random.rs"]
mod random;
#[path = "masters/real.rs"]
mod real;
