//! Writes the files of volumes, beside the task that owns the records: the disk of a node may hang.

use std::{collections::BTreeMap, path::PathBuf};

use tokio::{sync::mpsc, task::JoinHandle};

use crate::{guardian::chain, volume, volume::Contents};

/// The task, and what it is to write.
#[derive(Debug)]
pub(super) struct Volumes {
    updates: mpsc::UnboundedSender<(PathBuf, Contents)>,
    task: JoinHandle<()>,
}

impl Volumes {
    pub(super) fn start() -> Self {
        let (updates, mut received) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut batch = Vec::new();
            while received.recv_many(&mut batch, usize::MAX).await > 0 {
                // The last one of each volume.
                let last: BTreeMap<PathBuf, Contents> = batch.drain(..).collect();
                let written = tokio::task::spawn_blocking(move || {
                    for (target, contents) in last {
                        update(&target, &contents);
                    }
                });
                if let Err(error) = written.await {
                    tracing::error!(%error, "writing volumes");
                }
            }
        });
        Self { updates, task }
    }

    pub(super) fn update(&self, target: PathBuf, contents: Contents) {
        if self.updates.send((target, contents)).is_err() {
            tracing::error!("the task that writes volumes has ended");
        }
    }

    /// Writes the updates that were sent before.
    pub(super) async fn close(self) {
        drop(self.updates);
        let _ = self.task.await;
    }
}

/// A volume that is not written yet, or was removed meanwhile, is left alone.
fn update(target: &std::path::Path, contents: &Contents) {
    if volume::is_written(target)
        && let Err(error) = volume::write(target, contents)
    {
        tracing::warn!(error = %chain(&error), "a volume cannot be updated");
    }
}
