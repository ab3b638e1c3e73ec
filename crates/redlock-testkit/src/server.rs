//! Runs real Redis servers for the demo, the tests and the benches.
//!
//! Owns the life of `redis-server` child processes: a free loopback port, a folder of their own, start, pause, kill,
//! restart with or without memory. No server outlives the program that started it, however that program ends. The only
//! Redis commands here are the PING that detects a running server, and CONFIG SET. Servers that another program started are never
//! touched.
//!
//! The calls block for a few milliseconds and take `&self`. Sync code can use them directly, and async code that
//! measures can put an `Arc` of a server into `tokio::task::spawn_blocking`.

mod error;
mod options;
mod port;
mod process;
mod program;
mod servers;

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

pub use error::RedisServerError;
pub use options::{Persistence, ServerOptions, TlsFiles};
pub use port::free_port;
use process::Process;
use program::Program;
pub use servers::RedisServers;

/// An idle machine needs 20 ms; a loaded one with two cores and an append-only file to read stays below this.
const START_BOUND: Duration = Duration::from_secs(20);
/// After SIGTERM a server writes its append-only file and exits. A server that takes longer hangs.
const STOP_BOUND: Duration = Duration::from_secs(60);
/// The interval at which a condition is checked.
const TICK: Duration = Duration::from_millis(2);
/// The bound of one PING while the server starts; the PING is repeated after that.
const PING_BOUND: Duration = Duration::from_millis(200);
/// Another program may take a free port between the choice and the start.
const PORT_TRIES: u32 = 10;
/// Enough for a start banner and the reason of an exit.
const LOG_TAIL_LINES: usize = 20;

type Result<T> = std::result::Result<T, RedisServerError>;

/// One `redis-server` process on `127.0.0.1`. Dropping it kills the process and removes its folder.
pub struct RedisServer {
    // Dropped in this order: the process must end before its folder is removed.
    process: Mutex<Option<Process>>,
    port: u16,
    program: Program,
    options: ServerOptions,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server and returns once it answers.
    pub fn start(options: &ServerOptions) -> Result<Self> {
        let program = program::find()?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::start_on(free_port()?, program.clone(), options.clone()) {
                Err(RedisServerError::PortTaken { .. }) if tries < PORT_TRIES => {}
                outcome => return outcome,
            }
        }
    }

    fn start_on(port: u16, program: Program, options: ServerOptions) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("redlock-redis-")
            .tempdir()
            .map_err(|source| RedisServerError::Folder {
                path: std::env::temp_dir(),
                source,
            })?;
        let server = Self {
            process: Mutex::new(None),
            port,
            program,
            options,
            folder,
        };
        server.write_file(
            "redis.conf",
            &server.options.config(server.path(), port, server.program.version),
        )?;
        server.create_data_folder()?;
        server.launch(&mut server.process())?;
        Ok(server)
    }

    /// Returns the port that the server listens on, plain or TLS; restarts keep it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `redis://127.0.0.1:PORT`, or `rediss://` with TLS; without user and password.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() {
            "rediss"
        } else {
            "redis"
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Returns the process id of the running server; `None` after `kill` and `stop`.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::pid)
    }

    /// Returns the folder of its append-only file. A copy of the folder that is put back acts as the old volume after a
    /// restart.
    pub fn data_folder(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Changes a setting of the running server, which needs no password.
    ///
    /// # Errors
    /// Returns an error if the server does not answer, or refuses the value.
    pub fn set_config(&self, name: &str, value: &str) -> io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port()))?;
        stream.write_all(format!("CONFIG SET {name} {value}\r\n").as_bytes())?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        match &reply {
            b"+OK\r\n" => Ok(()),
            _ => Err(io::Error::other(format!("CONFIG SET {name} {value} was refused"))),
        }
    }

    /// Sends SIGSTOP: the server hangs while its sockets stay open. Returns once it has stopped.
    pub fn pause(&self) -> Result<()> {
        let process = self.process();
        let process = process
            .as_ref()
            .ok_or(RedisServerError::NotRunning { port: self.port })?;
        self.signal(process, Signal::SIGSTOP)?;
        process.wait_until_stopped(START_BOUND);
        Ok(())
    }

    /// Sends SIGCONT: the server continues and reads the data that its sockets have buffered.
    pub fn resume(&self) -> Result<()> {
        let process = self.process();
        let process = process
            .as_ref()
            .ok_or(RedisServerError::NotRunning { port: self.port })?;
        self.signal(process, Signal::SIGCONT)
    }

    /// Sends SIGKILL, paused or not; returns once the process has ended. Does nothing when it is not running.
    pub fn kill(&self) {
        drop(self.process().take());
    }

    /// Sends SIGTERM, and SIGCONT in case it is paused; returns once the process has exited cleanly.
    pub fn stop(&self) -> Result<()> {
        let mut slot = self.process();
        let Some(process) = slot.as_ref() else {
            return Ok(());
        };
        self.signal(process, Signal::SIGTERM)?;
        self.signal(process, Signal::SIGCONT)?;
        let left = process.ended_within(STOP_BOUND);
        drop(slot.take());
        if left {
            return Ok(());
        }
        Err(RedisServerError::StillRunning {
            port: self.port,
            bound: STOP_BOUND,
            log: self.log_tail(),
        })
    }

    /// Kills the server and restarts it with its persisted data: all with `Persistence::Aof`, else no data.
    pub fn restart(&self) -> Result<()> {
        let mut slot = self.process();
        drop(slot.take());
        self.launch(&mut slot)
    }

    /// Kills the server, removes its data and restarts it on the same port: a master that lost its memory.
    pub fn restart_empty(&self) -> Result<()> {
        let mut slot = self.process();
        drop(slot.take());
        let data = self.data_folder();
        fs::remove_dir_all(&data).map_err(|source| RedisServerError::Folder { path: data, source })?;
        self.create_data_folder()?;
        self.launch(&mut slot)
    }

    /// Returns the last lines of its log over all restarts.
    pub fn log_tail(&self) -> String {
        // The log may not exist yet, or may contain bytes that are not UTF-8; neither may fail the report of another
        // failure.
        let log = fs::read(self.log_file()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn launch(&self, slot: &mut Option<Process>) -> Result<()> {
        let log_before = fs::metadata(self.log_file()).map_or(0, |log| log.len());
        let process =
            Process::spawn(&self.program.path, self.path(), &self.log_file()).map_err(|source| {
                RedisServerError::Spawn {
                    program: self.program.path.clone(),
                    source,
                }
            })?;
        let mut left = START_BOUND;
        loop {
            match ping(&self.path().join(options::SOCKET)) {
                Ping::Answered => break,
                Ping::NoAnswer => left = left.saturating_sub(PING_BOUND),
                Ping::NotListening => {}
            }
            if process.ended_within(TICK) {
                return Err(self.ended_early(log_before));
            }
            left = left.saturating_sub(TICK);
            if left.is_zero() {
                return Err(RedisServerError::Silent {
                    port: self.port,
                    bound: START_BOUND,
                    log: self.log_tail(),
                });
            }
        }
        *slot = Some(process);
        Ok(())
    }

    fn ended_early(&self, log_before: u64) -> RedisServerError {
        let log = fs::read(self.log_file()).unwrap_or_default();
        let this_start = usize::try_from(log_before)
            .ok()
            .and_then(|from| log.get(from..))
            .unwrap_or(&log);
        if String::from_utf8_lossy(this_start).contains("Address already in use") {
            return RedisServerError::PortTaken {
                port: self.port,
                log: self.log_tail(),
            };
        }
        RedisServerError::Ended {
            port: self.port,
            log: self.log_tail(),
        }
    }

    fn signal(&self, process: &Process, signal: Signal) -> Result<()> {
        if process.ended_within(Duration::ZERO) {
            return Err(RedisServerError::Ended {
                port: self.port,
                log: self.log_tail(),
            });
        }
        process.signal(signal).map_err(|source| RedisServerError::Signal {
            signal: signal.as_str(),
            port: self.port,
            source,
        })
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A panic under this lock leaves either a process or none, and both are states that every method accepts.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_data_folder(&self) -> Result<()> {
        let path = self.data_folder();
        fs::create_dir(&path).map_err(|source| RedisServerError::Folder { path, source })
    }

    fn write_file(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path().join(name);
        fs::write(&path, text).map_err(|source| RedisServerError::Folder { path, source })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log_file(&self) -> PathBuf {
        self.path().join("redis.log")
    }
}

impl fmt::Debug for RedisServer {
    // Not derived: the options hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer")
            .field("url", &self.url())
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

enum Ping {
    Answered,
    NoAnswer,
    NotListening,
}

/// Sends the PING over the socket file in the server's own folder: another program could have the port by now, and the
/// socket needs neither TLS nor a password. The file exists only once the port is bound.
fn ping(socket: &Path) -> Ping {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return Ping::NotListening;
    };
    let mut answer = [0; 64];
    let asked = stream
        .set_read_timeout(Some(PING_BOUND))
        .and_then(|()| stream.write_all(b"PING\r\n"))
        .and_then(|()| stream.read(&mut answer));
    match asked {
        // NOAUTH is an answer. Only a server that still reads its append-only file is not up.
        Ok(length) if length > 0 && !answer.starts_with(b"-LOADING") => Ping::Answered,
        Ok(_) => Ping::NotListening,
        Err(_) => Ping::NoAnswer,
    }
}
