//! Defines the reasons why a cgroup cannot be created or used, with their remedies.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use nix::errno::Errno;
use thiserror::Error;

const DELEGATED: &str = "run it as root, by `systemd-run --user --scope -p Delegate=yes`, or in a container whose \
                         cgroup file system is writable";

#[derive(Debug, Error)]
pub enum CgroupError {
    #[error(
        "no cgroup2 file system is mounted for this process (/proc/self/mountinfo, /proc/self/cgroup): mount one, or boot \
         with systemd.unified_cgroup_hierarchy=1"
    )]
    NoMount,
    #[error(
        "this process is in the cgroup {own} (/proc/self/cgroup), and no mounted cgroup2 file system shows that cgroup \
         (/proc/self/mountinfo): mount the whole tree, or start the process in a cgroup namespace of its own"
    )]
    NotShown { own: String },
    #[error("{} is not in a cgroup2 file system: another one is mounted over it; unmount that", path.display())]
    Covered { path: PathBuf },
    #[error(
        "a cgroup below that of this process is {kind:?} and cannot hold a process ({}/cgroup.type): the cgroup of this \
         process has threaded cgroups; start the process in another one", path.display()
    )]
    Threaded { path: PathBuf, kind: String },
    #[error(
        "the kernel, Linux {kernel}, cannot kill a cgroup ({}/cgroup.kill does not exist): Linux 5.14 or later is needed",
        path.display()
    )]
    NoKill { path: PathBuf, kernel: String },
    #[error("{operation} {}{advice}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        advice: String,
        source: io::Error,
    },
}

impl CgroupError {
    pub(super) fn file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            operation,
            path: path.to_owned(),
            advice: String::new(),
            source,
        }
    }

    pub(super) fn create(path: &Path, source: io::Error) -> Self {
        let advice = match source.kind() {
            ErrorKind::PermissionDenied => format!(" (this user may not create cgroups there: {DELEGATED})"),
            ErrorKind::ReadOnlyFilesystem => {
                " (the cgroup2 file system is mounted read-only: mount it read-write, or \
                                              run the container with a writable one)"
                    .to_owned()
            }
            ErrorKind::WouldBlock => {
                " (cgroup.max.depth or cgroup.max.descendants of a cgroup above it is reached)".to_owned()
            }
            _ => String::new(),
        };
        Self::with_advice("creating the cgroup", path, advice, source)
    }

    pub(super) fn add(path: &Path, source: io::Error) -> Self {
        let errno = source.raw_os_error().map(Errno::from_raw);
        let advice = match errno {
            Some(Errno::EACCES | Errno::EPERM) => {
                format!(" (this user may not move processes out of the cgroup of this process: {DELEGATED})")
            }
            Some(Errno::EBUSY) => {
                " (controllers are enabled in its cgroup.subtree_control, or in the cgroup above it)"
                    .to_owned()
            }
            _ => String::new(),
        };
        Self::with_advice("moving a process into the cgroup by", path, advice, source)
    }

    pub(super) fn no_kill(path: &Path) -> Self {
        let kernel =
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "of unknown version".into());
        Self::NoKill {
            path: path.to_owned(),
            kernel: kernel.trim().to_owned(),
        }
    }

    fn with_advice(operation: &'static str, path: &Path, advice: String, source: io::Error) -> Self {
        Self::File {
            operation,
            path: path.to_owned(),
            advice,
            source,
        }
    }
}
