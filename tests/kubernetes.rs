//! The operator's API on a real API server, with the rights that the chart grants.

// The lints' leave for tests covers test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod common;
#[path = "kubernetes/crds.rs"]
mod crds;
#[path = "kubernetes/election.rs"]
mod election;
#[path = "kubernetes/fixture.rs"]
mod fixture;
#[path = "kubernetes/leftovers.rs"]
mod leftovers;
#[path = "kubernetes/rights.rs"]
mod rights;
#[path = "rules/table.rs"]
mod rules;
#[path = "kubernetes/server.rs"]
mod server;
#[path = "kubernetes/table.rs"]
mod table;
#[path = "kubernetes/world.rs"]
mod world;
