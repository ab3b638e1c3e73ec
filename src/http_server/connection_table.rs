//! Decides which connection is closed for a new one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The phase of a connection, which carries one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The head or the body of the request is incomplete.
    Reading,
    /// The request is complete; the answer is computed or sent.
    Answering,
    /// The answer has no end of its own. Its handler bounds the number of such answers.
    Streaming,
}

/// Larger for a later connection.
type ConnectionNumber = u64;

/// The open connections of a listener, from the oldest to the newest. `C` closes a connection. Pure.
#[derive(Debug)]
struct ConnectionTable<C> {
    limit: usize,
    next: ConnectionNumber,
    open: BTreeMap<ConnectionNumber, (ConnectionPhase, C)>,
}

impl<C> ConnectionTable<C> {
    const fn new(limit: usize) -> Self {
        Self {
            limit,
            next: 0,
            open: BTreeMap::new(),
        }
    }

    /// Adds a connection, and returns the one that must be closed for it.
    fn admit(&mut self, close: C) -> (ConnectionNumber, Option<C>) {
        let evicted = self.evicted();
        let number = self.next;
        self.next += 1;
        self.open.insert(number, (ConnectionPhase::Reading, close));
        (number, evicted.and_then(|number| self.remove(number)))
    }

    /// Returns the connection that gives way to a new one: the oldest one of the phase with more connections. Half of the limit
    /// must follow a connection before it gives way in its phase, so a probe is answered first.
    fn evicted(&self) -> Option<ConnectionNumber> {
        let of = |wanted| self.open.iter().filter(move |(_, (phase, _))| *phase == wanted);
        let (reading, answering) = (ConnectionPhase::Reading, ConnectionPhase::Answering);
        let counts = (of(reading).count(), of(answering).count());
        if counts.0 + counts.1 < self.limit {
            return None;
        }
        let phase = if counts.0 >= counts.1 { reading } else { answering };
        of(phase).next().map(|(number, _)| *number)
    }

    fn enter(&mut self, number: ConnectionNumber, entered: ConnectionPhase) {
        if let Some((phase, _)) = self.open.get_mut(&number) {
            *phase = entered;
        }
    }

    fn remove(&mut self, number: ConnectionNumber) -> Option<C> {
        self.open.remove(&number).map(|(_, close)| close)
    }
}

/// The open connections of a listener; clones share them.
#[derive(Clone, Debug)]
pub(super) struct OpenConnections(Arc<Mutex<ConnectionTable<CancellationToken>>>);

impl OpenConnections {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(ConnectionTable::new(limit))))
    }

    /// Returns a place for a new connection. If all are taken, closes another connection.
    pub(super) fn admit(&self) -> ConnectionPlace {
        let closed = CancellationToken::new();
        let (number, evicted) = self.with(|table| table.admit(closed.clone()));
        if let Some(evicted) = evicted {
            evicted.cancel();
        }
        ConnectionPlace {
            number,
            open: self.clone(),
            phase: watch::Sender::new(ConnectionPhase::Reading),
            closed,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut ConnectionTable<CancellationToken>) -> T) -> T {
        // No code that panics runs under this lock, so a poisoned lock is still consistent.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The place of a connection in the table. Drop frees it.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    number: ConnectionNumber,
    open: OpenConnections,
    phase: watch::Sender<ConnectionPhase>,
    closed: CancellationToken,
}

impl ConnectionPlace {
    /// Enters a phase, whose time then begins; changes nothing in the phase itself.
    pub(super) fn enter(&self, entered: ConnectionPhase) {
        self.open.with(|table| table.enter(self.number, entered));
        self.phase.send_if_modified(|phase| {
            let before = std::mem::replace(phase, entered);
            before != entered
        });
    }

    pub(super) fn phases(&self) -> watch::Receiver<ConnectionPhase> {
        self.phase.subscribe()
    }

    /// Waits until another connection takes this place.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.open.with(|table| table.remove(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionPhase::*, *};

    fn full(phases: &[ConnectionPhase]) -> ConnectionTable<usize> {
        let mut table = ConnectionTable::new(3);
        for (index, phase) in phases.iter().enumerate() {
            let (number, evicted) = table.admit(index);
            assert_eq!(evicted, None);
            table.enter(number, *phase);
        }
        table
    }

    #[test]
    fn the_oldest_connection_of_the_larger_phase_gives_way() {
        for (phases, evicted) in [
            (&[Reading, Reading][..], None),
            (&[Reading, Reading, Reading], Some(0)),
            (&[Answering, Reading, Reading], Some(1)),
            // A probe whose request arrives next, while other clients do not read.
            (&[Answering, Answering, Reading], Some(0)),
            (&[Answering, Answering, Answering], Some(0)),
            // A stream has a limit of its own, and takes no place.
            (&[Streaming, Reading, Reading], None),
            (&[Streaming, Reading, Reading, Reading], Some(1)),
            (&[Streaming, Streaming, Streaming, Streaming], None),
        ] {
            assert_eq!(full(phases).admit(99).1, evicted, "{phases:?}");
        }
    }

    #[test]
    fn a_connection_that_ended_leaves_its_place() {
        let mut table = full(&[Reading, Reading, Reading]);
        assert_eq!(table.remove(1), Some(1));
        assert_eq!(table.admit(3).1, None);
        assert_eq!(table.admit(4).1, Some(0));
        // The phase of a connection that was closed changes nothing.
        table.enter(0, Answering);
        assert_eq!(table.admit(5).1, Some(2));
    }
}
