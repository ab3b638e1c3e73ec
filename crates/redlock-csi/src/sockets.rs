//! Binds sockets at well-known paths that two processes may serve one after the other: during an update, the
//! next node agent starts before the current one ends.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tokio::net::UnixListener;
use tracing::warn;

/// The mode of a socket. Only root connects, because a call creates and removes directories of pods.
const MODE: u32 = 0o600;

/// A socket that could not be served.
#[derive(Debug, thiserror::Error)]
#[error("the socket {} could not be served; check that its directory is that of the kubelet, and writable", path.display())]
pub struct SocketError {
    path: PathBuf,
    source: io::Error,
}

/// A bound socket. Its file is removed when this value is dropped, unless another process has replaced the
/// file.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Socket {
    /// Binds a socket. Replaces a socket that an earlier process left behind or still serves.
    pub(crate) fn bind(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        bind(path).map_err(|source| SocketError {
            path: path.to_owned(),
            source,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path, self.file) {
            warn!(path = %self.path.display(), %error, "a socket could not be removed");
        }
    }
}

fn bind(path: &Path) -> io::Result<(Socket, UnixListener)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the path names no file"));
    };
    fs::create_dir_all(directory)?;
    let _turn = turn(directory)?;
    // The kubelet ignores names with a leading dot. Because of the rename, the kubelet always finds a socket
    // that answers.
    let new = directory.join(format!(".{}.new", name.to_string_lossy()));
    absent(fs::remove_file(&new))?;
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(MODE))?;
    let file = identity(&fs::symlink_metadata(&new)?);
    fs::rename(&new, path)?;
    let socket = Socket {
        path: path.to_owned(),
        file,
    };
    Ok((socket, listener))
}

fn remove(path: &Path, file: (u64, u64)) -> io::Result<()> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    let _turn = turn(directory)?;
    match fs::symlink_metadata(path) {
        Ok(found) if identity(&found) == file => absent(fs::remove_file(path)),
        Ok(_) => Ok(()),
        Err(error) => absent(Err(error)),
    }
}

/// Keeps two processes from replacing and removing sockets at the same time, until the file is closed.
fn turn(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    file.lock()?;
    Ok(file)
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn absent(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn a_socket_takes_the_place_of_another_one_and_outlives_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugins/csi.sock");
        let (first, _listener) = Socket::bind(&path).unwrap();
        let (second, listener) = Socket::bind(&path).unwrap();
        drop(first);
        UnixStream::connect(&path).await.unwrap();
        listener.accept().await.unwrap();
        drop(second);
        assert!(!path.exists());
        let rest = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(rest, 0, "no file remains");
    }

    #[tokio::test]
    async fn a_socket_that_a_killed_process_left_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("csi.sock");
        for left in [&path, &directory.path().join(".csi.sock.new")] {
            drop(std::os::unix::net::UnixListener::bind(left).unwrap());
        }
        let (_socket, _listener) = Socket::bind(&path).unwrap();
        UnixStream::connect(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_bound_is_named() {
        let path = Path::new("/dev/null/csi.sock");
        let error = Socket::bind(path).unwrap_err();
        assert!(error.to_string().contains("/dev/null/csi.sock"), "{error}");
    }
}
