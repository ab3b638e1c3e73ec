//! Tests agents against real Redis servers.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "agent/answers.rs"]
mod answers;
#[path = "agent/bad_input.rs"]
mod bad_input;
#[path = "agent/clients.rs"]
mod clients;
mod common;
#[path = "agent/fixture.rs"]
mod fixture;
#[path = "agent/grace.rs"]
mod grace;
#[path = "agent/http_attack.rs"]
mod http_attack;
#[path = "agent/load_balancer.rs"]
mod load_balancer;
#[path = "agent/losing.rs"]
mod losing;
#[allow(dead_code)]
#[path = "commands/program.rs"]
mod program;
#[path = "agent/secrets.rs"]
mod secrets;
#[path = "agent/takeover.rs"]
mod takeover;
#[path = "agent/watch.rs"]
mod watch;
