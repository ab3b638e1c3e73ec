//! Follows a folder of manifests.
//!
//! The kernel reports changes where it can. A slow rescan covers the changes that it does not report (a network file
//! system, files behind links, a folder that was replaced).

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::mpsc,
    task::{self, JoinError},
    time,
};

use super::manifests::{LoadError, Loaded, load};

/// The interval of rescans. Without inotify, a mounted ConfigMap is a minute late anyway, but a person who
/// edits a file expects a quick result.
const RESCAN: Duration = Duration::from_secs(3);
/// The pause that a read waits for: an editor writes a file in several steps within milliseconds.
const QUIET: Duration = Duration::from_millis(100);
/// The time after which a folder that is written to all the time is read anyway.
const LONGEST_UNREST: Duration = Duration::from_secs(1);

/// Reads the folder now. The outer error means that the reading task itself failed.
pub(super) async fn read(folder: &Path) -> Result<Result<Loaded, LoadError>, JoinError> {
    let folder = folder.to_owned();
    task::spawn_blocking(move || load(&folder)).await
}

/// Sends the content of the folder whenever it has changed since `last`. Ends when the receiver is dropped or the
/// reading task fails.
pub(super) async fn follow(
    folder: PathBuf,
    last: Loaded,
    changes: mpsc::Sender<Result<Loaded, LoadError>>,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    // Kept until the end, because dropping it ends the watch.
    let watcher = watch(&folder, sender);
    if let Err(cause) = &watcher {
        tracing::warn!(folder = %folder.display(), error = %cause,
            "the system does not report changes of the folder: the operator reads it every {} s", RESCAN.as_secs());
    }
    let mut last = Ok(last);
    loop {
        if let Ok(Some(())) = time::timeout(RESCAN, changed(&mut receiver)).await {
            settle(&mut receiver).await;
        }
        let now = read(&folder).await.map_err(io::Error::other)?;
        let same = match (&now, &last) {
            (Ok(now), Ok(last)) => now == last,
            (Err(now), Err(last)) => now.to_string() == *last,
            _ => false,
        };
        if same {
            continue;
        }
        last = now
            .as_ref()
            .map_or_else(|e| Err(e.to_string()), |loaded| Ok(loaded.clone()));
        if changes.send(now).await.is_err() {
            return Ok(());
        }
    }
}

fn watch(folder: &Path, sender: mpsc::UnboundedSender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error of the watcher counts as a change; a read of a file does not.
        if event.as_ref().map_or(true, |event| is_change(event.kind)) {
            let _ = sender.send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Waits for a change. Without a watch no change is reported: this waits forever, and the rescan takes over.
async fn changed(receiver: &mut mpsc::UnboundedReceiver<()>) -> Option<()> {
    match receiver.recv().await {
        Some(()) => Some(()),
        None => std::future::pending().await,
    }
}

async fn settle(receiver: &mut mpsc::UnboundedReceiver<()>) {
    let quiet = async { while let Ok(Some(())) = time::timeout(QUIET, changed(receiver)).await {} };
    // The folder is read after a pause as well as after the longest wait.
    let _ = time::timeout(LONGEST_UNREST, quiet).await;
}
