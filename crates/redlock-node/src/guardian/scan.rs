//! Reads the volumes of the kubelet on a separate thread: they are on a disk, which may hang, and the
//! guardian must not wait for a disk.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::chain;
use crate::kubelet::{self, Published};

/// A handle to the thread, which reads on request and ends with this value. A thread that hangs in a read
/// remains until the end of the process.
#[derive(Debug)]
pub(super) struct Scan {
    asks: SyncSender<()>,
    found: Receiver<Vec<Published>>,
    done: Arc<EventFd>,
}

impl Scan {
    /// Starts the thread. Call this before the guardian asks for real-time scheduling, which a new thread
    /// inherits.
    pub(super) fn start(kubelet: PathBuf) -> io::Result<Self> {
        let (asks, asked) = sync_channel(1);
        let (finds, found) = sync_channel(1);
        let done = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let finished = done.clone();
        thread::Builder::new().name("redlock-scan".into()).spawn(move || {
            while asked.recv().is_ok() {
                match kubelet::published(&kubelet) {
                    Ok(published) => {
                        if finds.send(published).is_err() {
                            return;
                        }
                        let _ = finished.write(1);
                    }
                    Err(error) => {
                        tracing::warn!(error = %chain(&error), "the volumes of the kubelet cannot be read");
                    }
                }
            }
        })?;
        Ok(Self { asks, found, done })
    }

    /// Requests a read. Does nothing while an earlier request waits.
    pub(super) fn ask(&self) {
        let _ = self.asks.try_send(());
    }

    /// Returns a file that is readable once there is a result.
    pub(super) fn done(&self) -> &EventFd {
        &self.done
    }

    pub(super) fn take(&self) -> Option<Vec<Published>> {
        let _ = self.done.read();
        self.found.try_recv().ok()
    }
}
