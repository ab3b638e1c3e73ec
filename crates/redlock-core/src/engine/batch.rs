//! Tracks one chunk of requests of one kind, and the progress of each.

use std::{sync::Arc, time::Duration};

use super::{calls::Call, progress::Progress};
use crate::{BootInstant, LockKeys, MAX_MASTERS, Operation, QuorumSize, RequestId, command::Item};

/// One lock's part of a batch, and its progress.
#[derive(Debug)]
pub(super) struct Entry {
    /// The request that the entry completes; `None` for a clean-up.
    pub(super) request: Option<RequestId>,
    pub(super) lock: Arc<LockKeys>,
    pub(super) item: Item,
    pub(super) progress: Progress,
    /// The number of local clock steps when the entry began.
    pub(super) local_steps: u64,
}

impl Entry {
    /// Returns an entry that begins at `started`, after `local_steps` steps of the local clock; no attempt lasts longer
    /// than `acquire_limit`.
    pub(super) fn new(
        request: Option<RequestId>,
        (lock, item): (Arc<LockKeys>, Item),
        size: QuorumSize,
        (started, local_steps): (BootInstant, u64),
        acquire_limit: Duration,
    ) -> Self {
        let progress = Progress::new(&item, size, started, acquire_limit);
        Self {
            request,
            lock,
            item,
            progress,
            local_steps,
        }
    }

    /// Reports whether the local clock stepped since the entry began, if its result depends on that time (P-96).
    pub(super) fn is_stale(&self, local_steps: u64) -> bool {
        self.local_steps != local_steps && self.progress.is_timed()
    }
}

/// Entries that travel together, until the last master has answered or the deadline has passed.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) operation: Operation,
    pub(super) entries: Vec<Entry>,
    /// The unanswered calls, each with its places in `entries`.
    pub(super) calls: [Option<(Call, Vec<usize>)>; MAX_MASTERS],
    /// The number of masters whose answer is missing.
    pub(super) outstanding: usize,
    /// The number of entries whose completion is not certain yet. No caller waits for an undo.
    pub(super) undecided: usize,
    pub(super) deadline: BootInstant,
}

impl Batch {
    pub(super) fn count_undecided(&mut self) {
        if self.undecided > 0 {
            let entries = self.entries.iter();
            self.undecided = entries.filter(|e| !matches!(e.progress, Progress::Over)).count();
        }
    }
}
