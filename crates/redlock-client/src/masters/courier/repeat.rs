//! Undos and reserves that have to be repeated: the connection of the grant is gone, or the master did not answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Call, Request, Sink, Tenure};
use crate::{lease::Moment, masters::keys::LockKeys};

/// Longest wait between two repeats.
const SLOWEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Repeat {
    lock: Arc<LockKeys>,
    tenure: Arc<Tenure>,
    master: usize,
    /// The end was a reserve.
    reserve: bool,
    wait: Duration,
    until: Moment,
}

/// By the time of the next try. A lease that nobody could undo ends by itself, and its entry with it.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    due: BTreeMap<(Moment, u64), Repeat>,
    next_id: u64,
    trying: BTreeMap<(usize, usize), (Duration, Moment)>,
}

impl Repeats {
    /// Plans a repeat after the last `not_after` of any grant or renewal of that lease: none is sent after `now`, and
    /// each was given at most `command_timeout`, the longest that there was.
    pub(super) fn plan(
        &mut self,
        lock: &Arc<LockKeys>,
        tenure: &Arc<Tenure>,
        (master, reserve): (usize, bool),
        now: Moment,
        command_timeout: Duration,
    ) {
        let key = (Arc::as_ptr(tenure) as usize, master);
        let (wait, until) = self.trying.remove(&key).unwrap_or((
            command_timeout * 102 / 100 + Duration::from_millis(5),
            now + tenure.lifetime + command_timeout,
        ));
        if now + wait > until {
            return;
        }
        let repeat = Repeat {
            lock: lock.clone(),
            tenure: tenure.clone(),
            master,
            reserve,
            wait,
            until,
        };
        self.next_id += 1;
        self.due.insert((now + wait, self.next_id), repeat);
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.due.first_key_value().map(|((moment, _), _)| *moment)
    }

    pub(super) fn count(&self) -> usize {
        self.due.len()
    }

    /// Those whose time has come. What follows a reserve that failed is a release, with repeats of its own; or nothing,
    /// and the lease is to run out.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let Repeat {
                lock,
                tenure,
                master,
                reserve,
                wait,
                until,
            } = entry.remove();
            let key = (Arc::as_ptr(&tenure) as usize, master);
            let request = match (reserve, tenure.reserved().cloned()) {
                (false, _) => Request::Undo {
                    tenure,
                    only: Some(master),
                    publish: false,
                },
                (true, Some(cluster)) => Request::ReserveAgain {
                    tenure,
                    cluster,
                    only: master,
                },
                (true, None) => continue,
            };
            self.trying.insert(key, ((wait * 2).min(SLOWEST), until));
            calls.push(Call {
                lock,
                request,
                sink: Sink::Nobody,
            });
        }
        calls
    }

    /// This one was answered: nothing is left.
    pub(super) fn done(&mut self, tenure: &Arc<Tenure>, master: usize) {
        if !self.trying.is_empty() {
            self.trying.remove(&(Arc::as_ptr(tenure) as usize, master));
        }
    }
}
