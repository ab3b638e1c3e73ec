//! Turns the answers of the masters into completions, confirms, undos and their repeats.

use std::sync::Arc;

use super::{
    Engine, Finished, Output, TransmitId,
    batch::Entry,
    fenced,
    progress::{Change, Progress, vote},
    repeats::RepeatedCall,
};
use crate::{
    Answer, BootInstant, Command, Completion, ConnectionId, Operation, Reply, Unknown, Vote, command::Item,
    planted::Plant, reply,
};

/// The answers of one master to a batch.
struct Answers {
    reply: Option<Reply>,
    /// The reason why an item without an answer is unknown.
    missing: Unknown,
    /// The reason why only refusals count, if so.
    doubt: Option<Unknown>,
}

impl Answers {
    fn of(finished: Finished, operation: Operation) -> Self {
        match (finished.reply, finished.doubted) {
            (Ok(reply), _) => Self {
                reply: Some(reply),
                missing: Unknown::Reply("one answer for each lock expected".into()),
                doubt: None,
            },
            (Err(unknown), Some(reply)) if operation == Operation::Renew => Self {
                reply: Some(reply),
                missing: unknown.clone(),
                doubt: Some(unknown),
            },
            (Err(unknown), _) => Self {
                reply: None,
                missing: unknown,
                doubt: None,
            },
        }
    }

    fn at(
        &self,
        (position, kind): (usize, (Operation, bool)),
        (received, longest): (BootInstant, std::time::Duration),
        stale: bool,
    ) -> Answer {
        let item = self.reply.as_ref().and_then(|reply| reply.items.get(position));
        let answer = item.map_or_else(
            || Answer::Unknown(self.missing.clone()),
            |item| reply::answer(item, kind, received, longest),
        );
        let counter = self.reply.as_ref().map_or(0, |reply| reply.counter);
        let answer = answer.within(counter);
        match self
            .doubt
            .clone()
            .or_else(|| stale.then_some(Unknown::LocalClock))
        {
            Some(doubt) => answer.only_refusals(doubt),
            None => answer,
        }
    }
}

impl Engine {
    /// Handles the result of a transmit. A result that is no longer awaited changes nothing (P-6).
    pub(super) fn on_reply(&mut self, id: TransmitId, result: Result<Reply, Unknown>, now: BootInstant) {
        let TransmitId { batch, master } = id;
        let of = self.batches.get_mut(&batch);
        let Some((call, members)) = of.and_then(|of| of.calls.get_mut(master)?.take()) else {
            return;
        };
        self.masters[master].under_way -= 1;
        let finished = self.finish_call(master, &call, result, now);
        let took = now.since(call.sent);
        self.answer_members(batch, (master, members, call.connection), finished, (took, now));
    }

    /// Handles the answer for a master that was not asked.
    pub(super) fn answer_batch(
        &mut self,
        batch: u64,
        (master, members): (usize, Vec<usize>),
        reply: Result<Reply, Unknown>,
        now: BootInstant,
    ) {
        let finished = Finished { reply, doubted: None };
        let took = std::time::Duration::ZERO;
        self.answer_members(batch, (master, members, ConnectionId(0)), finished, (took, now));
    }

    fn answer_members(
        &mut self,
        id: u64,
        (master, members, connection): (usize, Vec<usize>, ConnectionId),
        finished: Finished,
        (took, now): (std::time::Duration, BootInstant),
    ) {
        let Some(mut batch) = self.batches.remove(&id) else {
            return;
        };
        let operation = batch.operation;
        let answers = Answers::of(finished, operation);
        let mut votes = [0; 3];
        #[cfg(feature = "planted")]
        let members = self.planted_members(members);
        for (position, index) in members.into_iter().enumerate() {
            let Some(entry) = batch.entries.get_mut(index) else {
                continue;
            };
            let stale = entry.is_stale(self.local_steps);
            let asked = (position, entry.item.kind());
            let answer = answers.at(asked, (now, self.longest_lease), stale);
            #[cfg(feature = "planted")]
            let answer = self.planted_answer(answer);
            votes[vote(&answer) as usize] += 1;
            self.clean_up(entry, master, &answer, connection, now);
            self.answered(entry, master, answer, now);
        }
        batch.count_undecided();
        self.outputs.push_back(Output::Exchanged {
            master,
            operation,
            votes,
            took,
        });
        batch.outstanding -= 1;
        if batch.outstanding > 0 {
            self.batches.insert(id, batch);
        }
    }

    /// Records on which connections a lease was sent, and plans to repeat an undo that may have run before
    /// the grant.
    fn clean_up(
        &mut self,
        entry: &Entry,
        master: usize,
        answer: &Answer,
        on: ConnectionId,
        now: BootInstant,
    ) {
        let Some(attempt) = entry.item.attempt() else {
            return;
        };
        match (entry.item.operation(), RepeatedCall::of(&entry.item)) {
            (Operation::Grant | Operation::Renew, _) => attempt.sent(master, on.0),
            (_, Some(repeated_call)) => {
                let settles = matches!(answer, Answer::Unknown(Unknown::ConnectionLost(_)))
                    && self.plant.is(Plant::LostReleaseSettles);
                let undone = (settles || vote(answer) != Vote::Unknown).then_some(on.0);
                let repeated = entry.item.is_repeat() && undone.is_some();
                let repeated = repeated || self.plant.is(Plant::NoCleanUp);
                if !repeated && attempt.may_be_left(master, undone) {
                    let undone =
                        self.plant.is(Plant::ReserveUndone) || self.plant.is(Plant::ReserveOnAMinority);
                    let repeated_call = match repeated_call {
                        RepeatedCall::Reserve if undone => RepeatedCall::Undo { publish: false },
                        repeated_call => repeated_call,
                    };
                    let longest = self.longest_timeout;
                    self.repeats
                        .plan(&entry.lock, attempt, (master, repeated_call), now, longest);
                } else {
                    self.repeats.done(attempt, master);
                }
            }
            (_, None) => {}
        }
    }

    fn answered(&mut self, entry: &mut Entry, master: usize, answer: Answer, now: BootInstant) {
        #[cfg(feature = "planted")]
        let (now, of) = (
            self.planted_time(entry, now),
            (master, vote(&answer) == Vote::Granted),
        );
        let change = entry
            .progress
            .on_answer(&entry.item, self.size, master, answer, now);
        #[cfg(feature = "planted")]
        let change = self.planted_change(entry, of, change, now);
        match change {
            Change::None => {}
            Change::Confirm(item, attempt) => self.ready.push(Entry {
                request: entry.request.take(),
                lock: entry.lock.clone(),
                item,
                progress: Progress::Attempt(attempt),
                local_steps: entry.local_steps,
            }),
            Change::Completed(completion) => self.completed(entry, completion, now),
        }
    }

    /// Completes a request. An attempt that was lost is undone on all masters (P-37).
    fn completed(&mut self, entry: &mut Entry, completion: Completion, now: BootInstant) {
        #[cfg(feature = "planted")]
        let completion = self.planted_completion(entry, completion, now);
        if let (
            Item::Command(Command::Reserve { attempt, cluster }),
            Completion::Done { majority: true, .. },
        ) = (&entry.item, &completion)
        {
            attempt.reserve(cluster);
        }
        if let Completion::Done { majority: true, .. } = completion {
            fenced::done(&entry.item);
        }
        let attempt = entry.item.attempt();
        // A lost attempt is undone on all masters, whatever they answered (P-53). A failed renewal is not (P-48).
        let undoes = match completion {
            Completion::NotWon(_) => !self.plant.is(Plant::NoCleanUp),
            Completion::RenewalUndecided => self.plant.is(Plant::FailedRenewalDeletes),
            _ => false,
        };
        if let (true, Some(attempt)) = (undoes, attempt) {
            let undo = Item::Command(Command::Undo {
                attempt: attempt.clone(),
                publish: false,
            });
            self.ready.push(Entry::new(
                None,
                (entry.lock.clone(), undo),
                self.size,
                (now, entry.local_steps),
                std::time::Duration::ZERO,
            ));
        }
        let won = matches!(completion, Completion::Won(_))
            .then(|| attempt.cloned())
            .flatten();
        if let Some(request) = entry.request.take() {
            self.outputs.push_back(Output::Completed {
                request,
                lock: Arc::clone(&entry.lock),
                won,
                completion,
            });
        }
    }
}
