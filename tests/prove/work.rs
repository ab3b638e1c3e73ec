//! The work under the lock: writes as often as it can, and records the time and the token of each write.
//!
//! The work is a separate process: this test binary, which `redlock run` starts again.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use redlock::clock;

use crate::common::Resource;
use crate::fenced::LEDGER;

/// The folder of the records.
const FOLDER: &str = "PROVE_FOLDER";
/// The name of the holder.
const NAME: &str = "PROVE_NAME";
/// The address of the resource that refuses smaller tokens.
const RESOURCE: &str = "PROVE_RESOURCE";
/// The path of this program.
const PROGRAM: &str = "PROVE_PROGRAM";
/// The number of milliseconds for which the work writes.
const LASTS: &str = "PROVE_LASTS";
/// Makes the work leave the process group before it writes.
const LEAVES: &str = "PROVE_LEAVES";
/// Longer than any trial: the work that a killed harness leaves behind ends by itself.
const LONGEST: Duration = Duration::from_secs(120);
const PACE: Duration = Duration::from_millis(1);

/// The command that `redlock run` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Plain,
    IgnoresTerm,
    /// Continues next to a daemon in its group, which ignores SIGTERM.
    WithDaemon,
    /// Ends successfully, and leaves such a daemon behind.
    LeavesDaemon,
    /// Continues next to a process that left the group.
    WithDeserter,
    /// The same in a cgroup, and the process ignores SIGTERM.
    WithContainedDeserter,
}

impl Work {
    /// Returns the script for `sh -c`.
    fn script(self) -> String {
        let write = "\"$PROVE_PROGRAM\" --ignored --exact work </dev/null >/dev/null 2>&1";
        // Two forks, so that init is the only parent.
        let daemon = format!("(trap '' TERM HUP; {write} &)");
        match self {
            Self::Plain => format!("exec {write}"),
            Self::IgnoresTerm => format!("trap '' TERM; exec {write}"),
            Self::WithDaemon => format!("{daemon}; exec {write}"),
            Self::LeavesDaemon => format!("{daemon}; {LASTS}=1000 {write}"),
            Self::WithDeserter => format!("({LEAVES}=1 {write} &); exec {write}"),
            Self::WithContainedDeserter => {
                format!("(trap '' TERM HUP; {LEAVES}=1 {write} &); exec {write}")
            }
        }
    }

    /// Returns the flags of `redlock run`.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::WithContainedDeserter => &["--contain"],
            _ => &[],
        }
    }

    /// Returns the number of processes that write.
    pub const fn writers(self) -> usize {
        match self {
            Self::Plain | Self::IgnoresTerm => 1,
            Self::WithDaemon | Self::LeavesDaemon | Self::WithDeserter | Self::WithContainedDeserter => 2,
        }
    }

    /// Adds the work to a `redlock run … --`.
    pub fn add_to(self, command: &mut Command, name: &str, folder: &Path, resource: &str) {
        let script = self.script();
        command
            .args(["sh", "-c", &script])
            .env(FOLDER, folder)
            .env(NAME, name)
            .env(RESOURCE, resource)
            .env(PROGRAM, std::env::current_exe().unwrap());
    }
}

/// Writes `TIME TOKEN` lines, one write(2) each, and to the resource before each. The time is read before
/// both.
pub fn run() {
    // Without the variable, this test has nothing to do.
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    if std::env::var_os(LEAVES).is_some() {
        nix::unistd::setsid().unwrap();
    }
    let lasts = std::env::var(LASTS).map_or(LONGEST, |ms| Duration::from_millis(ms.parse().unwrap()));
    let token: u64 = variable("REDLOCK_TOKEN").parse().unwrap();
    let file = folder.join(format!("{}.{}", variable(NAME), std::process::id()));
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(file)
        .unwrap();
    let mut resource = Resource::open(&variable(RESOURCE), LEDGER);
    let until = clock::now() + lasts;
    loop {
        let at = clock::now();
        if at >= until {
            return;
        }
        // Whether or not the write is refused, the work continues as if it had received no signal.
        let _ = resource.append(token);
        file.write_all(format!("{} {token}\n", at.as_nanos()).as_bytes())
            .unwrap();
        thread::sleep(PACE);
    }
}
