//! The launcher: the process that becomes the command.
//!
//! It is started before the lock is held, in a process group of its own, and waits. The guardian is informed of the
//! group, then the launcher is asked to begin; if the wrapper dies before, or the lease is over by then, it never does.
//! So there is no moment at which the command runs unguarded.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, PipeWriter, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode},
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
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
/// Removed from the environment of the command, which must not reach the masters.
const PASSWORD: &str = "REDLOCK_PASSWORD";

/// As a shell reports it.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The wrapper has ended, or reports the failure itself: no process reads this code.
const NEVER_BEGAN: u8 = 70;

/// Begin, under this lease.
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

    /// None if the other end was closed before all of it was written.
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

/// A launcher that waits. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Launcher {
    group: Group,
    go: PipeWriter,
}

impl Launcher {
    /// Starts the launcher and moves it into the cgroup before it becomes the command: no process of the command is
    /// ever outside.
    pub(super) fn start(options: &Options, cgroup: Option<Arc<Cgroup>>) -> Result<Self, RunError> {
        let (child, go) = Self::spawn(options).map_err(RunError::Start)?;
        let group = Group::led_by(child, cgroup).map_err(RunError::Contain)?;
        Ok(Self { group, go })
    }

    fn spawn(options: &Options) -> io::Result<(Child, PipeWriter)> {
        let (wait, go) = io::pipe()?;
        // Inherited by its number. Nothing else is started meanwhile: this process has one thread that does.
        fcntl(&wait, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&wait).to_string();
        let child = process::own(process::LAUNCHER)
            .arg(number)
            .arg(&options.program)
            .args(&options.arguments)
            .env(LOCK, options.lock.as_str())
            .env(HOLDER, options.identity.as_str())
            .env_remove(PASSWORD)
            .process_group(0)
            .spawn()?;
        Ok((child, go))
    }

    pub(super) fn id(&self) -> Pid {
        self.group.id()
    }

    /// Lets it become the command.
    pub(super) fn begin(self, go: Go) -> Group {
        let Self { group, go: mut pipe } = self;
        // The write fails if it was killed, and then the group shows that.
        let _ = pipe.write_all(&go.encode());
        group
    }

    /// Kills the launcher before it becomes the command.
    pub(super) fn give_up(self) -> Group {
        self.group.signal(Signal::SIGKILL);
        self.group
    }
}

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(number), Some(program)) = (arguments.next(), arguments.next()) else {
        return NEVER_BEGAN.into();
    };
    // If guardian and wrapper are killed at once, the command itself ends as well.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let Some(go) = wait(&number.to_string_lossy()) else {
        return NEVER_BEGAN.into();
    };
    let mut command = Command::new(&program);
    command.args(arguments).env(TOKEN, go.token.to_string());
    if clock::now() >= go.before {
        return NEVER_BEGAN.into();
    }
    let error = command.exec();
    let _ = writeln!(io::stderr(), "redlock: {}: {error}", program.to_string_lossy());
    match error.kind() {
        ErrorKind::NotFound => NOT_FOUND.into(),
        _ => NOT_EXECUTABLE.into(),
    }
}

/// Waits at the pipe of this number, of which nothing is left open for the command.
fn wait(number: &str) -> Option<Go> {
    let pipe = File::open(format!("/proc/self/fd/{number}")).ok()?;
    unistd::close(number.parse::<i32>().ok()?).ok()?;
    Go::read(pipe)
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
