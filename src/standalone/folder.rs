//! Follows a folder of manifests.
//!
//! The kernel reports changes where it can; a slow rescan finds those that it does not report (a network file system,
//! files behind links, a folder that was replaced).

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

/// A mounted ConfigMap on a node without inotify is a minute late anyway; a person who edits a file is not patient.
const RESCAN: Duration = Duration::from_secs(3);
/// An editor writes a file in several steps within milliseconds.
const QUIET: Duration = Duration::from_millis(100);
/// A folder that is written to all the time is read nevertheless.
const LONGEST_UNREST: Duration = Duration::from_secs(1);

/// Reads it now. The outer error is the end of the reader itself.
pub(super) async fn read(folder: &Path) -> Result<Result<Loaded, LoadError>, JoinError> {
    let folder = folder.to_owned();
    task::spawn_blocking(move || load(&folder)).await
}

/// Sends the content of the folder whenever it has changed since `last`. Ends when the receiver is closed or the reader
/// ends.
pub(super) async fn follow(
    folder: PathBuf,
    last: Loaded,
    changes: mpsc::Sender<Result<Loaded, LoadError>>,
) -> io::Result<()> {
    let (told, mut heard) = mpsc::unbounded_channel();
    // Held to the end: its drop ends the watch.
    let watcher = watch(&folder, told);
    if let Err(cause) = &watcher {
        tracing::warn!(folder = %folder.display(), error = %cause,
            "the system does not report changes of the folder: the operator reads it every {} s", RESCAN.as_secs());
    }
    let mut last = Ok(last);
    loop {
        if let Ok(Some(())) = time::timeout(RESCAN, heard_from(&mut heard)).await {
            settle(&mut heard).await;
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

fn watch(folder: &Path, told: mpsc::UnboundedSender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An event that could not be read counts as a change; reading files does not.
        if event.as_ref().map_or(true, |event| is_change(event.kind)) {
            let _ = told.send(());
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

/// Without a watch there is nothing to hear: the rescan has its turn.
async fn heard_from(heard: &mut mpsc::UnboundedReceiver<()>) -> Option<()> {
    match heard.recv().await {
        Some(()) => Some(()),
        None => std::future::pending().await,
    }
}

async fn settle(heard: &mut mpsc::UnboundedReceiver<()>) {
    let quiet = async { while let Ok(Some(())) = time::timeout(QUIET, heard_from(heard)).await {} };
    // Either is a good moment to read.
    let _ = time::timeout(LONGEST_UNREST, quiet).await;
}
