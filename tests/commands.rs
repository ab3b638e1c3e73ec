//! Tests the commands that inspect the masters and repair them: the real program on real servers.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "commands/acl.rs"]
mod acl;
#[path = "commands/bad_input.rs"]
mod bad_input;
#[path = "commands/break_lock.rs"]
mod break_lock;
mod common;
#[path = "commands/doctor.rs"]
mod doctor;
#[path = "commands/empty.rs"]
mod empty;
#[path = "commands/examples.rs"]
mod examples;
#[path = "commands/fence.rs"]
mod fence;
#[path = "commands/init.rs"]
mod init;
#[path = "commands/install.rs"]
mod install;
#[path = "commands/pages.rs"]
mod pages;
#[path = "commands/program.rs"]
mod program;
#[path = "commands/shell.rs"]
mod shell;
#[path = "commands/status.rs"]
mod status;
#[path = "commands/tls.rs"]
mod tls;
#[path = "commands/top.rs"]
mod top;
