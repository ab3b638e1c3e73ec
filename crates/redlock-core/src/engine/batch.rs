//! One chunk of requests of one kind, and how far each of them is.

use std::{sync::Arc, time::Duration};

use super::{calls::Call, progress::Progress};
use crate::{BootInstant, LockKeys, MAX_MASTERS, Operation, QuorumSize, RequestId, command::Item};

/// One lock's part of a batch, and how far it is.
#[derive(Debug)]
pub(super) struct Entry {
    /// Of the request that it completes; a clean-up completes none.
    pub(super) request: Option<RequestId>,
    pub(super) lock: Arc<LockKeys>,
    pub(super) item: Item,
    pub(super) progress: Progress,
    /// How often the local clock had stepped when it began.
    pub(super) local_steps: u64,
}

impl Entry {
    /// An entry that begins at `started`, when the local clock had stepped so often; no attempt lasts longer than
    /// `acquire_limit`.
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

    /// Whether the local clock stepped since it began, and its result depends on when that was.
    pub(super) fn is_stale(&self, local_steps: u64) -> bool {
        self.local_steps != local_steps && self.progress.is_timed()
    }
}

/// Entries that travel together, until the last master has answered or run out of time.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) operation: Operation,
    pub(super) entries: Vec<Entry>,
    /// The calls that were not answered, each with its places in `entries`.
    pub(super) calls: [Option<(Call, Vec<usize>)>; MAX_MASTERS],
    /// Masters whose answer is not in yet.
    pub(super) outstanding: usize,
    /// Entries whose completion is not certain yet. No caller waits for an undo.
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
