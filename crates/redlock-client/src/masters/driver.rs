//! Carries out the outputs of the engine: sends its script calls and hands completions to their callers.
//!
//! Decides only one thing: how to handle a completion that no caller takes.

mod call;

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlock_core::{
    BootInstant, Command, Completion, Input, LeaseAttempt, LockKeys, Operation, Output, Reply, Request,
    RequestId, Transmit, TransmitId, Unknown,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::call::Call;
pub(crate) use self::call::ReplyTo;
use super::{
    link::{Link, Notice},
    shared::Shared,
    turns::Turns,
};
use crate::clock;

/// Maximum number of calls taken in one turn; further calls wait for the next turn.
const AT_ONCE: usize = 512;

/// Receives every script call: its master, its operation, its votes (granted, refused, unknown) and its duration.
pub trait Meter: Send + Sync + std::fmt::Debug {
    fn exchanged(&self, master: usize, operation: Operation, votes: [u64; 3], took: Duration);
}

type Replied = (TransmitId, Result<Reply, Unknown>, BootInstant);
type Transmits = FuturesUnordered<Pin<Box<dyn Future<Output = Replied> + Send>>>;
/// Reads and writes for one connection until it ends.
pub(crate) type Carried = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The task described in the module documentation. Runs until every sender of calls is gone and all calls
/// under way have ended.
pub(crate) struct Driver {
    pub(crate) links: Arc<[Arc<Link>]>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    /// New connections for the driver to carry.
    pub(crate) connections: mpsc::UnboundedReceiver<Carried>,
    pub(crate) notices: mpsc::Sender<Notice>,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    /// Once cancelled, the driver takes the calls that were sent before, and no others.
    pub(crate) closing: CancellationToken,
}

/// The state of a driver after its end.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The undos that could not be repeated before the end.
    pub(crate) repeats_left: usize,
    /// The connections, which end when this value is dropped.
    _connections: FuturesUnordered<Carried>,
}

impl Driver {
    /// Runs until the callers are gone, then finishes the calls under way.
    pub(crate) async fn run(self) -> Ended {
        let mut running = Running::new(self);
        let turns = Turns::new();
        loop {
            match poll_fn(|cx| turns.poll(cx, |cx| running.turn(cx))).await {
                Turn::LetIn => tokio::task::yield_now().await,
                Turn::Over(repeats_left) => {
                    return Ended {
                        repeats_left,
                        _connections: running.connections,
                    };
                }
            }
        }
    }
}

/// The reason why the driver stops taking turns.
enum Turn {
    /// Callers that were woken together are about to call.
    LetIn,
    /// The driver has ended, with this number of undos left.
    Over(usize),
}

struct Running {
    driver: Driver,
    callers: HashMap<RequestId, ReplyTo>,
    next_request: u64,
    connections: FuturesUnordered<Carried>,
    transmits: Transmits,
    batch: Vec<Call>,
    /// Whether the callers were already let in for the calls in `batch`.
    let_in: bool,
    replied: Vec<Replied>,
    outputs: Vec<Output>,
    timer: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The time at which the timer fires.
    armed: BootInstant,
    /// Whether calls may still arrive.
    open: bool,
}

impl Running {
    fn new(driver: Driver) -> Self {
        Self {
            driver,
            callers: HashMap::new(),
            next_request: 0,
            connections: FuturesUnordered::new(),
            transmits: FuturesUnordered::new(),
            batch: Vec::with_capacity(AT_ONCE),
            let_in: false,
            replied: Vec::new(),
            outputs: Vec::new(),
            timer: Box::pin(clock::sleep_until(BootInstant::NEVER)),
            armed: BootInstant::NEVER,
            open: true,
        }
    }

    /// Takes replies and calls and carries out the outputs of the engine, once. Wakes its own task if more
    /// may follow; [`Turns`] bounds the turns in a row.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        // Registered before the engine is polled, so that later inputs wake the driver.
        self.driver.shared.register(cx.waker());
        self.exchange(cx);
        if self.receive_calls(cx) {
            return Poll::Ready(Turn::LetIn);
        }
        // The channel does not wake the task for a call that a full batch left in it.
        let calls_left = self.batch.len() == AT_ONCE;
        let (next, idle) = self.feed();
        let again = if self.outputs.is_empty() {
            if !self.open && idle {
                let left = self.driver.shared.read(|engine, _| engine.repeats_left());
                return Poll::Ready(Turn::Over(left));
            }
            calls_left || self.set_timer(cx, next)
        } else {
            let mut outputs = std::mem::take(&mut self.outputs);
            outputs.drain(..).for_each(|output| self.carry_out(output));
            self.outputs = outputs;
            true
        };
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Writes queued calls and reads replies, as many as one poll of a connection permits. A reply that was
    /// read takes precedence over a deadline, however late this task was woken.
    fn exchange(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(connection)) = self.driver.connections.poll_recv(cx) {
            self.connections.push(connection);
        }
        self.receive_replies(cx);
        while let Poll::Ready(Some(())) = self.connections.poll_next_unpin(cx) {}
        self.receive_replies(cx);
    }

    /// Takes the replies of each connection in the order of its calls, in which texts of scripts are also sent after
    /// NOSCRIPT (P-54).
    fn receive_replies(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(replied)) = self.transmits.poll_next_unpin(cx) {
            self.replied.push(replied);
        }
    }

    /// Receives calls into the batch. Returns true if further callers should be let in before the batch is
    /// handled.
    fn receive_calls(&mut self, cx: &mut Context<'_>) -> bool {
        if self.open && self.driver.closing.is_cancelled() {
            self.driver.calls.close();
        }
        while self.open && self.batch.len() < AT_ONCE {
            let left = AT_ONCE - self.batch.len();
            match self.driver.calls.poll_recv_many(cx, &mut self.batch, left) {
                Poll::Ready(0) => self.open = false,
                Poll::Ready(_) => {}
                Poll::Pending => break,
            }
        }
        // A single caller does not wait for others.
        let crowd = self.batch.len() > 1 || (!self.batch.is_empty() && !self.callers.is_empty());
        self.let_in = crowd && !self.let_in && self.batch.len() < AT_ONCE;
        self.let_in
    }

    /// Feeds all new inputs to the engine and takes its outputs. Returns its next deadline and whether it is
    /// idle.
    fn feed(&mut self) -> (Option<BootInstant>, bool) {
        let Self {
            driver,
            callers,
            next_request,
            batch,
            replied,
            outputs,
            ..
        } = self;
        driver.shared.drive(|engine, now| {
            for (transmit, result, received) in replied.drain(..) {
                engine.handle(Input::Reply { transmit, result }, received);
            }
            for call in batch.drain(..) {
                let id = match call.reply_to {
                    ReplyTo::None => RequestId::default(),
                    reply_to => {
                        *next_request += 1;
                        let id = RequestId(*next_request);
                        callers.insert(id, reply_to);
                        id
                    }
                };
                let (lock, command) = (call.lock, call.command);
                engine.handle(Input::Request(Request { id, lock, command }), now);
            }
            if engine.next_timeout().is_some_and(|next| next <= now) {
                engine.handle(Input::Timeout, now);
            }
            while let Some(output) = engine.poll(now) {
                outputs.push(output);
            }
            (engine.next_timeout(), engine.is_idle())
        })
    }

    /// Returns true if the deadline has been reached. Resets the timer only if it would fire too late: arming
    /// it for each batch costs more than the batch.
    fn set_timer(&mut self, cx: &mut Context<'_>, next: Option<BootInstant>) -> bool {
        if let Some(next) = next.filter(|next| *next < self.armed) {
            self.armed = next;
            self.timer = Box::pin(clock::sleep_until(next));
        }
        let come = self.armed != BootInstant::NEVER && self.timer.as_mut().poll(cx).is_ready();
        if come {
            self.armed = BootInstant::NEVER;
        }
        come
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Transmit(transmit) => self.transmit(transmit),
            Output::Completed {
                request,
                lock,
                won,
                completion,
            } => self.complete(request, lock, won, completion),
            Output::Exchanged {
                master,
                operation,
                votes,
                took,
            } => {
                if let Some(meter) = &self.driver.meter {
                    meter.exchanged(master, operation, votes, took);
                }
            }
            Output::Poll { master } => self.driver.links[master].poke(),
            Output::VotersChanged => self.voters_changed(),
            Output::MasterChanged {
                master,
                standing,
                refused,
            } => self.master_changed(master, &standing, refused),
            Output::MasterStepped { master } => tracing::warn!(
                master = self.driver.links[master].name,
                "clock of the master stepped; its votes count as unknown for now"
            ),
            Output::LocalClockStepped => tracing::warn!(
                "the clock of this machine stepped or stood still: all leases end and are acquired again"
            ),
            Output::SealedForAnother => {
                tracing::warn!(
                    "a majority of the masters is sealed for another quorum: all leases end; compare the names and the \
                     longest lease of the quorum here with those that the masters show"
                );
                Notice::SealedForAnother.send(&self.driver.notices);
            }
        }
    }

    fn transmit(&self, transmit: Transmit) {
        let link = self.driver.links[transmit.id.master].clone();
        self.transmits.push(Box::pin(async move {
            let result = link.transmit(&transmit).await;
            (transmit.id, result, clock::now())
        }));
    }

    /// Delivers a completion, and undoes a lease that was won for a caller that is gone.
    fn complete(
        &mut self,
        request: RequestId,
        lock: Arc<LockKeys>,
        won: Option<Arc<LeaseAttempt>>,
        completion: Completion,
    ) {
        let reply_to = self.callers.remove(&request).unwrap_or(ReplyTo::None);
        let taken = reply_to.deliver(completion);
        if let Some(attempt) = won.filter(|_| !taken) {
            let request = Request {
                id: RequestId::default(),
                lock,
                command: Command::Undo {
                    attempt,
                    publish: true,
                },
            };
            let input = Input::Request(request);
            self.driver.shared.drive(|engine, now| engine.handle(input, now));
        }
    }

    fn master_changed(&self, master: usize, standing: &str, refused: bool) {
        let link = &self.driver.links[master];
        let (name, url) = (&link.name, link.url());
        if refused {
            tracing::warn!(master = name, url, state = standing, "master");
        } else {
            tracing::info!(master = name, url, state = standing, "master");
        }
        self.voters_changed();
    }

    fn voters_changed(&self) {
        Notice::VotersChanged.send(&self.driver.notices);
    }
}

#[cfg(test)]
mod tests;
