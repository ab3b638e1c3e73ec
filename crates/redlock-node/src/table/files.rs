//! Reads the files of the table. A file that is not a regular one, or that is too large, is refused: the read of a pipe
//! would hold up the freezes of all pods.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::fcntl::OFlag;

use super::{TableError, failed};

/// Begins the names of files that are about to be renamed.
pub(super) const TEMPORARY: char = '.';
/// A size greater than that of every file of the table: a heartbeat has some hundred bytes for each pod.
const LONGEST_FILE: u64 = 1 << 20;

/// Reads a whole file. Follows no symbolic link, and waits for no writer of a pipe.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |reason: &str| Err(io::Error::new(ErrorKind::InvalidData, reason.to_owned()));
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return refused("not a regular file");
    }
    let mut bytes = Vec::new();
    let length = file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if length as u64 > LONGEST_FILE {
        return refused("larger than 1 MiB");
    }
    Ok(bytes)
}

/// Returns the names of the files of a directory, without those that are about to be renamed.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, TableError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(failed("reading", directory, cause)),
    };
    let names = entries.map(|entry| {
        let entry = entry.map_err(|cause| failed("reading", directory, cause))?;
        Ok(entry.file_name().to_string_lossy().into_owned())
    });
    let all: Result<Vec<String>, TableError> = names.collect();
    Ok(all?
        .into_iter()
        .filter(|name| !name.starts_with(TEMPORARY))
        .collect())
}
