//! Manages one process of the run: starts it again after each end, and records its life.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use redlock::lease::BootInstant;

use crate::cast::{self, LEASE, OPERATOR_LOCKS, OPERATORS, RUNS};
use crate::claims::Claim;
use crate::common::processes::{commands, guardians};
use crate::naive::{Naive, Refused};
use crate::poll::LockPoller;
use crate::wall::Wall;
use crate::work;
use redlock_testkit::{ChildGuard, free_port};

/// The user of docs/redis-acl.md, which all processes use.
pub const USER: &str = "redlock";
pub const PASSWORD: &str = "chaos-password";

/// Generous, for a busy machine; a correct run stays far below.
const BOUND: Duration = Duration::from_secs(30);

/// The folders and addresses of a run.
#[derive(Clone, Debug)]
pub struct Places {
    /// The folder of `records`, and of a folder of manifests for each operator.
    pub folder: PathBuf,
    pub resource: String,
}

impl Places {
    pub fn records(&self) -> PathBuf {
        self.folder.join("records")
    }

    /// Returns the folder of the traces: one file with the inputs and decisions of each process.
    pub fn traces(&self) -> PathBuf {
        self.folder.join("traces")
    }

    fn password_file(&self) -> PathBuf {
        self.folder.join("password")
    }

    pub fn prepare(&self) {
        fs::create_dir(self.records()).unwrap();
        fs::create_dir(self.traces()).unwrap();
        fs::write(self.password_file(), PASSWORD).unwrap();
    }
}

/// Another key prefix, as after a configuration mistake: with it, two processes hold one lock.
pub const STRAY_PREFIX: &str = "stray";

#[derive(Debug)]
pub struct Process {
    index: usize,
    urls: Vec<String>,
    stray: bool,
    life: Option<Life>,
    lives: u32,
    /// The time at which the process is started again.
    pub back_at: Option<BootInstant>,
}

#[derive(Debug)]
struct Life {
    // Dropped in this order: the application reads the poller, which queries the process.
    _naive: Option<Naive>,
    poller: Option<LockPoller>,
    child: ChildGuard,
    who: String,
}

impl Process {
    /// Creates the process without starting it. `urls` are the masters as the process reaches them.
    pub fn new(index: usize, urls: Vec<String>, stray: bool) -> Self {
        Self {
            index,
            urls,
            stray,
            life: None,
            lives: 0,
            back_at: None,
        }
    }

    pub fn start(&mut self, places: &Places, refused: &Refused) {
        self.lives += 1;
        self.back_at = None;
        let who = format!("{}.{}", cast::name(self.index), self.lives);
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        crate::common::forget_variables(&mut command);
        command.env_remove("RUST_LOG");
        command.env("REDLOCK_TRACE", places.traces().join(&who));
        let poller = if self.index < OPERATORS.len() {
            let port = free_port().unwrap();
            self.operator(&mut command, places, port);
            Some(port)
        } else {
            self.run(&mut command, places);
            None
        };
        let child = ChildGuard::spawn(&who, &mut command);
        let poller = poller.map(LockPoller::start);
        let naive = poller
            .as_ref()
            .map(|poller| Naive::start(poller.answers.clone(), places.resource.clone(), refused.clone()));
        self.life = Some(Life {
            _naive: naive,
            poller,
            child,
            who,
        });
    }

    fn operator(&self, command: &mut Command, places: &Places, port: u16) {
        let (name, cluster) = OPERATORS[self.index];
        let folder = places.folder.join(name);
        if !folder.exists() {
            manifests(&folder, &self.urls);
        }
        command.args(["operator", "--identity", name, "--cluster", cluster]);
        command.args(["--listen", &format!("127.0.0.1:{port}"), "--log-format", "json"]);
        command.arg("--standalone").arg(folder);
        credentials(command, places);
    }

    fn run(&self, command: &mut Command, places: &Places) {
        let (name, lock) = RUNS[self.index - OPERATORS.len()];
        command.args([
            "run",
            lock,
            "--service",
            "--log-level",
            "info",
            "--identity",
            name,
        ]);
        command.args(["--masters", &self.urls.join(",")]);
        command.args(["--lease-duration", &format!("{}s", LEASE.as_secs())]);
        if self.stray {
            command.args(["--key-prefix", STRAY_PREFIX]);
        } else {
            credentials(command, places);
        }
        command.arg("--");
        work::add_to(command, name, &places.records(), &places.resource);
    }

    pub fn pid(&self) -> Option<i32> {
        Some(i32::try_from(self.life.as_ref()?.child.pid()).unwrap())
    }

    /// Returns the guardian and the command of a `redlock run`, while it holds its lock.
    pub fn guarded(&self) -> Option<(i32, i32)> {
        let wrapper = self.pid()?;
        Some((
            guardians(wrapper).next()?,
            commands(wrapper, &work::program()).next()?,
        ))
    }

    /// Reports whether the last answer of an operator, not from before `since`, claims this lock.
    pub fn reported_as_held(&self, lock: &str, since: BootInstant) -> bool {
        let poller = self.life.as_ref().and_then(|life| life.poller.as_ref());
        poller.is_some_and(|poller| {
            let answers = poller.answers.lock().unwrap();
            answers.latest_at >= since && answers.latest.iter().any(|(held, _)| held == lock)
        })
    }

    /// Reports whether the process ended by itself; returns its name and status if no fault explains the end.
    pub fn has_ended(&mut self) -> Option<Option<String>> {
        let life = self.life.as_mut()?;
        let status = life.child.ended()?;
        let explained = match status.code() {
            // The run was stopped, or its command was killed, or the lease was lost.
            Some(0) => life.poller.is_some(),
            Some(code) => life.poller.is_none() && [128 + 15, 128 + 9, 79].contains(&code),
            None => false,
        };
        Some((!explained).then(|| format!("{} ended by itself, {status}", life.who)))
    }

    /// Sends SIGKILL to the process if it runs. Returns its claims and its log.
    pub fn bury(&mut self, wall: &Wall) -> Option<(Vec<Claim>, Log)> {
        let mut life = self.life.take()?;
        life.child.kill();
        if life.poller.is_some() {
            // The wait collects the last lines. The children of a run may hold the pipe slightly longer.
            life.child.wait(BOUND);
        }
        let log = Log {
            who: life.who.clone(),
            lines: life.child.stderr(),
        };
        let claims = life
            .poller
            .as_mut()
            .map(|poller| poller.claims(&life.who, &log.lines, wall));
        Some((claims.unwrap_or_default(), log))
    }
}

#[derive(Debug)]
pub struct Log {
    pub who: String,
    pub lines: Vec<String>,
}

/// Sends the signal; a process that has already ended is ignored.
pub fn send(pid: i32, signal: Signal) {
    let _ = signal::kill(Pid::from_raw(pid), signal);
}

fn credentials(command: &mut Command, places: &Places) {
    command
        .args(["--username", USER, "--password-file"])
        .arg(places.password_file());
}

/// Writes the quorum through the proxies of one operator, and the locks.
fn manifests(folder: &Path, urls: &[String]) {
    fs::create_dir(folder).unwrap();
    let lease = LEASE.as_secs();
    let master = |(index, url): (usize, &String)| format!("  - {{name: m{index}, url: \"{url}\"}}\n");
    let masters: String = urls.iter().enumerate().map(master).collect();
    let quorum = format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: default}}\nspec:\n  masters:\n{masters}  \
         maxLeaseDurationSeconds: {lease}\n"
    );
    fs::write(folder.join("quorum.yaml"), quorum).unwrap();
    let lock = |name: &&str| {
        format!(
            "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}, namespace: chaos}}\n\
             spec: {{quorumRef: {{name: default}}, leaseDurationSeconds: {lease}}}\n"
        )
    };
    let locks: Vec<String> = OPERATOR_LOCKS.iter().map(lock).collect();
    fs::write(folder.join("locks.yaml"), locks.join("---\n")).unwrap();
}
