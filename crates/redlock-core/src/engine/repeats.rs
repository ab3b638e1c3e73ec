//! Undos and reserves that have to be repeated: the connection of the grant is gone, or the master did not answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{BootInstant, LeaseAttempt, LockKeys, command::Item, script::BatchItem};

/// Longest wait between two repeats.
const SLOWEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Repeat {
    lock: Arc<LockKeys>,
    attempt: Arc<LeaseAttempt>,
    master: usize,
    /// The end was a reserve.
    reserve: bool,
    wait: Duration,
    until: BootInstant,
}

/// By the time of the next try. A lease that nobody could undo ends by itself, and its entry with it.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    due: BTreeMap<(BootInstant, u64), Repeat>,
    next_id: u64,
    trying: BTreeMap<(usize, usize), (Duration, BootInstant)>,
}

impl Repeats {
    /// Plans a repeat after the last `not_after` of any grant or renewal of that lease: none is sent after `now`, and
    /// each was given at most `command_timeout`, the longest that there was.
    pub(super) fn plan(
        &mut self,
        lock: &Arc<LockKeys>,
        attempt: &Arc<LeaseAttempt>,
        (master, reserve): (usize, bool),
        now: BootInstant,
        command_timeout: Duration,
    ) {
        let key = (Arc::as_ptr(attempt) as usize, master);
        let (wait, until) = self.trying.remove(&key).unwrap_or((
            command_timeout * 102 / 100 + Duration::from_millis(5),
            now + attempt.lifetime + command_timeout,
        ));
        if now + wait > until {
            return;
        }
        let repeat = Repeat {
            lock: lock.clone(),
            attempt: attempt.clone(),
            master,
            reserve,
            wait,
            until,
        };
        self.next_id += 1;
        self.due.insert((now + wait, self.next_id), repeat);
    }

    pub(super) fn next(&self) -> Option<BootInstant> {
        self.due.first_key_value().map(|((moment, _), _)| *moment)
    }

    pub(super) fn count(&self) -> usize {
        self.due.len()
    }

    /// Those whose time has come. What follows a reserve that failed is a release, with repeats of its own; or nothing,
    /// and the lease is to run out.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Vec<BatchItem> {
        let mut items = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let Repeat {
                lock,
                attempt,
                master,
                reserve,
                wait,
                until,
            } = entry.remove();
            let key = (Arc::as_ptr(&attempt) as usize, master);
            let item = match (reserve, attempt.reserved().cloned()) {
                (false, _) => Item::UndoAgain {
                    attempt,
                    only: master,
                },
                (true, Some(cluster)) => Item::ReserveAgain {
                    attempt,
                    cluster,
                    only: master,
                },
                (true, None) => continue,
            };
            self.trying.insert(key, ((wait * 2).min(SLOWEST), until));
            items.push((lock, item));
        }
        items
    }

    /// This one was answered: nothing is left.
    pub(super) fn done(&mut self, attempt: &Arc<LeaseAttempt>, master: usize) {
        if !self.trying.is_empty() {
            self.trying.remove(&(Arc::as_ptr(attempt) as usize, master));
        }
    }
}
