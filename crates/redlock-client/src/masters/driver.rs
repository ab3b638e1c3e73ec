//! Carries out what the engine returns: sends its script calls, hands completions to their callers.
//!
//! Decides nothing but what a completion means that no caller takes.

use std::{
    collections::HashMap,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt,
    stream::{FuturesUnordered, StreamExt},
};
use redlock_core::{
    Command, Completion, Input, LeaseAttempt, LockKeys, Moment, Operation, Output, Reply, Request, RequestId,
    Transmit, TransmitId, Unknown,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    link::{Link, Notice},
    shared::Shared,
};
use crate::clock;

/// Calls taken at once; more only wait for the next turn.
const AT_ONCE: usize = 512;

/// Receives every script call: which master, what, the votes (granted, refused, unknown), how long it took.
pub trait Meter: Send + Sync + std::fmt::Debug {
    fn exchanged(&self, master: usize, operation: Operation, votes: [u64; 3], took: Duration);
}

/// One lock's command, on its way to the engine.
#[derive(Debug)]
pub struct Call {
    pub(crate) lock: Arc<LockKeys>,
    pub(crate) command: Command,
    pub(crate) reply_to: ReplyTo,
}

impl Call {
    /// `sender` gets whether a majority did it.
    pub(crate) const fn answering(
        lock: Arc<LockKeys>,
        command: Command,
        sender: oneshot::Sender<bool>,
    ) -> Self {
        Self {
            lock,
            command,
            reply_to: ReplyTo::Majority(sender),
        }
    }

    /// `sender` gets the completion.
    pub(crate) const fn asking(
        lock: Arc<LockKeys>,
        command: Command,
        sender: oneshot::Sender<Completion>,
    ) -> Self {
        Self {
            lock,
            command,
            reply_to: ReplyTo::One(sender),
        }
    }

    /// The completion goes to `sender`, marked with `tag`.
    #[must_use]
    pub const fn tagged(
        lock: Arc<LockKeys>,
        command: Command,
        tag: u64,
        sender: mpsc::UnboundedSender<(u64, Completion)>,
    ) -> Self {
        Self {
            lock,
            command,
            reply_to: ReplyTo::Many(tag, sender),
        }
    }
}

/// Where a completion goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    One(oneshot::Sender<Completion>),
    Many(u64, mpsc::UnboundedSender<(u64, Completion)>),
    /// Only whether a majority did it.
    Majority(oneshot::Sender<bool>),
    Nobody,
}

impl ReplyTo {
    /// False if the caller is gone.
    fn deliver(self, completion: Completion) -> bool {
        match self {
            Self::One(sender) => sender.send(completion).is_ok(),
            Self::Many(tag, sender) => sender.send((tag, completion)).is_ok(),
            Self::Majority(sender) => {
                let done = matches!(completion, Completion::Done { majority: true, .. });
                sender.send(done).is_ok()
            }
            Self::Nobody => false,
        }
    }
}

type Replied = (TransmitId, Result<Reply, Unknown>, Moment);
type Transmits = FuturesUnordered<Pin<Box<dyn Future<Output = Replied> + Send>>>;

/// See the module. Runs until every sender of calls is gone and what is under way has ended.
pub(crate) struct Driver {
    pub(crate) links: Arc<[Arc<Link>]>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    pub(crate) notices: mpsc::UnboundedSender<Notice>,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    /// Cancelled: take what was sent before, and no more.
    pub(crate) closing: CancellationToken,
}

impl Driver {
    /// Runs until the callers are gone; then finishes what is under way. Returns how many undos could not be
    /// repeated before the end.
    pub(crate) async fn run(self) -> usize {
        Running {
            callers: HashMap::new(),
            next_request: 0,
            transmits: FuturesUnordered::new(),
            replied: Vec::new(),
            outputs: Vec::new(),
            driver: self,
        }
        .run()
        .await
    }
}

struct Running {
    driver: Driver,
    callers: HashMap<RequestId, ReplyTo>,
    next_request: u64,
    transmits: Transmits,
    replied: Vec<Replied>,
    outputs: Vec<Output>,
}

impl Running {
    async fn run(mut self) -> usize {
        let mut batch = Vec::with_capacity(AT_ONCE);
        let mut open = true;
        let mut closing = false;
        let mut timer = pin!(clock::sleep_until(Moment::NEVER));
        let mut armed = Moment::NEVER;
        let shared = self.driver.shared.clone();
        loop {
            self.carry_out();
            let (next, idle) = shared.read(|engine, _| (engine.next_timeout(), engine.is_idle()));
            if !open && idle {
                return shared.read(|engine, _| engine.repeats_left());
            }
            // Set only where it would come too late: arming a timer for each batch costs more than the batch.
            if let Some(next) = next.filter(|next| *next < armed) {
                armed = next;
                timer.set(clock::sleep_until(armed));
            }
            tokio::select! {
                () = self.driver.closing.cancelled(), if !closing => {
                    closing = true;
                    self.driver.calls.close();
                }
                Some(replied) = self.transmits.next(), if !self.transmits.is_empty() => self.replied.push(replied),
                count = self.driver.calls.recv_many(&mut batch, AT_ONCE), if open => {
                    open = count > 0;
                    if batch.len() > 1 || !self.transmits.is_empty() {
                        // Callers that were woken together are about to call: let them in.
                        tokio::task::yield_now().await;
                    }
                    while batch.len() < AT_ONCE && let Ok(call) = self.driver.calls.try_recv() {
                        batch.push(call);
                    }
                    self.take(&mut batch);
                }
                () = shared.woken() => {}
                () = &mut timer, if armed != Moment::NEVER => armed = Moment::NEVER,
            }
            // Every reply that is there counts before a deadline does, however late this task was woken.
            while let Some(Some(replied)) = self.transmits.next().now_or_never() {
                self.replied.push(replied);
            }
            shared.drive(|engine, now| {
                for (transmit, result, received) in self.replied.drain(..) {
                    engine.handle(Input::Reply { transmit, result }, received);
                }
                if engine.next_timeout().is_some_and(|next| next <= now) {
                    engine.handle(Input::Timeout, now);
                }
            });
        }
    }

    fn take(&mut self, batch: &mut Vec<Call>) {
        let mut inputs = Vec::with_capacity(batch.len());
        for call in batch.drain(..) {
            let id = match call.reply_to {
                ReplyTo::Nobody => RequestId::default(),
                reply_to => {
                    self.next_request += 1;
                    let id = RequestId(self.next_request);
                    self.callers.insert(id, reply_to);
                    id
                }
            };
            inputs.push(Input::Request(Request {
                id,
                lock: call.lock,
                command: call.command,
            }));
        }
        self.driver.shared.drive(|engine, now| {
            inputs.into_iter().for_each(|input| engine.handle(input, now));
        });
    }

    fn carry_out(&mut self) {
        loop {
            let mut outputs = std::mem::take(&mut self.outputs);
            self.driver.shared.drive(|engine, now| {
                while let Some(output) = engine.poll(now) {
                    outputs.push(output);
                }
            });
            if outputs.is_empty() {
                self.outputs = outputs;
                return;
            }
            for output in outputs.drain(..) {
                self.carry_out_one(output);
            }
            self.outputs = outputs;
        }
    }

    fn carry_out_one(&mut self, output: Output) {
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
                "clock of the master stepped, it does not count for now"
            ),
            Output::LocalClockStepped => tracing::warn!(
                "the clock of this machine stepped or stood still: all leases are given up and acquired anew"
            ),
        }
    }

    fn transmit(&self, transmit: Transmit) {
        let link = self.driver.links[transmit.id.master].clone();
        // The order of the calls of one lock is the engine's. A task whose budget of polls is used up would send the first
        // of them last.
        self.transmits
            .push(Box::pin(tokio::task::unconstrained(async move {
                let result = link.transmit(&transmit).await;
                (transmit.id, result, clock::now())
            })));
    }

    /// A lease that was won for a caller that is gone is undone.
    fn complete(
        &mut self,
        request: RequestId,
        lock: Arc<LockKeys>,
        won: Option<Arc<LeaseAttempt>>,
        completion: Completion,
    ) {
        let reply_to = self.callers.remove(&request).unwrap_or(ReplyTo::Nobody);
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
        // A set that is used without an elector has no listener.
        let _ = self.driver.notices.send(Notice::VotersChanged);
    }
}
