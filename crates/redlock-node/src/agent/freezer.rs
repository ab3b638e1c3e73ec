//! Runs the thread that writes to the cgroups of the pods, in the order of its commands, and freezes each pod
//! at the end of its permit even if the runtime is busy.
//!
//! All cgroup writes of the agent are made here, so a freeze by an earlier permit cannot follow the thaw by a
//! later permit.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use redlock_client::clock;
use redlock_core::BootInstant;
use tokio::sync::mpsc;

use crate::{
    cgroup::{
        CgroupError,
        ability::{self, FreezeTrialError},
        pod::{self, Written},
    },
    deadlines::{Deadlines, RETRY_FAILED},
    guardian::chain,
    realtime,
    waker::Waker,
};

#[derive(Debug)]
enum Command {
    /// The pod may run until the given time.
    Until(String, PathBuf, BootInstant),
    Freeze(String, PathBuf),
    Thaw(String),
    Kill(String),
    Forget(String),
    /// Try to freeze the empty cgroup of a pod that is about to start.
    TryFreeze(String, PathBuf),
}

/// A result of the thread, for the task that owns the records.
#[derive(Debug)]
pub(super) enum FreezerReport {
    /// A freeze was written. `late` is the time since the freeze was due, for the first freeze by the end of a permit.
    Wrote { uid: String, late: Option<Duration> },
    /// The first freeze of a pod that could not be written since one was.
    WriteFailed { uid: String, reason: String },
    /// The result of [`Freezer::try_freeze`], and the time that it took.
    Tried {
        uid: String,
        took: Duration,
        result: Result<(), FreezeTrialError>,
    },
}

/// The thread and its commands.
#[derive(Debug)]
pub(super) struct Freezer {
    commands: Option<Sender<Command>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Freezer {
    /// # Errors
    /// Returns an error if the kernel refuses a timer or a thread.
    pub(super) fn start(reports: mpsc::UnboundedSender<FreezerReport>) -> io::Result<Self> {
        let (commands, received) = channel();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let (waker, woken) = (Waker::new()?, wake.clone());
        let thread = std::thread::Builder::new().name("redlock-freezer".into());
        let thread = thread.spawn(move || {
            for granted in [realtime::schedule_first(), realtime::keep_used_memory()] {
                if let Err(reason) = granted {
                    tracing::warn!("the thread that freezes is degraded: {reason}");
                }
            }
            let mut work = Work {
                deadlines: Deadlines::default(),
                cgroups: BTreeMap::new(),
                failing: BTreeSet::new(),
                reports,
            };
            work.run(&received, &waker, &woken);
        })?;
        Ok(Self {
            commands: Some(commands),
            wake,
            thread: Some(thread),
        })
    }

    pub(super) fn until(&self, uid: &str, cgroup: &Path, until: BootInstant) {
        self.send(Command::Until(uid.to_owned(), cgroup.to_owned(), until));
    }

    pub(super) fn freeze(&self, uid: &str, cgroup: &Path) {
        self.send(Command::Freeze(uid.to_owned(), cgroup.to_owned()));
    }

    /// Thaws the pod, unless its permit has ended in the meantime.
    pub(super) fn thaw(&self, uid: &str) {
        self.send(Command::Thaw(uid.to_owned()));
    }

    pub(super) fn kill(&self, uid: &str) {
        self.send(Command::Kill(uid.to_owned()));
    }

    pub(super) fn forget(&self, uid: &str) {
        self.send(Command::Forget(uid.to_owned()));
    }

    /// Freezes the empty cgroup of a pod that is about to start, and reports whether that worked. The cgroup stays
    /// frozen until [`Self::thaw`].
    pub(super) fn try_freeze(&self, uid: &str, cgroup: &Path) {
        self.send(Command::TryFreeze(uid.to_owned(), cgroup.to_owned()));
    }

    fn send(&self, command: Command) {
        let sent = self.commands.as_ref().is_some_and(|to| to.send(command).is_ok());
        // A full counter is also readable.
        let _ = self.wake.write(1);
        if !sent {
            tracing::error!("the thread that freezes has ended; the guardian freezes alone");
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that freezes panicked");
        }
    }
}

struct Work {
    deadlines: Deadlines,
    cgroups: BTreeMap<String, PathBuf>,
    /// The pods whose last freeze could not be written.
    failing: BTreeSet<String>,
    reports: mpsc::UnboundedSender<FreezerReport>,
}

impl Work {
    /// Returns when the sender of commands is gone.
    fn run(&mut self, commands: &Receiver<Command>, waker: &Waker, wake: &EventFd) {
        loop {
            let _ = wake.read();
            loop {
                // A freeze that is due does not wait for further commands.
                self.freeze_due();
                match commands.try_recv() {
                    Ok(command) => self.carry_out(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if let Err(error) = waker.wait(self.deadlines.next(), [Some(wake)]) {
                tracing::error!(%error, "the thread that freezes cannot wait");
                return;
            }
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Until(uid, cgroup, until) => {
                let now = clock::now();
                self.deadlines.set(&uid, until, now);
                if self.deadlines.permits(&uid, now) {
                    self.failing.remove(&uid);
                }
                self.cgroups.insert(uid, cgroup);
            }
            Command::Freeze(uid, cgroup) => {
                self.cgroups.insert(uid.clone(), cgroup);
                // The deadline of the former permit no longer counts.
                if self.deadlines.permits(&uid, clock::now()) || !self.deadlines.pods().any(|pod| pod == uid)
                {
                    self.deadlines.set(&uid, BootInstant::default(), clock::now());
                }
                self.freeze(&uid);
            }
            Command::Thaw(uid) => {
                if self.deadlines.permits(&uid, clock::now()) {
                    self.write_or_log("thaw", &uid, pod::thaw);
                }
            }
            Command::Kill(uid) => self.write_or_log("kill", &uid, pod::kill),
            Command::Forget(uid) => {
                self.deadlines.remove(&uid);
                self.cgroups.remove(&uid);
                self.failing.remove(&uid);
            }
            Command::TryFreeze(uid, cgroup) => {
                let begun = clock::now();
                let result = ability::try_freeze(&cgroup);
                let took = clock::now().since(begun);
                let _ = self.reports.send(FreezerReport::Tried { uid, took, result });
            }
        }
    }

    fn freeze_due(&mut self) {
        for uid in self.deadlines.due(clock::now()) {
            self.freeze(&uid);
        }
    }

    /// Freezes a pod, and reports whether the freeze was written. A freeze that failed is tried again until it is
    /// written.
    fn freeze(&mut self, uid: &str) {
        let written = self.write(uid, pod::freeze);
        let (uid, now) = (uid.to_owned(), clock::now());
        match written {
            Ok(written) => {
                let due = self.deadlines.froze(&uid, now);
                let late = due.filter(|due| *due != BootInstant::default());
                let late = late.map(|due| now.since(due));
                if self.failing.remove(&uid) {
                    tracing::warn!(pod = uid, ?written, "the freeze is written after failed attempts");
                }
                let _ = self.reports.send(FreezerReport::Wrote { uid, late });
            }
            Err(error) => {
                self.deadlines.failed(&uid, now + RETRY_FAILED);
                if self.failing.insert(uid.clone()) {
                    let reason = chain(&error);
                    tracing::error!(pod = uid, error = reason, "the freeze failed: the pod may run on");
                    let _ = self.reports.send(FreezerReport::WriteFailed { uid, reason });
                }
            }
        }
    }

    fn write_or_log(&self, what: &str, uid: &str, write: impl Fn(&Path) -> Result<Written, CgroupError>) {
        if let Err(error) = self.write(uid, write) {
            tracing::error!(pod = uid, error = %chain(&error), "the {what} failed");
        }
    }

    /// Writes to the cgroup of a pod. A pod without a known cgroup has no process that could be reached.
    fn write(
        &self,
        uid: &str,
        write: impl Fn(&Path) -> Result<Written, CgroupError>,
    ) -> Result<Written, CgroupError> {
        let Some(path) = self.cgroups.get(uid) else {
            return Ok(Written::Gone);
        };
        let written = write(path)?;
        tracing::debug!(pod = uid, ?written, "cgroup written");
        Ok(written)
    }
}
