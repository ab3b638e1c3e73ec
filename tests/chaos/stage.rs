//! Owns the masters, networks and processes. All of them end when the value is dropped.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::cast::{self, LEASE, MAJORITY, MASTERS, OPERATORS, PROCESSES, RUNS, WITH_AOF};
use crate::claims::Claim;
use crate::common::Resource;
use crate::naive::Refused;
use crate::process::{Log, PASSWORD, Places, Process, STRAY_PREFIX, USER};
use crate::program::init_each;
use crate::traces::Traces;
use crate::wall::Wall;
use crate::watch::Watch;
use crate::work;
use redlock_testkit::{Mode, Persistence, Proxy, RedisServer, ServerOptions};

/// Time for a successor before the killed process is started again.
const BACK: Duration = Duration::from_millis(700);
/// An answer of an operator that is not older than this is current.
const FRESH: Duration = Duration::from_secs(2);
/// The interval at which the two clocks are compared.
const SAMPLE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Stage {
    // Dropped in this order: the processes before the servers that they need.
    pub processes: Vec<Process>,
    pub watch: Watch,
    proxies: Vec<Vec<Proxy>>,
    pub masters: Vec<RedisServer>,
    resource: RedisServer,
    _network: Runtime,
    places: Places,
    /// The work ends when this folder is gone, however the test ends.
    _folder: TempDir,
    refused: Refused,
    wall: Wall,
    sampled: BootInstant,
    claims: Vec<Claim>,
    logs: Vec<Log>,
    ended: Vec<String>,
}

/// All observations, after all processes have ended.
#[derive(Debug)]
pub struct Seen {
    pub claims: Vec<Claim>,
    pub logs: Vec<Log>,
    /// Writes that the resource refused: of the work under the runs, and of the applications next to the operators.
    pub refused: u64,
    /// Ledgers with a token that went back.
    pub unfenced: Vec<String>,
    pub up: Vec<(BootInstant, BootInstant)>,
    /// Processes that ended although no fault ended them.
    pub ended: Vec<String>,
    pub traces: Traces,
}

/// Returns the ACL rule of docs/redis-acl.md as arguments for a running server.
pub fn acl() -> Vec<String> {
    const PAGE: &str = include_str!("../../docs/redis-acl.md");
    let line = PAGE.lines().find_map(|line| line.strip_prefix("user redlock "));
    let line = line.expect("the page has the line").replace("PASSWORD", PASSWORD);
    line.split(' ').map(str::to_owned).collect()
}

impl Stage {
    /// Starts all processes. With `stray`, the last run has a key prefix of its own.
    pub fn start(stray: bool) -> Self {
        let network = Runtime::new().unwrap();
        let server = |index| {
            let persistence = if index < WITH_AOF {
                Persistence::Aof
            } else {
                Persistence::None
            };
            let options = ServerOptions {
                persistence,
                users: vec![format!("{USER} {}", acl().join(" "))],
                ..ServerOptions::default()
            };
            RedisServer::start(&options).unwrap()
        };
        let masters: Vec<RedisServer> = (0..MASTERS).map(server).collect();
        let resource = RedisServer::start(&ServerOptions::default()).unwrap();
        let longest = format!("{}s", LEASE.as_secs());
        let flags = ["--max-lease-duration", longest.as_str()];
        let of_stray = [&flags[..], &["--key-prefix", STRAY_PREFIX]].concat();
        let quorums: [&[&str]; 2] = [&flags, &of_stray];
        init_each(&masters, &quorums[..=usize::from(stray)], &[]);
        let through = || -> Vec<Proxy> {
            let ports = masters.iter().map(RedisServer::port);
            ports.map(|port| network.block_on(Proxy::to_port(port))).collect()
        };
        let proxies: Vec<Vec<Proxy>> = (0..PROCESSES).map(|_| through()).collect();
        let folder = tempfile::Builder::new()
            .prefix("redlock-chaos-")
            .tempdir()
            .unwrap();
        let places = Places {
            folder: folder.path().to_owned(),
            resource: resource.url(),
        };
        places.prepare();
        let process = |index: usize| {
            let urls = proxies[index].iter().map(Proxy::url).collect();
            Process::new(index, urls, stray && index == PROCESSES - 1)
        };
        let own: Vec<String> = masters.iter().map(RedisServer::url).collect();
        let mut stage = Self {
            processes: (0..PROCESSES).map(process).collect(),
            watch: Watch::start(&own),
            proxies,
            masters,
            resource,
            _network: network,
            places,
            _folder: folder,
            refused: Refused::default(),
            wall: Wall::default(),
            sampled: BootInstant::default(),
            claims: Vec::new(),
            logs: Vec::new(),
            ended: Vec::new(),
        };
        stage.tend();
        for process in &mut stage.processes {
            process.start(&stage.places, &stage.refused);
        }
        stage
    }

    /// Starts processes that have ended, and compares the clocks. Must be called often.
    pub fn tend(&mut self) {
        let now = clock::now();
        if now.since(self.sampled) >= SAMPLE {
            self.wall.sample();
            self.sampled = now;
        }
        for index in 0..self.processes.len() {
            if let Some(why) = self.processes[index].has_ended() {
                self.ended.extend(why);
                self.bury(index);
            }
            let process = &mut self.processes[index];
            if process.back_at.is_some_and(|at| at <= now) {
                process.start(&self.places, &self.refused);
            }
        }
    }

    /// Sends SIGKILL; the process is started again after a delay.
    pub fn bury(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if let Some((claims, log)) = process.bury(&self.wall) {
            self.claims.extend(claims);
            self.logs.push(log);
            process.back_at = Some(clock::now() + BACK);
        }
    }

    /// Kills all operators and all runs that hold nothing, and starts them at once: the new processes have
    /// seen no lease to wait for, and the leases of the previous operators still count.
    pub fn start_anew(&mut self) {
        for index in 0..PROCESSES {
            if index < OPERATORS.len() || self.processes[index].guarded().is_none() {
                self.bury(index);
                self.processes[index].back_at = Some(clock::now());
            }
        }
        self.tend();
    }

    /// Returns the process that holds the lock, by its current state.
    pub fn holder(&self, lock: &str) -> Option<usize> {
        let since = clock::now() - FRESH;
        (0..PROCESSES).find(|&index| match index.checked_sub(OPERATORS.len()) {
            None => self.processes[index].reported_as_held(lock, since),
            Some(run) => RUNS[run].1 == lock && self.processes[index].guarded().is_some(),
        })
    }

    pub fn set_network(&self, process: usize, masters: &[usize], mode: Mode) {
        for master in masters {
            self.proxies[process][*master].set(mode);
        }
    }

    /// Runs a command on a master with the rights of the user `default`, which the processes do not have.
    pub fn admin<T: redis::FromRedisValue>(&self, master: usize, words: &[&str]) -> redis::RedisResult<T> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let client = redis::Client::open(self.masters[master].url())?;
        let mut connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut connection)
    }

    /// Ends all processes and reads their records. `began` is the first time at which all was in order.
    pub fn end(mut self, began: BootInstant) -> Seen {
        let ended = clock::now();
        for index in 0..PROCESSES {
            self.bury(index);
        }
        let (of_runs, refused) = work::records(&self.places.records());
        let mut claims = std::mem::take(&mut self.claims);
        claims.extend(of_runs);
        let goes_back = |lock: &String| {
            let tokens = Resource::open(&self.resource.url(), lock).tokens();
            !tokens.is_sorted()
        };
        Seen {
            traces: Traces::replay(&self.places.traces()),
            claims,
            logs: std::mem::take(&mut self.logs),
            refused: refused + self.refused.load(Ordering::Relaxed),
            unfenced: cast::locks().into_iter().filter(goes_back).collect(),
            up: self.watch.intervals(MAJORITY, began, ended),
            ended: std::mem::take(&mut self.ended),
        }
    }
}
