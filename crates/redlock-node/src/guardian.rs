//! Runs the guardian, which freezes each pod of the table at the end of its permit, whether or not the agent
//! runs.
//!
//! The guardian is a separate process without a runtime. It does not wait for a disk. It freezes, and never
//! thaws or kills. It acknowledges the entry of a pod that is about to start after it has frozen the
//! empty cgroup of the pod. Before each freeze, it reads the entry again, so that a later entry counts. If an entry is
//! deleted without the state `Ended`, the guardian keeps the end of its permit; the entry of a released pod
//! has no end, and its pod is frozen at once.

mod ability;
mod end;
mod freeze;
mod scan;

use std::{
    collections::BTreeMap,
    fs, io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
    time::Duration,
};

use nix::sys::{
    inotify::{AddWatchFlags, InitFlags, Inotify},
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use redlock_client::clock;
use redlock_core::BootInstant;
use thiserror::Error;

use self::scan::Scan;
use crate::{
    cgroup::ability::check_node,
    deadlines::Deadlines,
    kubelet::Published,
    realtime,
    table::{FoundGuarded, GuardianReport, Table, TableError},
    waker::Waker,
};

/// The interval of heartbeats, and of reading all entries: a change that inotify did not report is found
/// within this time.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the table, on tmpfs.
    pub state_dir: PathBuf,
    /// The mount point of the cgroup2 file system of the node.
    pub cgroup_root: PathBuf,
    /// The directory of the kubelet. A pod with a volume there is frozen while the table has no entry for it.
    pub kubelet_dir: Option<PathBuf>,
}

#[derive(Debug, Error)]
pub enum GuardianError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("the guardian cannot wait for its next deadline")]
    Wait(#[from] io::Error),
}

/// SIGTERM and SIGINT, as a file to wait for.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks both signals. Call this before the process has further threads: as the first process of a
    /// container, it would otherwise lose a signal to a thread that does not block the signal.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the file.
    pub fn block() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&signals, flags)?))
    }
}

/// Runs until SIGTERM or SIGINT, and then until no pod needs this process: another guardian has reported, no pod has a
/// record, or each permit has ended and no process of a pod runs.
///
/// # Errors
/// Returns an error if the table cannot be opened, or if the kernel refuses a timer.
pub fn run(options: &Options, signals: &Signals) -> Result<(), GuardianError> {
    Guardian::new(options)?.run(&signals.0)
}

struct Guardian {
    options: Options,
    table: Table,
    deadlines: Deadlines,
    cgroups: BTreeMap<String, Cgroup>,
    /// The reasons why the guardian is degraded.
    degraded: Vec<String>,
    /// The pods that the guardian cannot freeze, and why.
    unable: BTreeMap<String, String>,
    refresh_at: BootInstant,
    /// The time at which the process was asked to end.
    ending: Option<BootInstant>,
    /// `None` without a directory of the kubelet.
    scan: Option<Scan>,
    /// Whether the volumes that the kubelet had when the guardian started are known.
    scanned: bool,
}

/// The cgroup in which a pod is frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cgroup {
    At(PathBuf),
    /// The cgroup of an entry that was deleted without the state `Ended`.
    Deleted(PathBuf),
    /// The entry cannot be read, or was lost.
    Unknown,
}

impl Guardian {
    fn new(options: &Options) -> Result<Self, GuardianError> {
        let table = Table::open(&options.state_dir)?;
        let scan = options.kubelet_dir.clone().map(Scan::start).transpose()?;
        let refused = [
            realtime::schedule_first(),
            realtime::lock_memory(),
            table.is_on_tmpfs(),
        ];
        let degraded: Vec<String> = refused.into_iter().filter_map(Result::err).collect();
        for reason in &degraded {
            tracing::warn!("the guardian is degraded: {reason}");
        }
        Ok(Self {
            options: options.clone(),
            table,
            deadlines: Deadlines::default(),
            cgroups: BTreeMap::new(),
            degraded,
            unable: BTreeMap::new(),
            refresh_at: BootInstant::default(),
            ending: None,
            scan,
            scanned: false,
        })
    }

    fn run(mut self, signals: &SignalFd) -> Result<(), GuardianError> {
        let waker = Waker::new()?;
        let mut changes = self.watch();
        tracing::info!(state_dir = %self.options.state_dir.display(), "the guardian runs");
        loop {
            self.freeze_due();
            if clock::now() >= self.refresh_at {
                self.refresh();
                // A directory that was deleted and created again is another one. Changes in the meantime are
                // read once more.
                if changes.as_ref().map(|(_, inode)| *inode) != self.inode() {
                    changes = self.watch();
                    self.refresh();
                }
                self.freeze_due();
            }
            let next = self.deadlines.next().min(self.refresh_at);
            let changed = changes.as_ref().map(|(changes, _)| changes as &dyn AsFd);
            let scanned = self.scan.as_ref().map(|scan| scan.done() as &dyn AsFd);
            let files = [Some(signals as &dyn AsFd), changed, scanned];
            let [signalled, changed, scanned] = waker.wait(next, files)?;
            if signalled {
                self.begin_end(signals);
            }
            if let Some(reason) = self.may_end() {
                tracing::info!(?reason, "the guardian ends");
                return Ok(());
            }
            if changed && let Some((changes, _)) = &changes {
                self.read_changes(changes);
            }
            if scanned && let Some(published) = self.scan.as_ref().and_then(Scan::take) {
                self.find_lost(&published);
            }
        }
    }

    /// Watches the entries; `None` if inotify is not available: the entries are then read every second.
    fn watch(&self) -> Option<(Inotify, u64)> {
        let inode = self.inode()?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        inotify.add_watch(&self.table.entries(), flags).ok()?;
        Some((inotify, inode))
    }

    fn inode(&self) -> Option<u64> {
        fs::metadata(self.table.entries()).ok().map(|found| found.ino())
    }

    fn read_changes(&mut self, changes: &Inotify) {
        let Ok(events) = changes.read_events() else {
            // All entries are read at the next refresh.
            return;
        };
        for name in events.into_iter().filter_map(|event| event.name) {
            let name = name.to_string_lossy();
            if !name.starts_with('.') {
                self.read(&name);
            }
        }
    }

    /// Reads all entries, and reports that the guardian runs.
    fn refresh(&mut self) {
        let now = clock::now();
        self.refresh_at = now + REFRESH;
        if let Err(error) = self.table.create() {
            tracing::error!(error = %chain(&error), "the table cannot be created");
        }
        let known: Vec<String> = self.cgroups.keys().cloned().collect();
        match self.table.uids() {
            Ok(found) => {
                for uid in known.iter().chain(&found) {
                    self.read(uid);
                }
            }
            Err(error) => tracing::error!(error = %chain(&error), "the table cannot be read"),
        }
        if !self.scanned || self.unknown_pods().next().is_some() {
            self.scan.iter().for_each(Scan::ask);
        }
        self.check_known();
        let node = check_node(&self.options.cgroup_root);
        let report = GuardianReport {
            degraded: self.degraded.clone(),
            pods: self.deadlines.len(),
            unable: self.unable.clone(),
            node_unable: node.err().map(|error| chain(&error)),
        };
        // The report of a successor must stay, and the agent must not count on a process that ends.
        if self.ending.is_none()
            && let Err(error) = self.table.write_heartbeat(report, now)
        {
            tracing::error!(error = %chain(&error), "the heartbeat cannot be written");
        }
    }

    /// Reads one entry, keeps its deadline, and acknowledges it.
    fn read(&mut self, uid: &str) {
        match self.table.read_guarded(uid) {
            FoundGuarded::Pod(pod) => {
                match pod.until {
                    Some(until) => {
                        self.deadlines.set(uid, until, clock::now());
                        let cgroup = Cgroup::At(pod.cgroup.clone());
                        self.cgroups.insert(uid.to_owned(), cgroup);
                    }
                    None => self.forget(uid),
                }
                if !self.table.is_acknowledged(uid, &pod.bytes)
                    && self.may_acknowledge(uid, &pod)
                    && let Err(error) = self.table.acknowledge(uid, &pod.bytes)
                {
                    tracing::error!(error = %chain(&error), pod = uid, "an entry cannot be acknowledged");
                }
            }
            FoundGuarded::Unreadable { reason } => self.unknown(uid, &reason),
            FoundGuarded::Missing => {
                let Some(Cgroup::At(path)) = self.cgroups.get(uid).cloned() else {
                    return;
                };
                if self.deadlines.until(uid) == Some(BootInstant::NEVER) {
                    // A release has no end that could be kept.
                    return self.unknown(uid, "the entry of the released pod was deleted");
                }
                tracing::warn!(
                    pod = uid,
                    "the entry was deleted; the pod is frozen at the end of its permit"
                );
                self.cgroups.insert(uid.to_owned(), Cgroup::Deleted(path));
            }
        }
    }

    fn forget(&mut self, uid: &str) {
        self.deadlines.remove(uid);
        self.cgroups.remove(uid);
        self.unable.remove(uid);
    }

    /// Freezes an unknown pod at once, and again every second.
    fn unknown(&mut self, uid: &str, reason: &str) {
        let known = self.cgroups.insert(uid.to_owned(), Cgroup::Unknown);
        if known != Some(Cgroup::Unknown) {
            tracing::warn!(pod = uid, reason, "nothing is known of the pod: it is frozen");
        }
        self.deadlines.set(uid, BootInstant::default(), clock::now());
    }

    /// Finds the pods that have a volume of the kubelet but no entry: the table was lost before the guardian
    /// started. A pod that appears later is about to be started by the agent.
    fn find_lost(&mut self, published: &[Published]) {
        let has_volume = |uid: &str| published.iter().any(|volume| volume.uid == uid);
        let over: Vec<String> = self
            .unknown_pods()
            .filter(|uid| !has_volume(uid) && self.table.read_guarded(uid) == FoundGuarded::Missing)
            .map(str::to_owned)
            .collect();
        over.iter().for_each(|uid| self.forget(uid));
        if !std::mem::replace(&mut self.scanned, true) {
            for volume in published {
                self.read(&volume.uid);
                if !self.cgroups.contains_key(&volume.uid) {
                    self.unknown(&volume.uid, "the table has no entry for a volume of the kubelet");
                }
            }
        }
    }

    fn unknown_pods(&self) -> impl Iterator<Item = &str> {
        let unknown = self
            .cgroups
            .iter()
            .filter(|(_, cgroup)| **cgroup == Cgroup::Unknown);
        unknown.map(|(uid, _)| uid.as_str())
    }

    /// Freezes the pods that are due. A pod whose cgroup is known waits for at most one search for another
    /// cgroup: each search walks the whole tree.
    fn freeze_due(&mut self) {
        self.freeze_known();
        for uid in self.deadlines.due(clock::now()) {
            self.freeze_if_due(&uid);
            self.freeze_known();
        }
    }

    fn freeze_known(&mut self) {
        for uid in self.deadlines.due(clock::now()) {
            let cgroup = self.cgroups.get(&uid);
            if cgroup.is_some_and(|cgroup| *cgroup != Cgroup::Unknown) {
                self.freeze_if_due(&uid);
            }
        }
    }

    fn freeze_if_due(&mut self, uid: &str) {
        // A later entry may have been written since (P-117).
        self.read(uid);
        if self.deadlines.is_due(uid, clock::now()) {
            self.freeze(uid);
        }
    }
}

/// Returns the text of an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
