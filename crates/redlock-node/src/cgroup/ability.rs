//! Checks that this process can freeze a pod before the pod runs, and that it still can while the pod runs.

use std::{
    fs::OpenOptions,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    CgroupError, KILL,
    pod::{self, FREEZE, Written},
};
use crate::directories::{self, is_gone};

/// The reason why the freeze of a pod that is about to start was not shown to work.
#[derive(Debug, Error)]
pub enum FreezeTrialError {
    #[error("the cgroup {} does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("the cgroup {} has processes before the start of the pod", path.display())]
    Populated { path: PathBuf },
    #[error(
        "the kernel accepted a freeze of the empty cgroup {}, and cgroup.events does not show it",
        path.display()
    )]
    NotShown { path: PathBuf },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// The reason why no pod of the node can be frozen.
#[derive(Debug, Error)]
pub enum NodeUnable {
    #[error(
        "{} is not in a cgroup2 file system: the node uses cgroup v1; boot the node with systemd.unified_cgroup_hierarchy=1",
        root.display()
    )]
    Version1 { root: PathBuf },
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(
        "{} and the directories in it have no file cgroup.freeze: check that the cgroup2 file system of the node is \
         mounted there", root.display()
    )]
    NoCgroup { root: PathBuf },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Freezes a cgroup without processes, and checks that `cgroup.events` shows the freeze. The cgroup stays frozen: a
/// process that is started in it waits for the thaw.
///
/// # Errors
/// Returns an error if the cgroup has processes, or if the freeze does not work.
pub fn try_freeze(path: &Path) -> Result<(), FreezeTrialError> {
    let of_cgroup = || path.to_owned();
    let events = || {
        let events = pod::events(path)?;
        events.ok_or_else(|| FreezeTrialError::Missing { path: of_cgroup() })
    };
    if events()?.populated {
        return Err(FreezeTrialError::Populated { path: of_cgroup() });
    }
    match pod::freeze(path)? {
        Written::Done => {}
        Written::Gone => return Err(FreezeTrialError::Missing { path: of_cgroup() }),
    }
    let after = events()?;
    if after.populated {
        return Err(FreezeTrialError::Populated { path: of_cgroup() });
    }
    if after.frozen {
        Ok(())
    } else {
        Err(FreezeTrialError::NotShown { path: of_cgroup() })
    }
}

/// Opens the files that freeze and kill a pod, without a write: a pod that runs must not be disturbed. A cgroup that
/// does not exist needs no freeze.
///
/// # Errors
/// Returns an error if a file cannot be opened for writing.
pub fn check_writable(path: &Path) -> Result<(), CgroupError> {
    for name in [FREEZE, KILL] {
        let file = path.join(name);
        match OpenOptions::new().write(true).open(&file) {
            Ok(_) => {}
            Err(cause) if is_gone(&cause) && !path.exists() => return Ok(()),
            Err(cause) => return Err(CgroupError::file("opening for writing", &file, cause)),
        }
    }
    Ok(())
}

/// Checks that the pods of a node can be frozen, by the first cgroup below `root`. The root of the tree itself has no
/// file that freezes.
///
/// # Errors
/// Returns the reason why no pod can be frozen, or why that is unknown.
pub fn check_node(root: &Path) -> Result<(), NodeUnable> {
    let read = |path: &Path, source| NodeUnable::Read {
        path: path.to_owned(),
        source,
    };
    if !pod::is_version_2(root).map_err(|cause| read(root, cause))? {
        return Err(NodeUnable::Version1 {
            root: root.to_owned(),
        });
    }
    let below = directories::below(root).map_err(|cause| read(root, cause))?;
    let candidates = std::iter::once(root.to_owned()).chain(below);
    for cgroup in candidates {
        match cgroup.join(FREEZE).metadata() {
            Ok(_) if !cgroup.join(KILL).exists() => return Err(CgroupError::no_kill(&cgroup).into()),
            Ok(_) => return Ok(check_writable(&cgroup)?),
            Err(cause) if is_gone(&cause) || cause.kind() == ErrorKind::NotFound => {}
            Err(cause) => return Err(read(&cgroup, cause)),
        }
    }
    Err(NodeUnable::NoCgroup {
        root: root.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes the files of a cgroup into a directory, in which a write changes nothing else.
    fn fake(events: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [(FREEZE, "0\n"), (KILL, ""), ("cgroup.events", events)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_freeze_that_the_kernel_does_not_show_is_no_ability() {
        let accepted = fake("populated 0\nfrozen 0\n");
        let error = try_freeze(accepted.path()).unwrap_err();
        assert!(matches!(error, FreezeTrialError::NotShown { .. }), "{error}");
        let shown = fake("populated 0\nfrozen 1\n");
        try_freeze(shown.path()).unwrap();
        assert_eq!(fs::read_to_string(shown.path().join(FREEZE)).unwrap(), "1\n");
    }

    #[test]
    fn a_cgroup_with_processes_is_not_frozen_by_the_trial() {
        let runs = fake("populated 1\nfrozen 0\n");
        let error = try_freeze(runs.path()).unwrap_err();
        assert!(matches!(error, FreezeTrialError::Populated { .. }), "{error}");
        assert_eq!(fs::read_to_string(runs.path().join(FREEZE)).unwrap(), "0\n");
    }

    #[test]
    fn a_cgroup_that_is_missing_cannot_be_tried_and_needs_no_freeze() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let error = try_freeze(&gone).unwrap_err();
        assert!(matches!(error, FreezeTrialError::Missing { .. }), "{error}");
        check_writable(&gone).unwrap();
        // A directory without the files is a cgroup that cannot be frozen.
        assert!(check_writable(folder.path()).is_err());
        assert!(try_freeze(folder.path()).is_err());
        let unreadable = fake("populated\n");
        assert!(try_freeze(unreadable.path()).is_err());
    }

    #[test]
    fn a_node_with_cgroup_v1_cannot_fence() {
        let error = check_node(tempfile::tempdir().unwrap().path()).unwrap_err();
        assert!(matches!(error, NodeUnable::Version1 { .. }), "{error}");
        let error = check_node(Path::new("/nowhere")).unwrap_err();
        assert!(matches!(error, NodeUnable::Read { .. }), "{error}");
    }
}
