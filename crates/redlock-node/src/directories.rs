//! Reads directories that the kubelet may remove in the meantime.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

/// Returns the directories below `path`; empty if it does not exist.
pub(crate) fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(cause) if is_gone(&cause) => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Reports whether a file does not exist, or belongs to a cgroup that was removed.
pub(crate) fn is_gone(cause: &io::Error) -> bool {
    let gone = [Errno::ENOENT, Errno::ENODEV].map(|errno| Some(errno as i32));
    gone.contains(&cause.raw_os_error())
}
