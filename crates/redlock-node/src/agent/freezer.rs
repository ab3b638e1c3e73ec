//! Runs the thread that writes to the cgroups of the pods, in the order of its commands, and freezes each pod
//! at the end of its permit even if the runtime is busy.
//!
//! All cgroup writes of the agent are made here, so a freeze by an earlier permit cannot follow the thaw by a
//! later permit.

use std::{
    collections::BTreeMap,
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
        pod::{self, Written},
    },
    deadlines::Deadlines,
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
}

/// A freeze that the thread wrote by itself, or by the first command since the permit ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Froze {
    /// The time from the moment at which the freeze was due until the file was written.
    pub(super) late: Duration,
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
    pub(super) fn start(reports: mpsc::UnboundedSender<Froze>) -> io::Result<Self> {
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
    reports: mpsc::UnboundedSender<Froze>,
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
                self.deadlines.set(&uid, until, clock::now());
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
                    self.write("thaw", &uid, pod::thaw);
                }
            }
            Command::Kill(uid) => self.write("kill", &uid, pod::kill),
            Command::Forget(uid) => {
                self.deadlines.remove(&uid);
                self.cgroups.remove(&uid);
            }
        }
    }

    fn freeze_due(&mut self) {
        for uid in self.deadlines.due(clock::now()) {
            self.freeze(&uid);
        }
    }

    fn freeze(&mut self, uid: &str) {
        self.write("freeze", uid, pod::freeze);
        let now = clock::now();
        let due = self.deadlines.froze(uid, now);
        if let Some(due) = due.filter(|due| *due != BootInstant::default()) {
            let late = now.since(due);
            let _ = self.reports.send(Froze { late });
        }
    }

    fn write(&self, what: &str, uid: &str, write: impl Fn(&Path) -> Result<Written, CgroupError>) {
        let Some(path) = self.cgroups.get(uid) else {
            return;
        };
        match write(path) {
            Ok(Written::Done) => tracing::debug!(pod = uid, what, "cgroup written"),
            Ok(Written::Gone) => tracing::debug!(pod = uid, what, "the cgroup is gone"),
            Err(error) => tracing::error!(pod = uid, error = %chain(&error), "the {what} failed"),
        }
    }
}
