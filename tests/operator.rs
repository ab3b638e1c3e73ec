//! Tests the real operator on a folder of manifests and real Redis servers.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "operator/bad_input.rs"]
mod bad_input;
mod common;
#[path = "operator/config.rs"]
mod config;
#[path = "operator/election.rs"]
mod election;
#[path = "operator/folder.rs"]
mod folder;
#[path = "operator/http.rs"]
mod http;
#[path = "operator/http_attack.rs"]
mod http_attack;
#[path = "operator/logs.rs"]
mod logs;
#[allow(dead_code)]
#[path = "commands/program.rs"]
mod program;
#[path = "operator/replica.rs"]
mod replica;
#[path = "operator/secrets.rs"]
mod secrets;
#[path = "operator/standby.rs"]
mod standby;
#[path = "operator/stop.rs"]
mod stop;
