//! Runs one replica of the operator as a separate process.
//!
//! Owns its start, its signals and its end. The observer alone reads its state, from outside.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::claims::Incarnation;
use redlock_client::clock;
use redlock_testkit::{RedisServerError, free_port};

/// The example prefers this cluster, so that no lock waits for replicas of a cluster that is not running.
const CLUSTER: &str = "eu-1";
const TICK: Duration = Duration::from_millis(2);
const LOG_TAIL_LINES: usize = 15;

#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error("starting {name}: the path of this program is not known")]
    Program { name: String, source: io::Error },
    #[error("starting {name}: its log file {path:?} cannot be written")]
    Log {
        name: String,
        path: PathBuf,
        source: io::Error,
    },
    #[error("starting {name}: no port for it")]
    Port { name: String, source: RedisServerError },
    #[error("starting {name} as {program:?} failed")]
    Spawn {
        name: String,
        program: PathBuf,
        source: io::Error,
    },
    #[error("sending {signal} to {name} failed")]
    Signal {
        name: String,
        signal: Signal,
        source: nix::Error,
    },
    #[error("asking whether {name} has ended failed")]
    Wait { name: String, source: io::Error },
}

/// A running replica; killed on drop.
#[derive(Debug)]
pub(super) struct Replica {
    child: Child,
    who: Incarnation,
    address: SocketAddr,
    log: PathBuf,
}

impl Replica {
    /// Starts life number `life` of a replica; its log is written to `folder`.
    pub(super) fn start(
        name: &str,
        life: u32,
        manifests: &Path,
        folder: &Path,
    ) -> Result<Self, ReplicaError> {
        let name = name.to_owned();
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(source) => return Err(ReplicaError::Program { name, source }),
        };
        let port = match free_port() {
            Ok(port) => port,
            Err(source) => return Err(ReplicaError::Port { name, source }),
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let path = folder.join(format!("{name}.{life}.log"));
        let (log, also_log) = match File::create(&path).and_then(|log| Ok((log.try_clone()?, log))) {
            Ok(log) => log,
            Err(source) => return Err(ReplicaError::Log { name, path, source }),
        };
        let spawned = Command::new(&program)
            .arg("operator")
            .args(["--identity", &name, "--cluster", CLUSTER])
            .args(["--listen", &address.to_string(), "--log-format", "json"])
            .arg("--standalone")
            .arg(manifests)
            // Variables of the user's shell must not hide the log lines that the demo reads, nor provide a password.
            .env("RUST_LOG", "info")
            .env_remove("REDLOCK_USERNAME")
            .env_remove("REDLOCK_PASSWORD")
            .env_remove("REDLOCK_PASSWORD_FILE")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also_log)
            // The demo handles Ctrl-C and decides when the replicas end.
            .process_group(0)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(source) => {
                return Err(ReplicaError::Spawn {
                    name,
                    program,
                    source,
                });
            }
        };
        let pid = child.id();
        Ok(Self {
            child,
            who: Incarnation { name, pid },
            address,
            log: path,
        })
    }

    pub(super) fn who(&self) -> &Incarnation {
        &self.who
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), ReplicaError> {
        // Every process id fits.
        let pid = Pid::from_raw(i32::try_from(self.who.pid).unwrap_or(i32::MAX));
        signal::kill(pid, signal).map_err(|source| ReplicaError::Signal {
            name: self.who.name.clone(),
            signal,
            source,
        })
    }

    /// Sends SIGKILL and returns once the process has ended.
    pub(super) fn kill(&mut self) -> Result<(), ReplicaError> {
        let name = self.who.name.clone();
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map(drop)
            .map_err(|source| ReplicaError::Wait { name, source })
    }

    /// Returns the exit status if the process has ended.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, ReplicaError> {
        let name = self.who.name.clone();
        self.child
            .try_wait()
            .map_err(|source| ReplicaError::Wait { name, source })
    }

    /// Waits for the process to end; returns `None` if it still runs after `bound`.
    pub(super) async fn ends_within(&mut self, bound: Duration) -> Result<Option<ExitStatus>, ReplicaError> {
        let end = clock::now() + bound;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if clock::now() >= end {
                return Ok(None);
            }
            tokio::time::sleep(TICK).await;
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // A process that has already ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the last lines of a log, for the report of a failure.
pub(super) fn log_tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
