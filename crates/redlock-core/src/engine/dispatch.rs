//! Sends requests in batches and keeps the deadlines of the batches.

use std::time::Duration;

use super::{
    Engine, Output, Transmit, TransmitId,
    batch::{Batch, Entry},
    fenced, order,
};
use crate::{
    BootInstant, MAX_MASTERS, Operation, Request, Unknown,
    command::Item,
    script::{BatchItem, Payload},
};

/// The most locks in one script call (P-11). In measurements, 100 to 200 locks have the throughput of one big call,
/// and block the master for a tenth of its time.
pub(super) const BATCH: usize = 128;

/// The longest time for which requests are held back (P-11). While a batch is under way, new requests wait for its
/// replies and travel together: under load, batches fill instead of multiplying. The limit ensures that
/// masters that do not answer delay no other request.
pub(super) const HOLD: Duration = Duration::from_millis(1);

impl Engine {
    pub(super) fn on_request(&mut self, request: Request, now: BootInstant) {
        if self.is_unused(now) {
            self.poll_rested();
        }
        self.last_request = now;
        let Request { id, lock, command } = request;
        let command = match fenced::admit(command, self.plant) {
            Ok(command) => command,
            Err(completion) => {
                return self.outputs.push_back(Output::Completed {
                    request: id,
                    lock,
                    won: None,
                    completion,
                });
            }
        };
        let entry = self.entry(Some(id), (lock, Item::Command(command)), now);
        #[cfg(feature = "planted")]
        let entry = self.planted_entry(entry);
        self.waiting.push(entry);
    }

    fn entry(&self, request: Option<crate::RequestId>, item: BatchItem, now: BootInstant) -> Entry {
        Entry::new(
            request,
            item,
            self.size,
            (now, self.local_steps),
            self.acquire_limit,
        )
    }

    /// Sends the calls that are ready, until none is left.
    pub(super) fn send(&mut self, now: BootInstant) {
        if !self.is_holding(now) {
            self.ready.append(&mut self.waiting);
        }
        // Masters that may not be asked answer at once, which may lead to undos.
        while !self.ready.is_empty() {
            let mut entries = std::mem::take(&mut self.ready);
            order::sort(&mut entries);
            let mut batch: Vec<Entry> = Vec::new();
            for entry in entries {
                let kind = entry.item.kind();
                let other = |first: &Entry| first.item.kind() != kind;
                if batch.len() >= BATCH || batch.first().is_some_and(other) {
                    self.send_batch(std::mem::take(&mut batch), now);
                }
                batch.push(entry);
            }
            self.send_batch(batch, now);
        }
    }

    /// Reports whether requests are held back: a batch that a caller waits for is under way, and the last one was sent
    /// less than [`HOLD`] ago.
    fn is_holding(&self, now: BootInstant) -> bool {
        self.last_sent + HOLD > now && self.batches.values().any(|batch| batch.undecided > 0)
    }

    /// Returns the time at which requests that are held back are sent.
    pub(super) fn release_at(&self) -> Option<BootInstant> {
        (!self.waiting.is_empty()).then(|| self.last_sent + HOLD)
    }

    /// Sends one batch to all of its masters at the same time, with a deadline of its own (P-3).
    fn send_batch(&mut self, entries: Vec<Entry>, now: BootInstant) {
        let Some(operation) = entries.first().map(|entry| entry.item.operation()) else {
            return;
        };
        let left = entries.iter().map(|entry| entry.progress.limit().left(now)).min();
        let timeout = self.command_timeout.min(left.unwrap_or_default());
        let payload = Payload {
            operation,
            items: entries.iter().map(|e| (e.lock.clone(), e.item.clone())).collect(),
            keys: self.keys.clone(),
            cluster: self.cluster.clone(),
            floor: self.floor(),
        };
        if operation != Operation::Undo {
            self.last_sent = now;
        }
        // The members of each master that the batch is for.
        let all = (0..self.size.masters()).map(|master| (master, payload.members(master)));
        let all: Vec<_> = all.filter(|(_, members)| !members.is_empty()).collect();
        self.next_batch += 1;
        let id = self.next_batch;
        let undecided = if operation == Operation::Undo {
            0
        } else {
            entries.len()
        };
        self.batches.insert(
            id,
            Batch {
                operation,
                undecided,
                outstanding: all.len(),
                entries,
                calls: [const { None }; MAX_MASTERS],
                deadline: now + timeout,
            },
        );
        let refused: Vec<_> = all
            .into_iter()
            .filter_map(|of_one| self.send_to(id, &payload, of_one, timeout, now))
            .collect();
        // All calls are entered before this, because a batch ends with the last of its answers.
        for (of_one, unknown) in refused {
            self.answer_batch(id, of_one, Err(unknown), now);
        }
    }

    /// Sends a batch to one master. If the master is not asked, returns the members and the reason.
    fn send_to(
        &mut self,
        id: u64,
        payload: &Payload,
        (master, members): (usize, Vec<usize>),
        timeout: Duration,
        now: BootInstant,
    ) -> Option<((usize, Vec<usize>), Unknown)> {
        let operation = payload.operation;
        if matches!(operation, Operation::Grant | Operation::Renew) {
            let attempts = members.iter().filter_map(|i| payload.items[*i].1.attempt());
            attempts.for_each(|attempt| attempt.sending(master));
        }
        let call = match self.begin_batch_call(master, operation.admission(), timeout, now) {
            Ok(call) => call,
            Err(unknown) => return Some(((master, members), unknown)),
        };
        self.outputs.push_back(Output::Transmit(Transmit {
            id: TransmitId { batch: id, master },
            connection: call.connection,
            not_after: call.not_after,
            deadline: now + timeout,
            payload: payload.clone(),
            members: members.clone(),
            stamp: self.identity.stamp(),
        }));
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.calls[master] = Some((call, members));
        }
        None
    }

    /// Ends the batches whose deadline has passed: a master that has not answered is unknown. Repeats the calls that
    /// are due.
    pub(super) fn on_timeout(&mut self, now: BootInstant) {
        let overdue = self.batches.iter().filter(|(_, batch)| batch.deadline <= now);
        let overdue: Vec<u64> = overdue.map(|(id, _)| *id).collect();
        for batch in overdue {
            for master in 0..self.size.masters() {
                let timeout = self.batches.get(&batch).and_then(|b| b.calls[master].as_ref());
                if let Some(timeout) = timeout.map(|(call, _)| call.timeout) {
                    let late = Err(Unknown::TimedOut(timeout.as_millis()));
                    self.on_reply(TransmitId { batch, master }, late, now);
                }
            }
        }
        for item in self.repeats.take_due(now) {
            let entry = self.entry(None, item, now);
            self.ready.push(entry);
        }
    }
}
