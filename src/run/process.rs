//! The other two processes of `redlock run`: this program again, under another name.

use std::{os::unix::process::CommandExt, process::Command, process::ExitCode};

use super::{guardian, launcher};

pub(super) const GUARDIAN: &str = "redlock-guardian";
pub(super) const LAUNCHER: &str = "redlock-launcher";
/// Also after the file was replaced by another version: the three understand each other.
const SELF: &str = "/proc/self/exe";

/// Runs this process by its name: before anything else is set up, and without a runtime. `None` for a process that was
/// started by its user.
#[must_use]
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    match arguments.next()?.to_str()? {
        GUARDIAN => Some(guardian::main(arguments)),
        LAUNCHER => Some(launcher::main(arguments)),
        _ => None,
    }
}

/// How a process of this program is started under one of these names.
pub(super) fn own(name: &str) -> Command {
    let mut command = Command::new(SELF);
    command.arg0(name);
    command
}
