//! Handles a cgroup of version 2: creates it below the cgroup of this process, kills it as a whole, and
//! detects that it is empty.
//!
//! Each operation is a read or a write of one file of the kernel's interface. A state that cannot be read is
//! an error, never an empty cgroup.

pub mod ability;
mod error;
mod own;
pub mod pod;

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
    unistd::Pid,
};
use rustix::process::{self, PidfdFlags};

pub use error::CgroupError;

use redlock_client::clock;

const PROCESSES: &str = "cgroup.procs";
const KILL: &str = "cgroup.kill";
const EVENTS: &str = "cgroup.events";
const TYPE: &str = "cgroup.type";
/// A size greater than that of `cgroup.events`.
const EVENTS_LENGTH: usize = 256;
/// Number of passes of a signal. Each pass signals the processes that earlier passes did not see. Processes
/// that fork faster are killed at the deadline.
const PASSES: u32 = 8;
/// The number of processes that are open at once while they are signalled.
const OPEN_AT_ONCE: usize = 64;

/// A cgroup. The files that matter are open from the beginning, so a process with too many open files can
/// still kill the cgroup.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    kill: File,
    events: File,
}

impl Cgroup {
    /// Creates a cgroup below the cgroup of this process.
    ///
    /// # Errors
    /// Returns an error without a cgroup2 file system, without the right to create a cgroup there, below a
    /// threaded parent, or on a kernel without `cgroup.kill`.
    pub fn create(name: &str) -> Result<Self, CgroupError> {
        Self::create_below(&own::directory()?, name)
    }

    fn create_below(parent: &Path, name: &str) -> Result<Self, CgroupError> {
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|cause| CgroupError::create(&path, cause))?;
        let opened = check_type(&path).and_then(|()| Self::open(path.clone()));
        if opened.is_err() {
            let _ = fs::remove_dir(&path);
        }
        opened
    }

    /// Opens a cgroup that exists.
    pub fn open(path: PathBuf) -> Result<Self, CgroupError> {
        let file = path.join(KILL);
        let kill = match OpenOptions::new().write(true).open(&file) {
            Ok(kill) => kill,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Err(CgroupError::no_kill(&path)),
            Err(cause) => return Err(CgroupError::file("opening", &file, cause)),
        };
        let file = path.join(EVENTS);
        let events = File::open(&file).map_err(|cause| CgroupError::file("opening", &file, cause))?;
        Ok(Self { path, kill, events })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a process into the cgroup, with all its threads but without its children.
    pub fn add(&self, process: Pid) -> Result<(), CgroupError> {
        let file = self.path.join(PROCESSES);
        let opened = OpenOptions::new().write(true).open(&file);
        opened
            .and_then(|mut procs| procs.write_all(process.to_string().as_bytes()))
            .map_err(|cause| CgroupError::add(&file, cause))
    }

    /// Sends SIGKILL to every process in the cgroup and below it, including processes that are being forked.
    pub fn kill(&self) -> Result<(), CgroupError> {
        let written = self.kill.write_all_at(b"1", 0);
        written.map_err(|cause| CgroupError::file("writing", &self.path.join(KILL), cause))
    }

    /// Reports whether no process is in the cgroup or below it.
    pub fn is_empty(&self) -> Result<bool, CgroupError> {
        let file = || self.path.join(EVENTS);
        let mut text = [0; EVENTS_LENGTH];
        let read = self.events.read_at(&mut text, 0);
        let read = read.map_err(|cause| CgroupError::file("reading", &file(), cause))?;
        let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default());
        pod::flag(&text, "populated ")
            .map(|populated| !populated)
            .ok_or_else(|| CgroupError::file("reading", &file(), ErrorKind::InvalidData.into()))
    }

    /// Waits until the cgroup is empty, for at most this time; returns whether it is empty.
    pub fn is_empty_within(&self, time: Duration) -> Result<bool, CgroupError> {
        let end = clock::now() + time;
        loop {
            // The read marks the events that were seen: a change after it ends the poll at once.
            let empty = self.is_empty()?;
            let left = end.left(clock::now());
            if empty || left.is_zero() {
                return Ok(empty);
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            // The poll also ends by a signal, such as SIGCHLD of a child that was killed here, and by an
            // event of another kind.
            let _ = poll(
                &mut [PollFd::new(self.events.as_fd(), PollFlags::POLLPRI)],
                timeout,
            );
        }
    }

    /// Sends a signal to each process in the cgroup and below it for which `wanted` returns true.
    pub fn signal(&self, signal: Signal, wanted: impl Fn(Pid) -> bool) -> Result<(), CgroupError> {
        let mut seen = HashSet::new();
        for _ in 0..PASSES {
            let mut new = processes(&self.path)?;
            new.retain(|process| seen.insert(*process) && wanted(*process));
            if new.is_empty() {
                break;
            }
            for some in new.chunks(OPEN_AT_ONCE) {
                self.signal_each(signal, some)?;
            }
        }
        Ok(())
    }

    /// Signals these processes. A number that is still in the cgroup once its process is open cannot belong
    /// to a process outside the cgroup.
    fn signal_each(&self, signal: Signal, numbers: &[Pid]) -> Result<(), CgroupError> {
        let opened: Vec<(Pid, OwnedFd)> = numbers
            .iter()
            .filter_map(|pid| Some((*pid, open(*pid)?)))
            .collect();
        let inside: HashSet<Pid> = processes(&self.path)?.into_iter().collect();
        let inside = opened.iter().filter(|(pid, _)| inside.contains(pid));
        for (_, process) in inside {
            if let Some(signal) = process::Signal::from_named_raw(signal as i32) {
                // The process may have ended.
                let _ = process::pidfd_send_signal(process, signal);
            }
        }
        Ok(())
    }

    /// Removes the directory, and those that its processes created below it. The kernel refuses to remove a
    /// directory with a process.
    pub fn remove(&self) -> Result<(), CgroupError> {
        remove(&self.path)
    }
}

fn open(process: Pid) -> Option<OwnedFd> {
    process::pidfd_open(process::Pid::from_raw(process.as_raw())?, PidfdFlags::empty()).ok()
}

/// Checks the type: below a cgroup whose threads are distributed over cgroups, a new cgroup cannot hold a
/// process.
fn check_type(path: &Path) -> Result<(), CgroupError> {
    let file = path.join(TYPE);
    match fs::read_to_string(&file) {
        Ok(kind) if kind.trim() == "domain" => Ok(()),
        Ok(kind) => Err(CgroupError::Threaded {
            path: path.to_owned(),
            kind: kind.trim().to_owned(),
        }),
        // Every cgroup2 file system has `cgroup.type`. Without it, this is another file system, and `open`
        // reports the missing `cgroup.kill`.
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(CgroupError::file("reading", &file, cause)),
    }
}

/// Returns the processes of a cgroup and of all cgroups below it. A process of a foreign pid namespace has
/// the number 0 here and cannot be signalled.
fn processes(path: &Path) -> Result<Vec<Pid>, CgroupError> {
    let file = path.join(PROCESSES);
    let text = unless_gone(fs::read_to_string(&file));
    let text = text.map_err(|cause| CgroupError::file("reading", &file, cause))?;
    let numbers = text.lines().filter_map(|line| line.parse().ok());
    let mut found: Vec<Pid> = numbers.filter(|number| *number > 0).map(Pid::from_raw).collect();
    for below in directories(path)? {
        found.extend(processes(&below)?);
    }
    Ok(found)
}

fn directories(path: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    unless_gone(crate::directories::below(path)).map_err(|cause| CgroupError::file("reading", path, cause))
}

/// Replaces a list that is gone or not supported by an empty one: a cgroup that was removed in the meantime
/// has no process, and the processes of a threaded cgroup are in the list of the cgroup above it.
fn unless_gone<T: Default>(read: io::Result<T>) -> io::Result<T> {
    let gone = [Errno::ENOENT, Errno::ENODEV, Errno::EOPNOTSUPP].map(|errno| Some(errno as i32));
    read.or_else(|cause| {
        if gone.contains(&cause.raw_os_error()) {
            Ok(T::default())
        } else {
            Err(cause)
        }
    })
}

fn remove(path: &Path) -> Result<(), CgroupError> {
    for below in directories(path)? {
        remove(&below)?;
    }
    match fs::remove_dir(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(CgroupError::file("removing", path, cause)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use redlock_testkit::eventually_blocking;

    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    #[test]
    fn state_that_cannot_be_read_is_not_empty() {
        assert_eq!(pod::flag("populated 0\nfrozen 0\n", "populated "), Some(false));
        assert_eq!(pod::flag("frozen 1\npopulated 1\n", "populated "), Some(true));
        for text in [
            "",
            "frozen 0\n",
            "populated \n",
            "populated 2\n",
            "unpopulated 0\n",
        ] {
            assert_eq!(pod::flag(text, "populated "), None, "{text:?}");
        }
    }

    /// A folder of another file system has no files of a cgroup, just as a cgroup of a kernel before 5.14 has
    /// no `cgroup.kill`.
    #[test]
    fn cgroup_that_cannot_be_killed_is_refused_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let error = Cgroup::create_below(folder.path(), "new")
            .unwrap_err()
            .to_string();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        for part in ["new/cgroup.kill", "5.14", kernel.trim()] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
        assert!(!folder.path().join("new").exists());
    }

    /// The kernel reports a freeze in the same file.
    #[test]
    fn wait_for_an_empty_cgroup_outlasts_another_event() {
        let created = Cgroup::create(&format!("test-events-{}", std::process::id()));
        let cgroup = match created {
            Ok(cgroup) => cgroup,
            Err(error) => {
                let report = format!("NOT TESTED: an event of a cgroup: {error}");
                assert!(std::env::var("CGROUPS").as_deref() != Ok("required"), "{report}");
                let _ = writeln!(io::stderr(), "{report}");
                return;
            }
        };
        let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
        cgroup
            .add(Pid::from_raw(i32::try_from(sleeps.id()).unwrap()))
            .unwrap();
        let empty = thread::scope(|scope| {
            let waits = scope.spawn(|| cgroup.is_empty_within(BOUND));
            // The kernel reports one event in 10 ms.
            let end = clock::now() + Duration::from_millis(300);
            while !waits.is_finished() && clock::now() < end {
                for frozen in ["1", "0"] {
                    fs::write(cgroup.path().join("cgroup.freeze"), frozen).unwrap();
                    let event = format!("frozen {frozen}");
                    eventually_blocking(BOUND, &event, || {
                        let events = fs::read_to_string(cgroup.path().join(EVENTS)).unwrap();
                        if events.contains(&event) {
                            Ok(())
                        } else {
                            Err(events)
                        }
                    });
                }
            }
            cgroup.kill().unwrap();
            waits.join().unwrap()
        });
        sleeps.wait().unwrap();
        cgroup.remove().unwrap();
        assert!(empty.unwrap(), "it was waited for until it was empty");
    }
}
