//! The launcher: the process that becomes the command.
//!
//! It is started before the lock is held, in its own process group, and waits. The wrapper arms the guardian
//! for the group before it asks the launcher to begin. If the wrapper dies first, or the lease has ended, the
//! launcher never begins: the command never runs unguarded. A launcher that ends without the report that it
//! begins, killed or asked too late, has run nothing, and the wrapper starts another launcher.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitCode},
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::{prctl, signal::Signal},
    unistd::{self, Pid},
};
use redlock_node::cgroup::Cgroup;

use super::{Options, RunError, group::Group, process};
use crate::{
    clock,
    lease::{BootInstant, FencingToken},
};

pub(super) const LOCK: &str = "REDLOCK_LOCK";
pub(super) const TOKEN: &str = "REDLOCK_TOKEN";
pub(super) const HOLDER: &str = "REDLOCK_HOLDER";
pub(super) const SLOT: &str = "REDLOCK_SLOT";
/// Removed from the environment of the command, which must not reach the masters.
const PASSWORD: &str = "REDLOCK_PASSWORD";

/// The exit codes that a shell reports.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;
/// The exit code if the command never began. The wrapper is gone, starts another launcher, or reports it.
const NEVER_BEGAN: u8 = 70;

/// The message that asks the launcher to begin, under this lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Go {
    pub(super) token: FencingToken,
    /// The command must begin before this moment.
    pub(super) before: BootInstant,
}

const LENGTH: usize = 16;

impl Go {
    fn encode(self) -> [u8; LENGTH] {
        let (token, before) = (self.token.0.to_ne_bytes(), self.before.as_nanos().to_ne_bytes());
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&token);
        bytes[8..].copy_from_slice(&before);
        bytes
    }

    /// Returns `None` if the other end was closed before the whole message was written.
    fn read(mut from: impl Read) -> Option<Self> {
        let (mut token, mut before) = ([0; 8], [0; 8]);
        from.read_exact(&mut token).ok()?;
        from.read_exact(&mut before).ok()?;
        Some(Self {
            token: FencingToken(u64::from_ne_bytes(token)),
            before: BootInstant::from_nanos(u64::from_ne_bytes(before)),
        })
    }
}

/// A waiting launcher. Dropping this value kills it.
#[derive(Debug)]
pub(super) struct Launcher {
    group: Group,
    go: PipeWriter,
    report: Report,
}

/// The end of a pipe that distinguishes a command that has ended from a launcher that never became the command.
#[derive(Debug)]
pub(super) struct Report(PipeReader);

impl Report {
    /// Reports whether the command began. The launcher must have ended, or have become the command.
    pub(super) fn has_begun(mut self) -> bool {
        self.0.read_exact(&mut [0]).is_ok()
    }
}

impl Launcher {
    /// Starts the launcher and moves it into the cgroup before it becomes the command: no process of the
    /// command is ever outside the cgroup.
    pub(super) fn start(options: &Options, cgroup: Option<Arc<Cgroup>>) -> Result<Self, RunError> {
        let (child, go, report) = Self::spawn(options).map_err(RunError::Start)?;
        let group = Group::led_by(child, cgroup).map_err(RunError::Contain)?;
        Ok(Self { group, go, report })
    }

    fn spawn(options: &Options) -> io::Result<(Child, PipeWriter, Report)> {
        let (wait, go) = io::pipe()?;
        let (report, begins) = io::pipe()?;
        // The pipe is read after its only writer has ended.
        fcntl(&report, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // The child inherits the pipes by number. Only one thread starts children, so no other child gets
        // them.
        let (wait_number, begins_number) = (inheritable(&wait)?, inheritable(&begins)?);
        let slot = options.once_per.map(|once| (SLOT, once.time()));
        let child = process::own(process::LAUNCHER)
            .args([wait_number, begins_number])
            .arg(&options.program)
            .args(&options.arguments)
            .env(LOCK, options.lock.as_str())
            .env(HOLDER, options.identity.as_str())
            .env_remove(SLOT)
            .envs(slot)
            .env_remove(PASSWORD)
            .process_group(0)
            .spawn()?;
        Ok((child, go, Report(report)))
    }

    pub(super) fn id(&self) -> Pid {
        self.group.id()
    }

    /// Lets the launcher become the command.
    pub(super) fn begin(self, go: Go) -> (Group, Report) {
        let Self {
            group,
            go: mut pipe,
            report,
        } = self;
        // The write fails if the launcher was killed, and the report then shows that.
        let _ = pipe.write_all(&go.encode());
        (group, report)
    }

    /// Kills the launcher before it becomes the command.
    pub(super) fn give_up(self) -> (Group, Report) {
        self.group.signal(Signal::SIGKILL);
        (self.group, self.report)
    }
}

/// Makes the next child inherit a file. Returns its number.
fn inheritable(file: &(impl AsFd + AsRawFd)) -> io::Result<String> {
    fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(file.as_raw_fd().to_string())
}

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut next = || arguments.next();
    let (Some(wait), Some(begins), Some(program)) = (next(), next(), next()) else {
        return NEVER_BEGAN.into();
    };
    // If guardian and wrapper are killed at once, the command itself ends as well.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let begins = inherited(&begins, OpenOptions::new().write(true));
    let wait = inherited(&wait, OpenOptions::new().read(true));
    let (Some(mut begins), Some(go)) = (begins, wait.and_then(Go::read)) else {
        return NEVER_BEGAN.into();
    };
    let mut command = Command::new(&program);
    command.args(arguments).env(TOKEN, go.token.to_string());
    if clock::now() >= go.before || begins.write_all(&[0]).is_err() {
        return NEVER_BEGAN.into();
    }
    let error = command.exec();
    let _ = writeln!(io::stderr(), "redlock: {}: {error}", program.to_string_lossy());
    match error.kind() {
        ErrorKind::NotFound => NOT_FOUND.into(),
        _ => NOT_EXECUTABLE.into(),
    }
}

/// Opens the pipe with this number for this process only: the command does not inherit it.
fn inherited(number: &OsStr, options: &OpenOptions) -> Option<File> {
    let number = number.to_str()?;
    let pipe = options.open(format!("/proc/self/fd/{number}")).ok()?;
    unistd::close(number.parse::<i32>().ok()?).ok()?;
    Some(pipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_go_message_is_rejected() {
        let go = Go {
            token: FencingToken(17),
            before: BootInstant::from_nanos(4_711),
        };
        let bytes = go.encode();
        assert_eq!(Go::read(&bytes[..]), Some(go));
        assert!((0..LENGTH).all(|length| Go::read(&bytes[..length]).is_none()));
    }
}
