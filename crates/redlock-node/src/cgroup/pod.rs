//! Finds the cgroup of a pod by the UID of the pod, and freezes, thaws and kills it by its path.
//!
//! Each write opens the file again: the kubelet may remove a cgroup and create another one under the same
//! path.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use thiserror::Error;

use super::{CgroupError, EVENTS, KILL};
use crate::directories::{self, is_gone};

pub(super) const FREEZE: &str = "cgroup.freeze";
/// The depth of the search. The kubelet creates pods in the second level below its root
/// (`kubepods/burstable/pod…`), and its root may be a few levels deep, as in a node that is a container.
const DEPTH: usize = 8;

/// The reason why a pod cannot be fenced by its cgroup.
#[derive(Debug, Error)]
pub enum PodCgroupError {
    #[error(
        "{} is not in a cgroup2 file system: the node uses cgroup v1, which cannot freeze a pod as a whole; boot the node with \
         systemd.unified_cgroup_hierarchy=1", root.display()
    )]
    Version1 { root: PathBuf },
    #[error("pod UID {uid:?} is not valid: expected letters, digits and \"-\"")]
    Uid { uid: String },
    #[error(
        "pod {uid} has no cgroup below {}: expected a directory pod{uid} or …-pod{}.slice; check that the agent mounts the \
         cgroup2 file system of the node", root.display(), uid.replace('-', "_")
    )]
    Missing { uid: String, root: PathBuf },
    #[error("pod {uid} has several cgroups: {}; expected one", paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "))]
    Several { uid: String, paths: Vec<PathBuf> },
    #[error("the cgroup of pod {uid} cannot be found: reading {}", path.display())]
    Read {
        uid: String,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Unusable(#[from] CgroupError),
}

/// The state that `cgroup.events` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// Whether a process is in the cgroup or below it.
    pub populated: bool,
    /// Whether every process in the cgroup is frozen.
    pub frozen: bool,
}

/// Whether a file of the cgroup was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The cgroup no longer exists, so no process is in it.
    Gone,
}

impl Events {
    /// Parses the file; `None` if a value is missing: an old kernel has no `frozen`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(Self {
            populated: flag(text, "populated ")?,
            frozen: flag(text, "frozen ")?,
        })
    }
}

/// Returns one flag of `cgroup.events`.
pub(super) fn flag(text: &str, key: &str) -> Option<bool> {
    match text.lines().find_map(|line| line.strip_prefix(key))? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Freezes every process of the cgroup and of the cgroups below it.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn freeze(path: &Path) -> Result<Written, CgroupError> {
    write(path, FREEZE, "1")
}

/// # Errors
/// Returns an error if the file cannot be written.
pub fn thaw(path: &Path) -> Result<Written, CgroupError> {
    write(path, FREEZE, "0")
}

/// Sends SIGKILL to every process, frozen or not.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn kill(path: &Path) -> Result<Written, CgroupError> {
    write(path, KILL, "1")
}

/// Reports whether a freeze was written, even if a process does not stop yet: a process in uninterruptible
/// sleep delays `frozen` of [`events`]. `None` if the cgroup does not exist.
///
/// # Errors
/// Returns an error if the file cannot be read or shows no state.
pub fn is_freeze_requested(path: &Path) -> Result<Option<bool>, CgroupError> {
    let file = path.join(FREEZE);
    match fs::read_to_string(&file) {
        Ok(text) => match text.trim_end() {
            "0" => Ok(Some(false)),
            "1" => Ok(Some(true)),
            _ => Err(CgroupError::file("reading", &file, ErrorKind::InvalidData.into())),
        },
        Err(cause) if is_gone(&cause) => Ok(None),
        Err(cause) => Err(CgroupError::file("reading", &file, cause)),
    }
}

/// Reads `cgroup.events`; `None` if the cgroup does not exist.
///
/// # Errors
/// Returns an error if the file cannot be read or shows no state.
pub fn events(path: &Path) -> Result<Option<Events>, CgroupError> {
    let file = path.join(EVENTS);
    match fs::read_to_string(&file) {
        Ok(text) => match Events::parse(&text) {
            Some(events) => Ok(Some(events)),
            None => Err(CgroupError::file("reading", &file, ErrorKind::InvalidData.into())),
        },
        Err(cause) if is_gone(&cause) => Ok(None),
        Err(cause) => Err(CgroupError::file("reading", &file, cause)),
    }
}

fn write(path: &Path, name: &str, value: &str) -> Result<Written, CgroupError> {
    let file = path.join(name);
    let written = OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|mut open| open.write_all(value.as_bytes()));
    match written {
        Ok(()) => Ok(Written::Done),
        // A cgroup that exists without this file cannot be frozen, which is an error, not an end.
        Err(cause) if is_gone(&cause) && !path.exists() => Ok(Written::Gone),
        Err(cause) => Err(CgroupError::file("writing", &file, cause)),
    }
}

/// Reports whether a directory is in a cgroup2 file system.
///
/// # Errors
/// Returns an error if the directory cannot be read.
pub fn is_version_2(root: &Path) -> io::Result<bool> {
    Ok(statfs(root)?.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Finds the one cgroup of a pod below `root`, in either naming of the kubelet (cgroupfs, systemd).
///
/// # Errors
/// Returns an error if `root` is not of version 2, if the number of cgroups of the pod is not 1, or if the
/// cgroup cannot be frozen and killed.
pub fn find(root: &Path, uid: &str) -> Result<PathBuf, PodCgroupError> {
    if !is_uid(uid) {
        return Err(PodCgroupError::Uid { uid: uid.to_owned() });
    }
    let read = |path: &Path, source| PodCgroupError::Read {
        uid: uid.to_owned(),
        path: path.to_owned(),
        source,
    };
    if !is_version_2(root).map_err(|cause| read(root, cause))? {
        return Err(PodCgroupError::Version1 {
            root: root.to_owned(),
        });
    }
    let names = names_of(uid);
    let mut found = Vec::new();
    search(root, DEPTH, &names, &mut found).map_err(|(path, cause)| read(&path, cause))?;
    match found.len() {
        0 => Err(PodCgroupError::Missing {
            uid: uid.to_owned(),
            root: root.to_owned(),
        }),
        1 => check(found.remove(0)),
        _ => Err(PodCgroupError::Several {
            uid: uid.to_owned(),
            paths: found,
        }),
    }
}

/// Checks that the files that fencing needs exist.
fn check(path: PathBuf) -> Result<PathBuf, PodCgroupError> {
    if !path.join(KILL).exists() {
        return Err(CgroupError::no_kill(&path).into());
    }
    events(&path)?;
    Ok(path)
}

/// Searches for the cgroups of a pod. Does not enter the cgroup of a pod: its processes may create any name
/// there.
fn search(
    directory: &Path,
    depth: usize,
    [plain, slice]: &[String; 2],
    found: &mut Vec<PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    let below = directories::below(directory).map_err(|cause| (directory.to_owned(), cause))?;
    for path in below {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_named(&name, [plain, slice]) {
            found.push(path);
        } else if depth > 0 && !is_of_a_pod(&name) {
            search(&path, depth - 1, &[plain.clone(), slice.clone()], found)?;
        }
    }
    Ok(())
}

/// Reports whether the last part of a path is the name of the cgroup of this pod, in either naming of the kubelet.
pub(crate) fn is_cgroup_of(path: &Path, uid: &str) -> bool {
    let [plain, slice] = names_of(uid);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_uid(uid) && is_named(&name, [&plain, &slice])
}

fn is_uid(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !text.is_empty() && text.chars().all(valid)
}

/// Returns the name of the cgroup of a pod by cgroupfs, and the end of its name by systemd.
fn names_of(uid: &str) -> [String; 2] {
    [
        format!("pod{uid}"),
        format!("-pod{}.slice", uid.replace('-', "_")),
    ]
}

fn is_named(name: &str, [plain, slice]: [&String; 2]) -> bool {
    name == plain || name.ends_with(slice.as_str())
}

fn is_of_a_pod(name: &str) -> bool {
    let uid =
        |text: &str| text.len() >= 32 && text.chars().all(|c| c.is_ascii_hexdigit() || "-_".contains(c));
    let plain = name.strip_prefix("pod");
    let slice = name
        .strip_suffix(".slice")
        .and_then(|name| name.rsplit_once("-pod"))
        .map(|(_, uid)| uid);
    plain.or(slice).is_some_and(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_flag_is_no_state() {
        let events = |populated, frozen| Some(Events { populated, frozen });
        assert_eq!(Events::parse("populated 0\nfrozen 1\n"), events(false, true));
        assert_eq!(Events::parse("frozen 0\npopulated 1\n"), events(true, false));
        for text in ["", "populated 1\n", "populated 1\nfrozen 2\n", "frozen 1\n"] {
            assert_eq!(Events::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn cgroups_of_pods_are_recognised_in_both_namings() {
        for name in [
            "pod0f3c9a52-7d0e-4a4b-9d4f-1f2f3a4b5c6d",
            "kubepods-burstable-pod0f3c9a52_7d0e_4a4b_9d4f_1f2f3a4b5c6d.slice",
            "pod0123456789abcdef0123456789abcdef",
        ] {
            assert!(is_of_a_pod(name), "{name}");
        }
        for name in [
            "kubepods",
            "podinfo",
            "kubepods-burstable.slice",
            "system.slice",
            "pods",
        ] {
            assert!(!is_of_a_pod(name), "{name}");
        }
    }

    #[test]
    fn cgroup_v1_and_odd_uids_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = find(root.path(), "a-1").unwrap_err().to_string();
        assert!(
            error.contains("cgroup v1") && error.contains("systemd.unified_cgroup_hierarchy=1"),
            "{error}"
        );
        for uid in ["", "../a", "a/b", "a.b"] {
            let error = find(root.path(), uid).unwrap_err();
            assert!(matches!(error, PodCgroupError::Uid { .. }), "{uid}: {error}");
        }
        let gone = root.path().join("gone");
        assert_eq!(freeze(&gone).unwrap(), Written::Gone);
        assert_eq!(events(&gone).unwrap(), None);
        // A directory that exists and cannot be frozen.
        assert!(freeze(root.path()).is_err());
    }
}
