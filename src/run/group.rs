//! The process group of the command, and the processes of it that still run.
//!
//! Its leader is reaped last: until then, no other group can get its number, and a kill by the number reaches no other
//! process. A contained command also has a cgroup, which keeps the processes that leave the group.

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

/// Dropping it kills all of it.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
    id: Pid,
    cgroup: Option<Arc<Cgroup>>,
    reaped: bool,
}

impl Group {
    /// That of a child that was started as the leader of a new one.
    ///
    /// # Errors
    /// The child cannot be moved into the cgroup, and is killed.
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

    /// Sends the signal to all of the group. No process may be left.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = killpg(self.id, signal);
    }

    /// Asks all of it to stop, and what left it for another group of the cgroup.
    pub(super) fn stop(&self, signal: Signal) {
        // One that was stopped could not obey.
        for signal in [signal, Signal::SIGCONT] {
            self.signal(signal);
            if let Some(cgroup) = &self.cgroup {
                // A process that is not reached here is killed after the grace.
                let _ = cgroup.signal(signal, |process| unistd::getpgid(Some(process)) != Ok(self.id));
            }
        }
    }

    /// Kills all of it, and all of the cgroup.
    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        self.signal(Signal::SIGKILL);
        self.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.kill())
    }

    /// Whether the leader has ended; it is not reaped.
    pub(super) fn leader_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // An end by a signal without a name is an error here, and an end.
        !matches!(waitid(Id::Pid(self.id), flags), Ok(WaitStatus::StillAlive))
    }

    /// The signal that has stopped the leader since this was asked last.
    pub(super) fn leader_stopped(&self) -> Option<Signal> {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.id), flags) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Whether any of it still runs, once the leader has ended. The guardian is a child, too.
    ///
    /// # Errors
    /// `/proc` or the state of the cgroup cannot be read: whether any of it runs is unknown.
    pub(super) fn runs(&self, guardian: Option<Pid>) -> io::Result<bool> {
        if let Some(cgroup) = &self.cgroup
            && !cgroup.is_empty().map_err(io::Error::other)?
        {
            return Ok(true);
        }
        // What the leader has started is a child of this process by then, or of such a child.
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

    /// Reads each process: there may be thousands.
    fn is_found(&self) -> io::Result<bool> {
        // The fields that are read fit into it: one read for each.
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

    /// Reaps the leader, the last one.
    pub(super) fn reap(mut self) -> io::Result<ExitStatus> {
        let status = self.leader.wait();
        self.reaped = true;
        status
    }
}

/// From now on this process inherits what its descendants leave behind, as the first process of a container does anyway.
pub(super) fn inherit_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Returns the children of this process, of which it must reap none meanwhile; `None` if the kernel does not list them.
fn children() -> Option<Vec<Pid>> {
    // All of the main thread: it starts them, and inherits the others.
    let own = std::process::id();
    let numbers = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
    let numbers = numbers.split_ascii_whitespace();
    numbers
        .map(|number| number.parse().ok().map(Pid::from_raw))
        .collect()
}

/// Reaps children that were inherited. Those of `own` are left to their owners, and hide the ones behind them until then.
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

/// None for a process that ended meanwhile, and for one of another user that is hidden from this one. After any other failure,
/// such as too many open files, the process may run.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// By the text of `/proc/<pid>/stat`: `pid (name) state ppid group …`, in which the name may hold anything.
fn runs_in(stat: &[u8], group: Pid) -> bool {
    let text = String::from_utf8_lossy(stat);
    let Some((_, rest)) = text.rsplit_once(')') else {
        return false;
    };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    let own = fields.nth(1).and_then(|number| number.parse().ok());
    own == Some(group.as_raw()) && !matches!(state, "Z" | "X")
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
