//! Tests the Helm chart as Helm renders it, without a cluster. Needs Helm, and Redis for the masters of the
//! quickstart.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "chart/bad_input.rs"]
mod bad_input;
mod common;
#[path = "chart/every_pod.rs"]
mod every_pod;
#[path = "chart/fencing.rs"]
mod fencing;
#[path = "chart/matrix.rs"]
mod matrix;
#[path = "chart/network.rs"]
mod network;
#[path = "chart/notes.rs"]
mod notes;
#[path = "chart/nulls.rs"]
mod nulls;
#[path = "chart/options.rs"]
mod options;
#[path = "chart/parent.rs"]
mod parent;
#[path = "chart/pods.rs"]
mod pods;
#[path = "chart/quickstart.rs"]
mod quickstart;
#[path = "chart/render.rs"]
mod render;
#[path = "chart/rights.rs"]
mod rights;
#[path = "chart/schema.rs"]
mod schema;
