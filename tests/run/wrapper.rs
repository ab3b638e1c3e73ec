//! A `redlock run` under test, its guardian and its command.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::{runtime::Runtime, signal::unix::SignalKind};

use crate::common::processes;
use crate::program;
use redlock_testkit::{ChildGuard, Mode, Proxy, RedisServer, RedisServers, eventually_blocking};

/// Generous, for a busy machine; a correct run stays far below.
pub const BOUND: Duration = Duration::from_secs(30);
/// A lease whose end a test can wait for. A wrapper or two masters that stand still for 2.4 s do not lose it.
pub const SHORT: &[&str] = &["--lease-duration", "8s", "--stop-grace", "500ms"];
/// A lease that a busy machine does not lose, and that leaves a command more time to end than the machine pauses: a fork
/// was seen to take up to 10 s there.
pub const UNHURRIED: &[&str] = &["--lease-duration", "20s", "--stop-grace", "10s"];

/// Three masters that vote.
pub struct Quorum {
    pub servers: RedisServers,
    pub urls: String,
}

impl Quorum {
    pub fn start() -> Self {
        handle_signals();
        let (servers, urls) = program::quorum();
        Self { servers, urls }
    }

    /// Returns `redlock run LOCK FLAGS -- sh -c SCRIPT`, without any REDLOCK_ variable of this process.
    pub fn command(&self, lock: &str, flags: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        self.arguments(&mut command, lock, flags, script);
        command
    }

    /// Returns the same command behind a program that starts it.
    pub fn command_by(&self, by: &[&str], lock: &str, flags: &[&str], script: &str) -> Command {
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(env!("CARGO_BIN_EXE_redlock"));
        self.arguments(&mut command, lock, flags, script);
        command
    }

    fn arguments(&self, command: &mut Command, lock: &str, flags: &[&str], script: &str) {
        crate::common::forget_variables(command);
        command.args(["run", lock, "--masters", &self.urls]).args(flags);
        // By default, a run waits at most 2 s for the masters: too short for a busy machine.
        let waits = ["-n", "--nonblock", "-w", "--service"];
        if !flags.iter().any(|flag| waits.contains(flag)) {
            command.args(["-w", "60"]);
        }
        command.args(["--", "sh", "-c", script]);
    }

    pub fn run(&self, lock: &str, flags: &[&str], script: &str) -> Wrapper {
        let mut command = self.command(lock, flags, script);
        Wrapper::of(ChildGuard::spawn(&format!("redlock run {lock}"), &mut command))
    }

    /// Runs the wrapper to its end; returns code, standard output and standard error.
    pub fn ran(&self, lock: &str, flags: &[&str], script: &str) -> (i32, String, String) {
        self.run(lock, flags, script).end()
    }

    /// Runs a command that does not wait for the lock, again while no majority of the masters answers in time;
    /// returns code, standard output and standard error.
    pub fn refused(&self, lock: &str, flags: &[&str]) -> (i32, String, String) {
        eventually_blocking(BOUND, "an answer of the masters", || {
            let began = Instant::now();
            let ran = self.ran(lock, flags, "echo no");
            assert!(began.elapsed() < Duration::from_secs(15), "it waited: {ran:?}");
            if ran.0 == 69 { Err(ran) } else { Ok(ran) }
        })
    }

    /// Waits until a run that does not wait gets the lock, for less time than an unreleased lease of 60 s
    /// lasts.
    pub fn is_free(&self, lock: &str) {
        eventually_blocking(Duration::from_secs(25), "the lock is free", || {
            let ran = self.ran(lock, &["-n"], "echo free");
            if ran.1 == "free" { Ok(()) } else { Err(ran) }
        });
    }

    pub fn pause(&self) {
        self.servers.iter().for_each(|server| server.pause().unwrap());
    }

    pub fn resume(&self) {
        self.servers.iter().for_each(|server| server.resume().unwrap());
    }
}

/// The network between `redlock run` and the masters.
pub struct Through {
    proxies: Vec<Proxy>,
    _network: Runtime,
}

impl Through {
    /// Starts three masters that vote, behind this network.
    pub fn start() -> (Self, Quorum) {
        let Quorum { servers, .. } = Quorum::start();
        let network = Runtime::new().unwrap();
        let ports = servers.iter().map(RedisServer::port);
        let proxies: Vec<Proxy> = ports.map(|port| network.block_on(Proxy::to_port(port))).collect();
        let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
        let urls = urls.join(",");
        let through = Self {
            proxies,
            _network: network,
        };
        (through, Quorum { servers, urls })
    }

    pub fn set(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// Lets new connections pass. The existing ones pass nothing more.
    pub fn strand(&self) {
        self.proxies.iter().for_each(Proxy::strand);
    }

    /// Returns the number of connections to each master.
    pub fn accepted(&self) -> Vec<usize> {
        self.proxies.iter().map(Proxy::accepted).collect()
    }
}

/// A shell that starts the tests in the background, or `nohup`, makes them ignore signals. Every program that
/// they start inherits this, as `redlock run` and its command should. A signal with a handler here has the
/// default action there.
fn handle_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        for number in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT].map(|signal| signal as i32) {
            if ignored & 1 << (number - 1) != 0 {
                // No task waits for the signal: only the handler matters, and the handler stays.
                drop(tokio::signal::unix::signal(SignalKind::from_raw(number)).unwrap());
            }
        }
    });
}

pub struct Wrapper {
    pub child: ChildGuard,
}

impl Wrapper {
    pub fn of(child: ChildGuard) -> Self {
        Self { child }
    }

    /// Returns a number that the command writes after this word, such as its process id.
    pub fn number(&mut self, word: &str) -> i64 {
        let line = self.child.wait_for_line(BOUND, &format!("{word} "));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    pub fn end(mut self) -> (i32, String, String) {
        let (status, _) = self.child.wait(BOUND);
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
        let (out, err) = (self.child.stdout().join("\n"), self.child.stderr().join("\n"));
        assert!(!err.contains("panicked"), "{err}");
        (code, out, err)
    }

    /// Waits for a guardian other than this one, and returns its process id.
    pub fn guardian(&self, not: i64) -> i64 {
        let own = id_of(self.child.pid().into());
        eventually_blocking(BOUND, "a guardian", || {
            let mut found = processes::guardians(own).map(i64::from);
            found.find(|id| *id != not).ok_or("none")
        })
    }
}

fn id_of(id: i64) -> i32 {
    id.try_into().unwrap()
}

/// Reports whether a process runs; a process that is not reaped does not.
pub fn runs(id: i64) -> bool {
    processes::runs(id_of(id))
}

pub fn wait_gone(id: i64) {
    eventually_blocking(BOUND, &format!("process {id} ends"), || {
        if runs(id) { Err("it runs") } else { Ok(()) }
    });
}

pub fn send(id: i64, signal: Signal) {
    kill(Pid::from_raw(id_of(id)), signal).unwrap();
}

pub fn kill_hard(id: i64) {
    send(id, Signal::SIGKILL);
}
