//! Reads and writes the files in the volume of a pod. Each file is replaced by a rename, so the pod reads a
//! whole value.

mod tree;

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use redlock_core::{BootInstant, FencingToken};
use thiserror::Error;

const LOCK: &str = "lock";
const TOKEN: &str = "token";
const CLUSTER: &str = "holder-cluster";
const UNTIL: &str = "valid-until-boot-milliseconds";
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
        write_new(&temporary, &value).map_err(|cause| failed("writing", &temporary, cause))?;
        replace(&temporary, &path).map_err(|cause| failed("replacing", &path, cause))?;
    }
    // The files are complete. The next write continues, and the removal of the volume returns the error.
    let _ = tree::remove_aside(target);
    Ok(())
}

/// Writes a file that does not exist. Removes before it a file of a process that ended, or the directory of a `subPath`.
fn write_new(path: &Path, value: &str) -> io::Result<()> {
    clear_directory(path)?;
    match fs::remove_file(path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => {}
        removed => removed?,
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(value.as_bytes())
}

fn replace(from: &Path, to: &Path) -> io::Result<()> {
    // A file does not replace a directory.
    clear_directory(to)?;
    fs::rename(from, to)
}

/// Moves a directory away, because its removal may take several calls.
fn clear_directory(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        tree::set_aside(path)?;
    }
    Ok(())
}

/// Removes the directory, and what the kubelet created in it.
///
/// # Errors
/// Returns an error if a part cannot be removed, such as a directory on which a file system is mounted.
pub fn remove(target: &Path) -> Result<(), VolumeError> {
    tree::remove(target).map_err(|cause| failed("removing", target, cause))
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
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    pub(crate) fn contents(token: u64) -> Contents {
        Contents {
            lock: "team/report".to_owned(),
            token: FencingToken(token),
            cluster: "eu-1".to_owned(),
            until: BootInstant::default(),
        }
    }

    #[test]
    fn a_directory_that_is_gone_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("mount");
        assert!(write(&target, &contents(7)).is_err());
        assert!(!target.exists());
        create(&target).unwrap();
        write(&target, &contents(7)).unwrap();
        assert!(is_written(&target));
        remove(&target).unwrap();
        assert!(!target.exists());
        remove(&target).unwrap();
    }

    /// The kubelet creates a directory of the volume for a `subPath` that does not exist.
    #[test]
    fn directories_in_the_volume_hold_up_neither_a_write_nor_the_removal() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("mount");
        create(&target).unwrap();
        write(&target, &contents(7)).unwrap();
        fs::create_dir_all(target.join(".token/a")).unwrap();
        fs::remove_file(target.join(CLUSTER)).unwrap();
        fs::create_dir_all(target.join(CLUSTER).join("a")).unwrap();
        write(&target, &contents(8)).unwrap();
        assert_eq!(fs::read_to_string(target.join(TOKEN)).unwrap(), "8");
        fs::create_dir_all(target.join("logs/a/b")).unwrap();
        fs::write(target.join("logs/a/file"), "x").unwrap();
        remove(&target).unwrap();
        assert!(!target.exists());
    }

    /// A removal of such a directory takes several calls.
    #[test]
    fn a_deep_or_wide_directory_in_place_of_a_file_does_not_hold_up_the_write() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let target = folder.path().join("mount");
        let names = |directory: &Path| fs::read_dir(directory).unwrap().count();
        create(&target).unwrap();
        for token in 7..9 {
            for name in [".token", TOKEN] {
                let _ = fs::remove_file(target.join(name));
                tree::tests::deep(&target.join(name));
            }
            fs::create_dir(target.join(".lock")).unwrap();
            for number in 0..1_500 {
                fs::write(target.join(".lock").join(number.to_string()), "").unwrap();
            }
            write(&target, &contents(token)).unwrap();
            let read = fs::read_to_string(target.join(TOKEN)).unwrap();
            assert_eq!(read, token.to_string());
        }
        let writes = (1..40).find(|_| {
            write(&target, &contents(9)).unwrap();
            names(&target) == 4
        });
        assert!(writes.is_some(), "{} names are left", names(&target));
        remove(&target).unwrap();
        assert!(!target.exists());
    }

    #[test]
    fn a_symbolic_link_is_neither_written_through_nor_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, outside) = (folder.path().join("mount"), folder.path().join("outside"));
        create(&target).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(outside.join("kept"), target.join(".token")).unwrap();
        symlink(&outside, target.join("link")).unwrap();
        write(&target, &contents(8)).unwrap();
        remove(&target).unwrap();
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        symlink(&outside, &target).unwrap();
        remove(&target).unwrap();
        assert!(outside.join("kept").exists() && fs::symlink_metadata(&target).is_err());
    }
}
