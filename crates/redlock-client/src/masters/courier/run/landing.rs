//! What the answers of the masters lead to: deliveries, confirms, undos and their repeats.

use std::time::Duration;

use super::{Landed, Underway};
use crate::{
    clock,
    lease::{Moment, QuorumSize, Vote},
    masters::{
        courier::{
            Answer, Call, Delivery, Operation, Request, Sink,
            flight::Entry,
            progress::{Change, Progress, vote},
        },
        reply,
        unknown::Unknown,
    },
};

impl Underway {
    pub(super) fn land(&mut self, landed: Landed) {
        let Landed {
            flight: id,
            master,
            members,
            exchange,
        } = landed;
        let Some(mut flight) = self.flights.remove(&id) else {
            return;
        };
        flight.outstanding -= 1;
        let few = Unknown::Reply("one answer for each lock expected".into());
        let (items, missing, doubt) = match (exchange.reply, exchange.doubted) {
            (Ok(reply), _) => {
                self.floor = self.floor.max(reply.counter);
                self.courier.known.saw(reply.counter);
                (reply.items, few, None)
            }
            (Err(unknown), Some(reply)) if flight.operation == Operation::Renew => {
                (reply.items, few, Some(unknown))
            }
            (Err(unknown), _) => (Vec::new(), unknown, None),
        };
        let now = clock::now();
        let local_steps = self.courier.clocks.local_steps();
        let mut votes = [0; 3];
        for (position, index) in members.into_iter().enumerate() {
            let answer = items.get(position).map_or_else(
                || Answer::Unknown(missing.clone()),
                |item| reply::answer(item, exchange.received),
            );
            let stale = flight.entries.get(index).is_some_and(|e| e.is_stale(local_steps));
            let doubt = doubt.clone().or_else(|| stale.then_some(Unknown::LocalClock));
            let answer = match doubt {
                Some(doubt) => answer.only_refusals(doubt),
                None => answer,
            };
            votes[vote(&answer) as usize] += 1;
            if let Some(entry) = flight.entries.get_mut(index) {
                self.clean_up(&entry.call, master, &answer, exchange.incarnation);
                Self::answered(
                    &mut self.departing,
                    entry,
                    self.courier.size,
                    (master, answer),
                    now,
                );
            }
        }
        if flight.undecided > 0 {
            flight.undecided = flight
                .entries
                .iter()
                .filter(|e| !matches!(e.progress, Progress::Over))
                .count();
        }
        if let Some(meter) = &self.courier.meter {
            meter.exchanged(master, flight.operation, votes, exchange.took);
        }
        if flight.outstanding > 0 {
            self.flights.insert(id, flight);
        }
    }

    /// Follows where a lease was sent, and plans to repeat an undo that may have run before the grant.
    fn clean_up(&mut self, call: &Call, master: usize, answer: &Answer, incarnation: u32) {
        let Some(tenure) = call.request.tenure() else {
            return;
        };
        match call.request.operation() {
            Operation::Grant | Operation::Renew => tenure.sent(master, incarnation),
            Operation::Release | Operation::Undo | Operation::Reserve => {
                let undone = (vote(answer) != Vote::Unknown).then_some(incarnation);
                // A repeat comes after every `not_after`: then any connection will do.
                let repeated = matches!(
                    call.request,
                    Request::Undo { only: Some(_), .. } | Request::ReserveAgain { .. }
                ) && undone.is_some();
                if !repeated && tenure.may_be_left(master, undone) {
                    let now = clock::now();
                    let longest = self.courier.command_timeout.longest();
                    let reserve = call.request.operation() == Operation::Reserve;
                    self.repeats
                        .plan(&call.lock, tenure, (master, reserve), now, longest);
                } else {
                    self.repeats.done(tenure, master);
                }
            }
            _ => {}
        }
    }

    fn answered(
        follow_ups: &mut Vec<Entry>,
        entry: &mut Entry,
        size: QuorumSize,
        (master, answer): (usize, Answer),
        now: Moment,
    ) {
        let change = entry.progress.on_answer(&entry.call, size, master, answer, now);
        match change {
            Change::None => {}
            Change::Confirm(request, attempt) => {
                let sink = std::mem::replace(&mut entry.call.sink, Sink::Nobody);
                let call = Call {
                    lock: entry.call.lock.clone(),
                    request,
                    sink,
                };
                follow_ups.push(Entry {
                    call,
                    progress: Progress::Attempt(attempt),
                    local_steps: entry.local_steps,
                });
            }
            Change::Deliver(delivery) => {
                let (won, lost) = (
                    matches!(delivery, Delivery::Won(_)),
                    matches!(delivery, Delivery::NotWon(_)),
                );
                if let (Request::Reserve { tenure, cluster }, Delivery::Done { majority: true, .. }) =
                    (&entry.call.request, &delivery)
                {
                    tenure.reserve(cluster);
                }
                let taken = entry.call.sink.deliver(delivery);
                if lost || (won && !taken) {
                    let undo = entry.call.undo(won);
                    follow_ups.extend(
                        undo.map(|call| Entry::new(call, size, (now, entry.local_steps), Duration::ZERO)),
                    );
                }
            }
        }
    }
}
