//! The other two processes of `redlock run`: this program again, under another name.

use std::{os::unix::process::CommandExt, process::Command, process::ExitCode};

use super::{guardian, launcher};

pub(super) const GUARDIAN: &str = "redlock-guardian";
pub(super) const LAUNCHER: &str = "redlock-launcher";
/// The program of this process, even if its file was replaced: all three processes have the same version.
const SELF: &str = "/proc/self/exe";

/// Runs the guardian or the launcher if this process has its name, before anything else is set up and without
/// a runtime. Returns `None` for a process that the user started.
#[must_use]
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    match arguments.next()?.to_str()? {
        GUARDIAN => Some(guardian::main(arguments)),
        LAUNCHER => Some(launcher::main(arguments)),
        _ => None,
    }
}

/// Returns the command that starts a process of this program under one of these names.
pub(super) fn own(name: &str) -> Command {
    let mut command = Command::new(SELF);
    command.arg0(name);
    command
}
