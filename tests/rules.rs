//! Tests the rules of both kinds with `validate`, over the table that a real API server judges in `tests/kubernetes`.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "rules/judge.rs"]
mod judge;
#[path = "rules/pure.rs"]
mod pure;
#[path = "rules/table.rs"]
mod table;
