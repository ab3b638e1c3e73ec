//! The work under the lock: writes as often as it can, and records the time and the token of each write.
//!
//! A process of its own: this test binary, started again by `redlock run`.

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
/// Whose work it is.
const NAME: &str = "PROVE_NAME";
/// Where the resource is that refuses smaller tokens.
const RESOURCE: &str = "PROVE_RESOURCE";
/// This program.
const PROGRAM: &str = "PROVE_PROGRAM";
/// For how many milliseconds it writes.
const LASTS: &str = "PROVE_LASTS";
/// Leaves the process group before it writes.
const LEAVES: &str = "PROVE_LEAVES";
/// More than any trial takes: what a harness that was killed leaves behind ends by itself.
const LONGEST: Duration = Duration::from_secs(120);
const PACE: Duration = Duration::from_millis(1);

/// What `redlock run` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Plain,
    IgnoresTerm,
    /// Continues beside a daemon in its group, which ignores SIGTERM.
    WithDaemon,
    /// Ends well, and leaves such a daemon behind.
    LeavesDaemon,
    /// Continues beside a process that left the group.
    WithDeserter,
    /// The same in a cgroup, and the process ignores SIGTERM.
    WithContainedDeserter,
}

impl Work {
    /// For `sh -c`.
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

    /// Those of `redlock run`.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::WithContainedDeserter => &["--contain"],
            _ => &[],
        }
    }

    /// How many of its processes write.
    pub const fn writers(self) -> usize {
        match self {
            Self::Plain | Self::IgnoresTerm => 1,
            Self::WithDaemon | Self::LeavesDaemon | Self::WithDeserter | Self::WithContainedDeserter => 2,
        }
    }

    /// Adds what it needs to a `redlock run … --`.
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

/// Writes `TIME TOKEN` lines, one write(2) each, and one to the resource before it. The time is read before both.
pub fn run() {
    // Played by itself it has nothing to do.
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
        // Refused or not: this work continues as if it had received no signal.
        let _ = resource.append(token);
        file.write_all(format!("{} {token}\n", at.as_nanos()).as_bytes())
            .unwrap();
        thread::sleep(PACE);
    }
}
