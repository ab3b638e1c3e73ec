//! Tests the rules of both kinds with `validate`, over the table that a real API server judges in `tests/kubernetes`.

// The lints' leave for tests covers test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "rules/judge.rs"]
mod judge;
#[path = "rules/pure.rs"]
mod pure;
#[path = "rules/table.rs"]
mod table;
