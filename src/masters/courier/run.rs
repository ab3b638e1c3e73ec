//! The courier's task.

use std::{
    collections::HashMap,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Answer, CHUNK, Call, Delivery, Meter, Operation, Request, Sink,
    flight::{Cargo, Entry, Flight},
    order,
    progress::{Change, Progress, vote},
    repeat::Repeats,
};
use crate::{
    clock,
    lease::{ClusterId, Moment, QuorumSize, Vote},
    masters::{
        keys::Keyspace,
        link::{Exchange, Link},
        reply,
        unknown::Unknown,
    },
};

/// Calls taken at once; more only wait for the next turn.
const AT_ONCE: usize = 4 * CHUNK;

struct Landed {
    flight: u64,
    master: usize,
    members: Vec<usize>,
    exchange: Exchange,
}

/// With so many undecided flights, calls that arrive wait for the next landing and travel together: under load, chunks
/// fill instead of multiplying.
const IN_THE_AIR: usize = 1;
/// They wait no longer than this, so that masters that do not answer delay nobody else.
const HOLD: Duration = Duration::from_millis(1);

type Exchanges = FuturesUnordered<Pin<Box<dyn Future<Output = Landed> + Send>>>;

/// See the module above. Runs until every sender of calls is gone and what is under way has ended.
pub(crate) struct Courier {
    pub(crate) links: Arc<[Arc<Link>]>,
    pub(crate) size: QuorumSize,
    pub(crate) keys: Keyspace,
    pub(crate) cluster: ClusterId,
    pub(crate) command_timeout: Duration,
    pub(crate) acquire_limit: Duration,
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    /// Cancelled: take what was sent before, and no more.
    pub(crate) closing: CancellationToken,
}

impl Courier {
    /// Runs until the callers are gone; then finishes what is under way. Returns how many undos could not be
    /// repeated before the end.
    pub(crate) async fn run(self) -> usize {
        let cluster: Arc<str> = super::flight::cluster_text(&self.cluster).into();
        Underway {
            cluster,
            floor: 0,
            flights: HashMap::new(),
            last_take_off: Moment::default(),
            next_flight: 0,
            exchanges: FuturesUnordered::new(),
            repeats: Repeats::default(),
            check_at: None,
            follow_ups: Vec::new(),
            courier: self,
        }
        .run()
        .await
    }
}

struct Underway {
    courier: Courier,
    cluster: Arc<str>,
    /// The largest counter seen from any master, so that the counters stay together.
    floor: u64,
    flights: HashMap<u64, Flight>,
    last_take_off: Moment,
    next_flight: u64,
    exchanges: Exchanges,
    repeats: Repeats,
    /// When to look for flights past their deadline. Set once for many flights: arming a timer for each exchange
    /// costs more than the exchange.
    check_at: Option<Moment>,
    /// Confirms and undos that the answers of this turn led to.
    follow_ups: Vec<Entry>,
}

impl Underway {
    async fn run(mut self) -> usize {
        let mut batch = Vec::with_capacity(AT_ONCE);
        let mut open = true;
        let mut closing = false;
        let mut timer = pin!(clock::sleep_until(Moment::NEVER));
        while open || !self.exchanges.is_empty() {
            let repeat = self.repeats.next();
            let check = self.check_at;
            let hold = open && self.holding();
            tokio::select! {
                () = self.courier.closing.cancelled(), if !closing => {
                    closing = true;
                    self.courier.calls.close();
                }
                count = self.courier.calls.recv_many(&mut batch, AT_ONCE), if open && !hold => {
                    open = count > 0;
                    if batch.len() > 1 || !self.exchanges.is_empty() {
                        // Callers that were woken together are about to call: let them in.
                        tokio::task::yield_now().await;
                    }
                    while batch.len() < AT_ONCE && let Ok(call) = self.courier.calls.try_recv() {
                        batch.push(call);
                    }
                    let started = clock::now();
                    let (size, limit) = (self.courier.size, self.courier.acquire_limit);
                    self.follow_ups.extend(batch.drain(..).map(|call| {
                        let progress = Progress::new(&call, size, started, limit);
                        Entry { call, progress }
                    }));
                }
                Some(landed) = self.exchanges.next(), if !self.exchanges.is_empty() => {
                    self.land(landed);
                    // Whatever else has arrived by now, so that follow-ups travel together.
                    while let Some(Some(landed)) = futures_util::FutureExt::now_or_never(self.exchanges.next()) {
                        self.land(landed);
                    }
                }
                () = tokio::time::sleep(HOLD), if hold => {}
                () = &mut timer, if check.is_some() => {
                    self.check_at = self.end_overdue(clock::now());
                }
                () = clock::sleep_until(repeat.unwrap_or(crate::lease::Moment::NEVER)), if repeat.is_some() => {
                    let now = clock::now();
                    for call in self.repeats.take_due(now) {
                        self.enqueue(call);
                    }
                }
            }
            self.depart();
            if self.check_at != check
                && let Some(at) = self.check_at
            {
                timer.set(clock::sleep_until(at));
            }
        }
        self.repeats.count()
    }

    fn holding(&self) -> bool {
        self.flights.len() >= IN_THE_AIR
            && self.last_take_off + HOLD > clock::now()
            && self.flights.values().filter(|f| f.undecided > 0).count() >= IN_THE_AIR
    }

    /// Ends the flights whose deadline has passed; returns when the next one does.
    fn end_overdue(&self, now: Moment) -> Option<Moment> {
        for flight in self.flights.values().filter(|f| f.deadline <= now) {
            flight.over.cancel();
        }
        self.flights
            .values()
            .map(|f| f.deadline)
            .filter(|d| *d > now)
            .min()
    }

    fn enqueue(&mut self, call: Call) {
        let progress = Progress::new(&call, self.courier.size, clock::now(), self.courier.acquire_limit);
        self.follow_ups.push(Entry { call, progress });
    }

    /// Sends everything that waits, in chunks of one kind each.
    fn depart(&mut self) {
        if self.follow_ups.is_empty() {
            return;
        }
        let mut entries = std::mem::take(&mut self.follow_ups);
        order::sort(&mut entries);
        let mut chunk: Vec<Entry> = Vec::new();
        for entry in entries {
            let operation = entry.call.request.operation();
            if chunk.len() >= CHUNK
                || chunk
                    .first()
                    .is_some_and(|e| e.call.request.operation() != operation)
            {
                self.take_off(std::mem::take(&mut chunk));
            }
            chunk.push(entry);
        }
        self.take_off(chunk);
    }

    fn take_off(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let operation = first.call.request.operation();
        let now = clock::now();
        let limit = entries
            .iter()
            .map(|e| e.progress.limit().left(now))
            .min()
            .unwrap_or_default();
        let deadline = self.courier.command_timeout.min(limit);
        let cargo = Cargo {
            operation,
            items: entries
                .iter()
                .map(|e| (e.call.lock.clone(), e.call.request.clone()))
                .collect(),
            keys: self.courier.keys.clone(),
            cluster: self.cluster.clone(),
            floor: self.floor,
        };
        self.last_take_off = now;
        self.next_flight += 1;
        let flight = self.next_flight;
        let over = CancellationToken::new();
        let mut outstanding = 0;
        for (master, link) in self.courier.links.iter().enumerate() {
            let members = cargo.members(master);
            if members.is_empty() {
                continue;
            }
            if matches!(operation, Operation::Grant | Operation::Renew) {
                for tenure in members.iter().filter_map(|i| entries[*i].call.request.tenure()) {
                    tenure.sending(master);
                }
            }
            outstanding += 1;
            let (link, cargo, over) = (link.clone(), cargo.clone(), over.clone());
            self.exchanges.push(Box::pin(async move {
                let fill = |command: &mut redis::Cmd, not_after| {
                    cargo.fill(command, not_after, &link.fingerprint, master, &members);
                };
                let exchange = link
                    .call_until(
                        cargo.script(),
                        cargo.admission(),
                        deadline,
                        over.cancelled(),
                        fill,
                    )
                    .await;
                Landed {
                    flight,
                    master,
                    members,
                    exchange,
                }
            }));
        }
        self.check_at = Some(self.check_at.map_or(now + deadline, |at| at.min(now + deadline)));
        self.flights.insert(
            flight,
            Flight {
                operation,
                // Nobody waits for an undo.
                undecided: if operation == Operation::Undo {
                    0
                } else {
                    entries.len()
                },
                entries,
                outstanding,
                deadline: now + deadline,
                over,
            },
        );
    }

    fn land(&mut self, landed: Landed) {
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
        let (items, missing) = match exchange.reply {
            Ok(reply) => {
                self.floor = self.floor.max(reply.counter);
                (
                    reply.items,
                    Unknown::Reply("one answer for each lock expected".into()),
                )
            }
            Err(unknown) => (Vec::new(), unknown),
        };
        let mut votes = [0; 3];
        for (position, index) in members.into_iter().enumerate() {
            let answer = items.get(position).map_or_else(
                || Answer::Unknown(missing.clone()),
                |item| reply::answer(item, exchange.received),
            );
            votes[vote(&answer) as usize] += 1;
            if let Some(entry) = flight.entries.get_mut(index) {
                self.clean_up(&entry.call, master, &answer, exchange.incarnation);
                Self::answered(&mut self.follow_ups, entry, self.courier.size, master, answer);
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
                let repeated =
                    matches!(call.request, Request::Undo { only: Some(_), .. }) && undone.is_some();
                if !repeated && tenure.may_be_left(master, undone) {
                    let now = clock::now();
                    self.repeats
                        .plan(&call.lock, tenure, master, now, self.courier.command_timeout);
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
        master: usize,
        answer: Answer,
    ) {
        let change = entry
            .progress
            .on_answer(&entry.call, size, master, answer, clock::now());
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
                });
            }
            Change::Deliver(delivery) => {
                let (won, lost) = (
                    matches!(delivery, Delivery::Won(_)),
                    matches!(delivery, Delivery::NotWon(_)),
                );
                let taken = entry.call.sink.deliver(delivery);
                if lost || (won && !taken) {
                    follow_ups.extend(entry.call.undo().map(|call| {
                        let progress = Progress::new(&call, size, clock::now(), Duration::ZERO);
                        Entry { call, progress }
                    }));
                }
            }
        }
    }
}
