//! The clocks of one quorum, shared by the connections to its masters.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::lease::{Clocks, Judgement, QuorumSize, Sample};

#[derive(Debug)]
pub(crate) struct SharedClocks {
    size: QuorumSize,
    longest_lease: Duration,
    clocks: Mutex<Clocks>,
    /// How often the local clock stepped.
    local_steps: watch::Sender<u64>,
}

impl SharedClocks {
    pub(crate) fn new(size: QuorumSize, longest_lease: Duration) -> Arc<Self> {
        Arc::new(Self {
            size,
            longest_lease,
            clocks: Mutex::new(Clocks::new(size, longest_lease)),
            local_steps: watch::Sender::new(0),
        })
    }

    /// For a connection of its own, which says nothing of the masters of the quorum.
    pub(crate) fn apart(&self) -> Arc<Self> {
        Self::new(self.size, self.longest_lease)
    }

    /// The lock is a leaf: nothing else is locked under it.
    pub(crate) fn get(&self) -> MutexGuard<'_, Clocks> {
        // Nothing that panics runs under this lock; a poisoned one still holds consistent values.
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sample(&self, master: usize, sample: Sample) -> Judgement {
        let judgement = self.get().sample(master, sample);
        if judgement == Judgement::LocalStepped {
            // Before the reply that shows it leads to anything.
            self.local_steps.send_modify(|steps| *steps += 1);
        }
        judgement
    }

    pub(crate) fn local_steps(&self) -> u64 {
        *self.local_steps.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.local_steps.subscribe()
    }
}
