//! The masters, network, processes and folder of one trial. Nothing of them outlives the value.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::Signal;
use redlock::lease::BootInstant;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::common::Resource;
use crate::fenced::LEDGER;
use crate::observer::Observer;
use crate::processes;
use crate::program::{init, urls};
use crate::records;
use crate::work::Work;
use redlock_testkit::{
    ChildGuard, Mode, Proxy, RedisServer, RedisServers, ServerOptions, eventually_blocking,
};

/// A short lease, so that many trials fit, but long enough for more than one renewal.
pub const LEASE: Duration = Duration::from_secs(6);
pub const LOCK: &str = "billing/ledger";
/// A bound for a machine that starves on purpose; a correct run stays far below.
pub const BOUND: Duration = Duration::from_secs(60);

/// Whether `redlock run` has a guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guardian {
    On,
    Off,
}

#[derive(Debug)]
pub struct Stage {
    // Dropped in this order: the holders before the servers that they need.
    frozen: Mutex<Vec<i32>>,
    old: ChildGuard,
    new: Mutex<ChildGuard>,
    pub observer: Observer,
    proxies: Vec<Proxy>,
    masters: RedisServers,
    resource: RedisServer,
    folder: TempDir,
}

impl Stage {
    /// Starts both holders. Returns once the old holder writes and the new one has been started.
    pub fn start(work: Work, guardian: Guardian, network: &Handle) -> Self {
        let masters = RedisServers::start(3, &ServerOptions::default()).unwrap();
        let resource = RedisServer::start(&ServerOptions::default()).unwrap();
        initialise(&masters);
        let ports = masters.iter().map(RedisServer::port);
        let proxies: Vec<Proxy> = ports.map(|port| network.block_on(Proxy::to_port(port))).collect();
        let observer = Observer::start(&masters.urls(), LOCK, LEASE);
        let folder = tempfile::tempdir().unwrap();
        let holder = |name, urls: &str, work: Work| {
            holder(name, urls, work, guardian, (folder.path(), &resource.url()))
        };
        let through: Vec<String> = proxies.iter().map(Proxy::url).collect();
        let through = through.join(",");
        let mut old = holder("old", &through, work);
        eventually_blocking(BOUND, "the old holder writes", || {
            let first = records::first(folder.path(), "old");
            if first.is_none() && old.ended().is_some() {
                // On a starving machine the old holder may lose its first lease before its work has begun.
                old = holder("old", &through, work);
            }
            first.ok_or(old.stderr())
        });
        let new = holder("new", &urls(&masters), Work::Plain);
        Self {
            frozen: Mutex::default(),
            old,
            new: Mutex::new(new),
            observer,
            proxies,
            masters,
            resource,
            folder,
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Reports whether the old holder has lost its lease and ended.
    pub fn lost(&mut self) -> bool {
        self.old.ended().is_some_and(|status| status.code() == Some(79))
    }

    pub fn wrapper(&self) -> i32 {
        i32::try_from(self.old.pid()).unwrap()
    }

    pub fn guardian(&self) -> i32 {
        eventually_blocking(BOUND, "the old holder has a guardian", || {
            processes::guardian(self.wrapper()).ok_or(())
        })
    }

    /// Returns the time for which the guardian waited for a CPU since its start, while the guardian exists.
    pub fn guardian_waits(&self) -> Option<Duration> {
        processes::guardian(self.wrapper()).and_then(processes::waited)
    }

    /// Returns the processes of the old holder's work.
    pub fn work(&self) -> Vec<i32> {
        records::pids(self.folder(), "old")
    }

    /// Drops all bytes between the old holder and the masters from now on.
    pub fn cut(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set(Mode::BlackHole));
    }

    /// Ends the cut. Connections that lost bytes end.
    pub fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    pub fn kill_masters(&self) {
        self.masters.iter().for_each(RedisServer::kill);
    }

    /// Replaces the killed masters with masters without memory, sealed at once: no lease is live.
    pub fn replace_masters(&self) {
        self.masters
            .iter()
            .for_each(|master| master.restart_empty().unwrap());
        initialise(&self.masters);
        // A process keeps the quorum id that it has learned, so the waiting one is started again.
        let place = (self.folder.path(), self.resource.url());
        let new = holder(
            "new",
            &urls(&self.masters),
            Work::Plain,
            Guardian::On,
            (place.0, &place.1),
        );
        *self.new.lock().unwrap() = new;
    }

    /// Sends SIGSTOP. The process is woken at the end of the trial at the latest.
    pub fn freeze(&self, pid: i32) {
        self.frozen.lock().unwrap().push(pid);
        processes::send(pid, Signal::SIGSTOP);
    }

    pub fn wake(&self, pid: i32) {
        processes::send(pid, Signal::SIGCONT);
    }

    /// Waits until the new holder writes; returns the time of its first write.
    pub fn new_writes(&self) -> BootInstant {
        eventually_blocking(BOUND, "the new holder writes", || {
            records::first(self.folder(), "new")
                .ok_or_else(|| (self.old.stderr(), self.new.lock().unwrap().stderr()))
        })
    }

    pub fn resource(&self) -> Resource {
        Resource::open(&self.resource.url(), LEDGER)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.frozen.lock().unwrap().iter().for_each(|pid| self.wake(*pid));
        for pid in [self.old.pid(), self.new.lock().unwrap().pid()] {
            processes::send(i32::try_from(pid).unwrap(), Signal::SIGKILL);
        }
        for name in ["old", "new"] {
            records::pids(self.folder(), name)
                .into_iter()
                .for_each(processes::kill_work);
        }
    }
}

fn initialise(masters: &RedisServers) {
    let longest = format!("{}s", LEASE.as_secs());
    init(masters, &["--max-lease-duration", &longest], &[]);
}

/// Returns a `redlock run` whose work writes to the folder and to the resource.
fn holder(
    name: &'static str,
    urls: &str,
    work: Work,
    guardian: Guardian,
    place: (&Path, &str),
) -> ChildGuard {
    let mut command = run(name, urls);
    // On a starving machine the masters may answer late.
    if name == "new" {
        command.arg("--service");
    } else {
        command.args(["--timeout", &BOUND.as_secs().to_string()]);
    }
    command.args(work.flags()).arg("--");
    if guardian == Guardian::Off {
        command.env("REDLOCK_TEST_WITHOUT_GUARDIAN", "1");
    }
    work.add_to(&mut command, name, place.0, place.1);
    ChildGuard::spawn(name, &mut command)
}

/// Returns `redlock run …`, without any REDLOCK_ variable of the environment.
fn run(name: &str, urls: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    crate::common::forget_variables(&mut command);
    let lease = format!("{}s", LEASE.as_secs());
    command.args(["run", LOCK, "--masters", urls, "--identity", name]);
    command.args(["--lease-duration", &lease]);
    command
}
