//! Holds the work that is due, and the requests that are under way.

use std::collections::{BTreeMap, BTreeSet};

use crate::{controller::object::ObjectKey, lease::BootInstant};

/// Objects that have to be processed again.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Locks to be judged and applied again.
    pub(super) locks: BTreeSet<ObjectKey>,
    pub(super) quorums: BTreeSet<String>,
    /// Quorums to be processed with the next tick.
    pub(super) later: BTreeSet<String>,
    /// Locks whose decision or target task (`tasks`) or finalizer (`finalizers`) could not be handled yet.
    pub(super) tasks: BTreeSet<ObjectKey>,
    pub(super) finalizers: BTreeSet<ObjectKey>,
    /// Locks whose objects have to be read.
    pub(super) reads: BTreeSet<ObjectKey>,
    /// Locks whose departure waits until it is recorded.
    pub(super) departures: BTreeSet<ObjectKey>,
    /// Locks for which the masters are to be asked about other clusters.
    pub(super) willing: BTreeSet<ObjectKey>,
    /// The time of the last check of the locks that show this cluster as willing.
    pub(super) shown_at: Option<BootInstant>,
    /// Locks that this cluster leaves to the other clusters for a time.
    pub(super) abstaining: BTreeSet<ObjectKey>,
}

/// Requests under way for single objects.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The hand-over requests that are being answered.
    pub(super) answering: BTreeMap<ObjectKey, String>,
    /// The hand-over requests that wait for an answer of the masters, and when each was first seen.
    pub(super) asked: BTreeMap<ObjectKey, (String, BootInstant)>,
    /// Unreadable objects that are being deleted; their readable parts are being read.
    pub(super) salvaging: BTreeSet<ObjectKey>,
    /// The number of drains started so far.
    pub(super) drains: u64,
}

impl InFlight {
    /// Returns when this request was first seen.
    pub(super) fn first_asked(&mut self, key: &ObjectKey, request: &str, now: BootInstant) -> BootInstant {
        let asked = self.asked.entry(key.clone());
        let (known, at) = asked.or_insert_with(|| (request.to_owned(), now));
        if known != request {
            (*known, *at) = (request.to_owned(), now);
        }
        *at
    }
}
