//! Exit codes, one meaning each.

use std::{io::Write, process::ExitCode};

/// The exit code of the process. The numbers are those of `sysexits.h` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// Something that was asked about is not as it should be (an unhealthy master, a broken invariant).
    Unhealthy,
    /// The command line cannot be understood.
    Usage,
    /// No quorum: too few masters reachable and sealed.
    NoQuorum,
    /// An error inside: a task ended that must not end.
    Software,
    /// Another process holds the lock.
    NotAcquired,
    /// User, password or permissions not accepted.
    Auth,
    /// A configuration, manifest, file or address that cannot be used.
    Config,
    /// The lease was lost, and the command that ran under it stopped.
    LeaseLost,
    /// Of several clusters that were asked, some are not known.
    Partial,
    /// Ended by this signal.
    Signal(u8),
    /// That of the command that was run, or one that was asked for.
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

/// Why a command ends without having done what it was asked for.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// The message with every cause behind it.
    pub fn caused(exit: Exit, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { exit, message }
    }

    pub(super) fn report(self) -> ExitCode {
        // The standard error may be closed: the exit code reports the failure nevertheless.
        let _ = writeln!(std::io::stderr(), "redlock: {}", self.message);
        self.exit.into()
    }
}

/// Help and version go to the standard output and are no error; the rest is wrong usage.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        Exit::Usage.into()
    } else {
        Exit::Ok.into()
    }
}
