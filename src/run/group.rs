//! The process group of the command, and the processes of it that still run.
//!
//! Its leader is reaped last: until then, no other group can get its number, and a kill by the number reaches
//! no other process. A contained command also has a cgroup, which still contains the processes that leave the
//! group.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read},
    process::{Child, ExitStatus},
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::{self, Pid},
};
use redlock_node::cgroup::{Cgroup, CgroupError};

/// The process group of a command, and its cgroup. Dropping this value kills both.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
    id: Pid,
    cgroup: Option<Arc<Cgroup>>,
    reaped: bool,
}

impl Group {
    /// Returns the group of a child that was started as the leader of a new group.
    ///
    /// # Errors
    /// Returns an error if the child cannot be moved into the cgroup. The child is then killed.
    pub(super) fn led_by(leader: Child, cgroup: Option<Arc<Cgroup>>) -> Result<Self, CgroupError> {
        let id = Pid::from_raw(i32::try_from(leader.id()).unwrap_or(i32::MAX));
        let group = Self {
            leader,
            id,
            cgroup,
            reaped: false,
        };
        if let Some(cgroup) = &group.cgroup {
            cgroup.add(id)?;
        }
        Ok(group)
    }

    pub(super) const fn id(&self) -> Pid {
        self.id
    }

    /// Sends the signal to all processes of the group. The group may be empty.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = killpg(self.id, signal);
    }

    /// Sends the stop signal to the group, and to processes of its cgroup that left the group.
    pub(super) fn stop(&self, signal: Signal) {
        // A stopped process cannot handle the signal before it continues.
        for signal in [signal, Signal::SIGCONT] {
            self.signal(signal);
            if let Some(cgroup) = &self.cgroup {
                // A process that is not reached here is killed after the grace.
                let _ = cgroup.signal(signal, |process| unistd::getpgid(Some(process)) != Ok(self.id));
            }
        }
    }

    /// Kills the group and the cgroup.
    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        self.signal(Signal::SIGKILL);
        self.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.kill())
    }

    /// Reports whether the leader has ended. Does not reap it.
    pub(super) fn leader_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // For an end by a signal without a name, the call returns an error: the leader has ended then, too.
        !matches!(waitid(Id::Pid(self.id), flags), Ok(WaitStatus::StillAlive))
    }

    /// Returns the signal that has stopped the leader since the last call.
    pub(super) fn leader_stopped(&self) -> Option<Signal> {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.id), flags) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Reports whether the leader is stopped now.
    pub(super) fn leader_is_stopped(&self) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        state_of(&String::from_utf8_lossy(&stat)) == "T"
    }

    /// Reports whether a process of the group runs, once the leader has ended. The guardian is a child, too.
    ///
    /// # Errors
    /// Returns an error if `/proc` or the state of the cgroup cannot be read: a process may run then.
    pub(super) fn runs(&self, guardian: Option<Pid>) -> io::Result<bool> {
        if let Some(cgroup) = &self.cgroup
            && !cgroup.is_empty().map_err(io::Error::other)?
        {
            return Ok(true);
        }
        // The processes that the leader started are now descendants of this process.
        match children() {
            Some(children)
                if children
                    .iter()
                    .all(|child| [Some(self.id), guardian].contains(&Some(*child))) =>
            {
                Ok(false)
            }
            _ => self.is_found(),
        }
    }

    /// Searches all processes for one of the group. There may be thousands.
    fn is_found(&self) -> io::Result<bool> {
        // Large enough for the fields that are needed: one read for each process.
        let mut stat = [0; 256];
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(number) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else {
                continue;
            };
            let read = File::open(format!("/proc/{number}/stat")).and_then(|mut file| file.read(&mut stat));
            if let Some(length) = unless_gone(read)?
                && runs_in(&stat[..length], self.id)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reaps the leader as the last process of the group.
    pub(super) fn reap(mut self) -> io::Result<ExitStatus> {
        let status = self.leader.wait();
        self.reaped = true;
        status
    }
}

/// Makes this process inherit the orphans of its descendants, as the first process of a container does.
pub(super) fn inherit_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Returns the children of this process, or `None` if the kernel does not list them. This process must
/// reap no child meanwhile.
fn children() -> Option<Vec<Pid>> {
    // All are children of the main thread: it starts them, and inherits the orphans.
    let own = std::process::id();
    let numbers = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
    let numbers = numbers.split_ascii_whitespace();
    numbers
        .map(|number| number.parse().ok().map(Pid::from_raw))
        .collect()
}

/// Reaps inherited children. Those of `own` are left to their owners, and hide others until reaped.
pub(super) fn reap_orphans(own: &[Option<Pid>]) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, flags) {
        match status.pid() {
            Some(pid) if !own.contains(&Some(pid)) => _ = waitpid(pid, Some(WaitPidFlag::WNOHANG)),
            _ => return,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill();
            let _ = self.leader.wait();
        }
    }
}

/// Returns `None` for a process that ended meanwhile, and for a process of another user that is hidden from
/// this one. After any other failure, such as too many open files, the process may run.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reports whether a process of this group runs, by `/proc/<pid>/stat`: `pid (name) state ppid group …`, in which the
/// name may contain any character.
fn runs_in(stat: &[u8], group: Pid) -> bool {
    let text = String::from_utf8_lossy(stat);
    let own = fields(&text).nth(2).and_then(|number| number.parse().ok());
    own == Some(group.as_raw()) && !matches!(state_of(&text), "Z" | "X")
}

/// Returns the state of a process: `R`, `S`, `T` if it is stopped, `Z`, … Empty for text without one.
fn state_of(stat: &str) -> &str {
    fields(stat).next().unwrap_or_default()
}

/// Returns the fields after the name.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_cannot_be_read_is_not_taken_for_gone() {
        let failed = |errno: Errno| unless_gone::<()>(Err(errno.into()));
        for errno in [Errno::ENOENT, Errno::ESRCH, Errno::EACCES, Errno::EPERM] {
            assert!(matches!(failed(errno), Ok(None)), "{errno}");
        }
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EIO] {
            assert!(failed(errno).is_err(), "{errno}");
        }
        assert!(matches!(unless_gone(Ok(7)), Ok(Some(7))));
    }

    #[test]
    fn the_dead_and_others_do_not_run() {
        let group = Pid::from_raw(70);
        for (stat, runs) in [
            ("71 (sh) S 1 70 9 0 -1", true),
            ("71 (a) b) (c) R 1 70 9 0 -1", true),
            ("71 (a) T 1 70 9 0 -1", true),
            ("70 (sh) Z 1 70 9 0 -1", false),
            ("71 (sh) S 70 71 9 0 -1", false),
            ("71 (70 S 1 70", false),
            ("", false),
        ] {
            assert_eq!(runs_in(stat.as_bytes(), group), runs, "{stat}");
        }
    }
}
