//! The courier's task: takes calls, sends them in chunks, keeps the deadlines.

mod landing;

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
    CHUNK, Call, Meter, Operation,
    flight::{Cargo, Entry, Flight},
    order,
    repeat::Repeats,
};
use crate::{
    clock,
    lease::{ClusterId, Moment, QuorumSize},
    masters::{
        clocks::SharedClocks,
        keys::Keyspace,
        link::{Exchange, Link},
        seal::Known,
        timeout::CommandTimeout,
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

/// While a flight is in the air, calls that arrive wait for its landing and travel together: under load, chunks fill
/// instead of multiplying. They wait no longer than this, so that masters that do not answer delay nobody else.
const HOLD: Duration = Duration::from_millis(1);

type Exchanges = FuturesUnordered<Pin<Box<dyn Future<Output = Landed> + Send>>>;

/// See the module above. Runs until every sender of calls is gone and what is under way has ended.
pub(crate) struct Courier {
    pub(crate) links: Arc<[Arc<Link>]>,
    pub(crate) clocks: Arc<SharedClocks>,
    pub(crate) size: QuorumSize,
    pub(crate) keys: Keyspace,
    pub(crate) cluster: ClusterId,
    pub(crate) command_timeout: CommandTimeout,
    pub(crate) acquire_limit: Duration,
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    pub(crate) known: Known,
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
            held: Vec::new(),
            departing: Vec::new(),
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
    /// Calls that arrived while a flight was in the air: see [`HOLD`].
    held: Vec<Entry>,
    /// What departs at the end of this turn: calls, and the confirms and undos that the answers led to.
    departing: Vec<Entry>,
}

impl Underway {
    async fn run(mut self) -> usize {
        let mut batch = Vec::with_capacity(AT_ONCE);
        let mut open = true;
        let mut closing = false;
        let mut timer = pin!(clock::sleep_until(Moment::NEVER));
        while open || !self.exchanges.is_empty() || !self.held.is_empty() {
            let repeat = self.repeats.next();
            let check = self.check_at;
            let release = (!self.held.is_empty()).then(|| self.last_take_off + HOLD);
            tokio::select! {
                () = self.courier.closing.cancelled(), if !closing => {
                    closing = true;
                    self.courier.calls.close();
                }
                count = self.courier.calls.recv_many(&mut batch, AT_ONCE), if open && self.held.len() < AT_ONCE => {
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
                    let steps = self.courier.clocks.local_steps();
                    self.held.extend(batch.drain(..).map(|call| Entry::new(call, size, (started, steps), limit)));
                }
                Some(landed) = self.exchanges.next(), if !self.exchanges.is_empty() => {
                    self.land(landed);
                    // Whatever else has arrived by now, so that follow-ups travel together.
                    while let Some(Some(landed)) = futures_util::FutureExt::now_or_never(self.exchanges.next()) {
                        self.land(landed);
                    }
                }
                () = clock::sleep_until(release.unwrap_or(Moment::NEVER)), if release.is_some() => {}
                () = &mut timer, if check.is_some() => {
                    self.check_at = self.end_overdue(clock::now());
                }
                () = clock::sleep_until(repeat.unwrap_or(Moment::NEVER)), if repeat.is_some() => {
                    let now = clock::now();
                    let (size, limit) = (self.courier.size, self.courier.acquire_limit);
                    let due = self.repeats.take_due(now).into_iter();
                    let steps = self.courier.clocks.local_steps();
                    self.departing.extend(due.map(|call| Entry::new(call, size, (now, steps), limit)));
                }
            }
            if !self.in_the_air() {
                self.departing.append(&mut self.held);
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

    /// Whether a flight that somebody waits for is on its way, and has not been for long.
    fn in_the_air(&self) -> bool {
        self.last_take_off + HOLD > clock::now() && self.flights.values().any(|f| f.undecided > 0)
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

    /// Sends everything that waits, in chunks of one kind each.
    fn depart(&mut self) {
        if self.departing.is_empty() {
            return;
        }
        let mut entries = std::mem::take(&mut self.departing);
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
        let deadline = self.courier.command_timeout.get().min(limit);
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
        if operation != Operation::Undo {
            self.last_take_off = now;
        }
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
                    cargo.fill(command, not_after, link.identity.stamp(), master, &members);
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
}
