//! Plants the faults of the engine.

use super::{
    Engine,
    batch::Entry,
    progress::{Change, Progress},
};
use crate::{
    Answer, BootInstant, Command, Completion, Step, Tally, Unknown, Vote, command::Item, planted::Plant,
};

#[derive(Debug, Default)]
pub(super) struct Planted {
    /// The votes of earlier renewals.
    sum: Option<Tally>,
}

impl Engine {
    /// Plants a fault.
    pub fn plant(&mut self, plant: Plant) {
        self.plant = plant;
    }

    pub(super) fn planted_entry(&mut self, mut entry: Entry) -> Entry {
        if matches!(entry.item, Item::Command(Command::Acquire { .. })) {
            self.planted.sum = None;
        }
        if let (true, Progress::Renewal { tally, .. }, Some(sum)) = (
            self.plant.is(Plant::VotesSummedOverRounds),
            &mut entry.progress,
            self.planted.sum,
        ) {
            *tally = sum;
        }
        if let (true, Progress::Attempt(attempt)) =
            (self.plant.is(Plant::OneCleanCounts), &mut entry.progress)
        {
            attempt.believe_one_clean();
        }
        entry
    }

    pub(super) fn planted_members(&self, mut members: Vec<usize>) -> Vec<usize> {
        if self.plant.is(Plant::AnswersMixedUp) {
            members.reverse();
        }
        members
    }

    pub(super) fn planted_answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Unknown(Unknown::TimedOut(_)) if self.plant.is(Plant::SilenceGrants) => Answer::DONE,
            Answer::Unknown(Unknown::Server { .. }) if self.plant.is(Plant::ErrorGrants) => Answer::DONE,
            answer => answer,
        }
    }

    pub(super) fn planted_time(&self, entry: &Entry, now: BootInstant) -> BootInstant {
        match &entry.progress {
            Progress::Attempt(attempt) if self.plant.is(Plant::NoCheckAfterTheReplies) => {
                attempt.limit() - self.acquire_limit
            }
            _ => now,
        }
    }

    /// Applies a fault after the answer of a master to this entry was counted.
    pub(super) fn planted_change(
        &mut self,
        entry: &mut Entry,
        (master, granted): (usize, bool),
        change: Change,
        now: BootInstant,
    ) -> Change {
        match (self.plant, change) {
            (Plant::NoConfirm, Change::Confirm(Item::Confirm { granted, .. }, mut attempt)) => {
                let confirmed = granted
                    .iter()
                    .map(|(master, _)| attempt.on_confirm(*master, Vote::Granted, now));
                let won = confirmed.into_iter().find_map(|step| match step {
                    Step::Won(won) => Some(Completion::Won(won)),
                    _ => None,
                });
                won.map_or(Change::None, Change::Completed)
            }
            (Plant::VoteCountedTwice, Change::None)
                if granted && matches!(entry.progress, Progress::Renewal { .. }) =>
            {
                let next = (master + 1) % self.size.masters();
                entry
                    .progress
                    .on_answer(&entry.item, self.size, next, Answer::DONE, now)
            }
            (Plant::VotesSummedOverRounds, change) => {
                let renews = matches!(entry.item, Item::Command(Command::Renew { .. }));
                if renews && granted {
                    let sum = self.planted.sum.get_or_insert_with(|| Tally::new(self.size));
                    sum.record(master, Vote::Granted);
                }
                if matches!(change, Change::Completed(Completion::Renewed { .. })) {
                    self.planted.sum = None;
                }
                change
            }
            (_, change) => change,
        }
    }

    pub(super) fn planted_completion(
        &self,
        entry: &Entry,
        completion: Completion,
        now: BootInstant,
    ) -> Completion {
        match (&entry.item, completion) {
            (Item::Command(Command::Reserve { .. }), Completion::Done { refused, answers, .. })
                if self.plant.is(Plant::ReserveOnAMinority) =>
            {
                Completion::Done {
                    majority: true,
                    refused,
                    answers,
                }
            }
            (_, Completion::Renewed { .. }) if self.plant.is(Plant::RenewedAtTheReply) => {
                Completion::Renewed { started: now }
            }
            (_, completion) => completion,
        }
    }
}
