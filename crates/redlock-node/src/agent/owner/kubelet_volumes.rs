//! Reads the volumes that the kubelet has on disk, outside the task that owns the records: the disk of a node
//! may hang.

use std::path::PathBuf;

use redlock_client::clock;
use tokio::task::JoinSet;

use super::{Command, Owner};
use crate::{
    agent::AgentError,
    kubelet::{self, KubeletError, Published},
    volume,
};

/// The result of a read.
#[derive(Debug)]
pub(in crate::agent) enum Read {
    /// Every volume of the driver.
    Published(Result<Vec<Published>, KubeletError>),
    /// Pods, and the declared locks that their volumes name.
    Locks(Vec<(String, String)>),
}

/// The reads that are under way, and the calls that wait for the first read: until then, the pods that run
/// without an entry are unknown, and such a pod would be taken for a new one.
#[derive(Debug)]
pub(in crate::agent) struct KubeletVolumes {
    pub(super) reads: JoinSet<Read>,
    /// `None` once the volumes are known.
    early: Option<Vec<Command>>,
}

impl KubeletVolumes {
    /// Begins to read all volumes. A read from a disk that hangs cannot be ended, and the agent does not wait
    /// for it at its end.
    pub(in crate::agent) fn read(kubelet: Option<PathBuf>) -> Self {
        let mut reads = JoinSet::new();
        let early = kubelet.map(|kubelet| {
            reads.spawn_blocking(move || Read::Published(kubelet::published(&kubelet)));
            Vec::new()
        });
        Self { reads, early }
    }

    pub(super) const fn is_known(&self) -> bool {
        self.early.is_none()
    }

    /// Returns the command if it can be carried out now, and keeps it otherwise.
    pub(super) fn admit(&mut self, command: Command) -> Option<Command> {
        match (&mut self.early, command) {
            (Some(early), call @ (Command::Publish(..) | Command::Unpublish(..))) => {
                early.push(call);
                None
            }
            (_, command) => Some(command),
        }
    }
}

impl Owner<'_> {
    pub(super) fn on_read(&mut self, read: Read) -> Result<(), AgentError> {
        match read {
            Read::Published(published) => {
                self.restore_published(published?);
                for call in self.kubelet.early.take().into_iter().flatten() {
                    self.on_command(call);
                }
                self.read_locks();
            }
            Read::Locks(named) => {
                for (uid, declared) in named {
                    if let Some(pod) = self.pods.get_mut(&uid).filter(|pod| pod.declared.is_empty()) {
                        pod.declared = declared;
                        self.resolve_again(&uid);
                    }
                }
            }
        }
        Ok(())
    }

    /// Restores the pods that the table does not show.
    fn restore_published(&mut self, published: Vec<Published>) {
        let now = clock::now();
        for volume in published {
            if !self.pods.contains_key(&volume.uid) {
                let reason = "the table has no entry for a volume of the kubelet";
                self.restore_unknown(&volume.uid, reason, now);
            }
            if let Some(pod) = self.pods.get_mut(&volume.uid) {
                pod.targets.insert(volume.target);
            }
        }
    }

    /// Reads which locks fence the pods that were found without an entry.
    pub(super) fn read_locks(&mut self) {
        let unnamed = self.pods.iter().filter(|(_, pod)| pod.declared.is_empty());
        let unnamed: Vec<_> = unnamed
            .map(|(uid, pod)| (uid.clone(), pod.targets.clone()))
            .collect();
        if unnamed.is_empty() || !self.kubelet.reads.is_empty() {
            return;
        }
        self.kubelet.reads.spawn_blocking(move || {
            let named = unnamed.into_iter().filter_map(|(uid, targets)| {
                let (namespace, lock) = targets.iter().find_map(|target| volume::lock(target))?;
                Some((uid, format!("{namespace}/{lock}")))
            });
            Read::Locks(named.collect())
        });
    }
}
