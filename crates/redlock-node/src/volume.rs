//! Reads and writes the files in the volume of a pod. Each file is replaced by a rename, so the pod reads a
//! whole value.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use redlock_core::{BootInstant, FencingToken};
use thiserror::Error;

const LOCK: &str = "lock";
const TOKEN: &str = "token";
const CLUSTER: &str = "holder-cluster";
const UNTIL: &str = "valid-until-boot-milliseconds";
const FILES: [&str; 4] = [LOCK, TOKEN, CLUSTER, UNTIL];
const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// The values that the pod reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// `<namespace>/<name>` of the declared lock. A restarted agent without a table resolves the lock again.
    pub lock: String,
    pub token: FencingToken,
    pub cluster: String,
    pub until: BootInstant,
}

#[derive(Debug, Error)]
#[error("{operation} {} of the volume", path.display())]
pub struct VolumeError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Creates the directory.
///
/// # Errors
/// Returns an error if the directory cannot be created.
pub fn create(target: &Path) -> Result<(), VolumeError> {
    fs::create_dir_all(target).map_err(|cause| failed("creating", target, cause))
}

/// Writes the files into an existing directory: a directory that the kubelet has removed must not appear
/// again.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write(target: &Path, contents: &Contents) -> Result<(), VolumeError> {
    let until = contents.until.as_nanos() / NANOS_PER_MILLISECOND;
    for (name, value) in [
        (LOCK, contents.lock.clone()),
        (TOKEN, contents.token.to_string()),
        (CLUSTER, contents.cluster.clone()),
        (UNTIL, until.to_string()),
    ] {
        let (path, temporary) = (target.join(name), target.join(format!(".{name}")));
        fs::write(&temporary, value).map_err(|cause| failed("writing", &temporary, cause))?;
        fs::rename(&temporary, &path).map_err(|cause| failed("replacing", &path, cause))?;
    }
    Ok(())
}

/// Removes the files of this driver and the directory, and nothing else.
///
/// # Errors
/// Returns an error if a file or the directory cannot be removed.
pub fn remove(target: &Path) -> Result<(), VolumeError> {
    let gone = |removed: io::Result<()>, path: &Path| match removed {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(failed("removing", path, cause)),
        _ => Ok(()),
    };
    for name in FILES {
        for path in [target.join(name), target.join(format!(".{name}"))] {
            gone(fs::remove_file(&path), &path)?;
        }
    }
    gone(fs::remove_dir(target), target)
}

/// Reports whether this driver has written the volume.
#[must_use]
pub fn is_written(target: &Path) -> bool {
    target.join(LOCK).exists() && target.join(UNTIL).exists()
}

/// Returns namespace and name of the declared lock of a volume that was written before.
#[must_use]
pub fn lock(target: &Path) -> Option<(String, String)> {
    let text = fs::read_to_string(target.join(LOCK)).ok()?;
    let (namespace, name) = text.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> VolumeError {
    VolumeError {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_gone_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("mount");
        let contents = Contents {
            lock: "team/report".to_owned(),
            token: FencingToken(7),
            cluster: "eu-1".to_owned(),
            until: BootInstant::default(),
        };
        assert!(write(&target, &contents).is_err());
        assert!(!target.exists());
        create(&target).unwrap();
        write(&target, &contents).unwrap();
        assert!(is_written(&target));
        remove(&target).unwrap();
        assert!(!target.exists());
    }
}
