//! Tests `redlock run`: the real program, real commands, real masters.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "run/bad_input.rs"]
mod bad_input;
#[path = "run/cannot_contain.rs"]
mod cannot_contain;
#[path = "run/command.rs"]
mod command;
mod common;
#[path = "run/contained.rs"]
mod contained;
#[path = "run/first_process.rs"]
mod first_process;
#[path = "run/guardian.rs"]
mod guardian;
#[path = "run/launcher.rs"]
mod launcher;
#[path = "run/loss.rs"]
mod loss;
#[path = "run/old_tools.rs"]
mod old_tools;
#[path = "run/once_per.rs"]
mod once_per;
#[allow(dead_code)]
#[path = "commands/program.rs"]
mod program;
#[path = "run/signals.rs"]
mod signals;
#[path = "run/systemd.rs"]
mod systemd;
#[path = "run/terminal.rs"]
mod terminal;
#[path = "run/trace.rs"]
mod trace;
#[path = "run/waiting.rs"]
mod waiting;
#[path = "run/wrapper.rs"]
mod wrapper;
