//! Exit codes. Each has one meaning.

use std::{fmt, io::Write, process::ExitCode};

use super::source::{self, FromVariable};

/// The result that the process reports at its end. The numbers are those of `sysexits.h` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// A check failed (an unhealthy master, a broken invariant).
    Unhealthy,
    /// The command line cannot be understood.
    Usage,
    /// No quorum: too few masters are reachable and sealed.
    NoQuorum,
    /// An internal error: a task ended that must not end.
    Software,
    /// Another candidate holds the lock.
    NotAcquired,
    /// The user, the password or the permissions are not accepted.
    Auth,
    /// A configuration, manifest, file or address that cannot be used.
    Config,
    /// The lease was lost, and the command that ran under it was stopped.
    LeaseLost,
    /// The state of some of the requested clusters is not known.
    Partial,
    /// No run is known to have the slot, and no run can have it.
    SlotLost,
    /// A signal ended the process.
    Signal(u8),
    /// The code of the command that was run, or a code that the user requested.
    Command(u8),
}

impl Exit {
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Unhealthy => 1,
            Self::Usage => 64,
            Self::NoQuorum => 69,
            Self::Software => 70,
            Self::NotAcquired => 75,
            Self::Auth => 77,
            Self::Config => 78,
            Self::LeaseLost => 79,
            Self::Partial => 80,
            Self::SlotLost => 81,
            Self::Signal(number) => 128_u8.saturating_add(number),
            Self::Command(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The reason why a command ended without its result.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// Creates a failure whose message contains every cause of the error.
    pub fn caused(exit: Exit, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { exit, message }
    }

    /// Returns the failure with the names of variables in place of the flags that they stand for.
    pub(super) fn naming(self, given: &[FromVariable]) -> Self {
        Self {
            message: source::named(&self.message, given),
            ..self
        }
    }

    pub(super) fn report(self) -> ExitCode {
        // If the standard error cannot be written, the exit code still reports the failure.
        let _ = writeln!(std::io::stderr(), "redlock: {}", self.message);
        self.exit.into()
    }
}

/// Prints the message of the parser. Help and version go to the standard output and are not errors; everything else is
/// wrong usage.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        Exit::Usage.into()
    } else {
        Exit::Ok.into()
    }
}
