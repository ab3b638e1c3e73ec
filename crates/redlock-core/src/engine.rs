//! The engine of one quorum: requests in, script calls and completions out.
//!
//! Sans-IO. [`Engine::handle`] takes an input and the time; [`Engine::poll`] returns the next output. The
//! engine decides which masters may be asked and which requests travel together. It tracks each request's
//! progress, cleans up leases that were not won, and judges the clocks. It never opens a connection, waits or
//! reads a clock.
//!
//! The caller sends each [`Transmit`] on the connection that it names and reports the reply, in the order in
//! which the replies arrived. It calls [`Engine::poll`] until no output is left, then waits for an input or
//! for [`Engine::next_timeout`].

mod batch;
mod calls;
mod counters;
mod dispatch;
mod fenced;
mod master;
mod order;
#[cfg(feature = "planted")]
mod planted;
mod progress;
mod repeats;
mod replies;
mod view;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub use calls::{Call, Finished};
pub use view::MasterView;

use self::{
    batch::{Batch, Entry},
    master::Master,
    repeats::Repeats,
};
use crate::{
    BootInstant, Clocks, ClusterId, Completion, Identity, Keyspace, LeaseAttempt, LockKeys, MasterFacts,
    Operation, QuorumId, QuorumSize, Reply, Request, RequestId, Unknown,
    planted::Plant,
    plausible::CounterBounds,
    script::{Arguments, Payload},
    seal::Known,
};

/// The parameters of an engine and its quorum.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    pub size: QuorumSize,
    /// The text of the quorum's [`crate::Fingerprint`].
    pub fingerprint: String,
    /// The id of the quorum, if it was stored outside the masters.
    pub quorum: Option<QuorumId>,
    pub keys: Keyspace,
    pub cluster: ClusterId,
    pub longest_lease: Duration,
    /// The longest time that an attempt may last.
    pub acquire_limit: Duration,
    pub command_timeout: Duration,
}

/// One connection to one master. A later connection to the same master has a greater number; 0 means no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ConnectionId(pub u32);

/// The id of one script call of a batch, under which its reply is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct TransmitId {
    batch: u64,
    pub master: usize,
}

/// A script call to send.
#[derive(Clone, Debug)]
pub struct Transmit {
    pub id: TransmitId,
    /// The only connection on which the call may be sent.
    pub connection: ConnectionId,
    /// The time after which the script writes nothing, in microseconds of the master's clock.
    pub not_after: u64,
    /// The time by which the reply must be reported. A later reply does not count.
    pub deadline: BootInstant,
    pub payload: Payload,
    /// Places in `payload.items`, in the order of the reply.
    pub members: Vec<usize>,
    pub stamp: Arc<str>,
}

impl Transmit {
    /// Writes the keys and arguments of the call.
    pub fn write(&self, to: &mut impl Arguments) {
        let master = self.id.master;
        self.payload
            .write(to, self.not_after, &self.stamp, master, &self.members);
    }
}

/// An event for the engine. The time of an input is an argument of [`Engine::handle`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Input {
    Request(Request),
    /// The result of a transmit, received at the time of the input.
    Reply {
        transmit: TransmitId,
        result: Result<Reply, Unknown>,
    },
    /// A connection was opened. The master has no vote on it before it is polled.
    Connected {
        master: usize,
        connection: ConnectionId,
    },
    /// A connection replaced the present one. The master was already polled on the new connection.
    Replaced {
        master: usize,
        connection: ConnectionId,
        facts: MasterFacts,
    },
    Disconnected {
        master: usize,
    },
    /// No connection could be opened.
    Unreachable {
        master: usize,
        reason: Unknown,
    },
    /// The facts of the master, read on this connection. They are ignored if it is not the present one.
    Polled {
        master: usize,
        connection: ConnectionId,
        facts: MasterFacts,
    },
    /// A poll on the present connection failed.
    PollFailed {
        master: usize,
        reason: Unknown,
    },
    /// Another server is now this master.
    ServerChanged {
        master: usize,
    },
    /// The timeout of the commands that are sent from now on.
    CommandTimeout(Duration),
    /// The time since 1970 by the wall clock of this process. It bounds the registers of the masters, and nothing else.
    WallClock(Duration),
    /// The time of [`Engine::next_timeout`] may have come.
    Timeout,
}

/// An action for the caller.
#[derive(Debug)]
pub enum Output {
    Transmit(Transmit),
    Completed {
        request: RequestId,
        lock: Arc<LockKeys>,
        /// The lease that was won, to be undone if the caller no longer receives the completion.
        won: Option<Arc<LeaseAttempt>>,
        completion: Completion,
    },
    /// The result of one script call. `votes` counts the votes granted, refused and unknown.
    Exchanged {
        master: usize,
        operation: Operation,
        votes: [u64; 3],
        took: Duration,
    },
    /// The master must be polled soon, for example because a vote was missing or shows a change.
    Poll {
        master: usize,
    },
    /// The number of masters that vote may have changed.
    VotersChanged,
    /// The standing of a master changed, and with it the number of masters that vote.
    MasterChanged {
        master: usize,
        standing: String,
        refused: bool,
    },
    /// The clock of a master stepped.
    MasterStepped {
        master: usize,
    },
    /// The local clock stepped: every lease that was won before is lost.
    LocalClockStepped,
    /// A majority of the masters is sealed for another quorum: every lease that was won before is lost.
    SealedForAnother,
}

/// The engine of one quorum. See the module.
#[derive(Debug)]
pub struct Engine {
    size: QuorumSize,
    keys: Keyspace,
    cluster: Arc<str>,
    longest_lease: Duration,
    acquire_limit: Duration,
    command_timeout: Duration,
    /// The longest timeout of any command so far: a command that was sent before the value became shorter may still
    /// arrive.
    longest_timeout: Duration,
    identity: Identity,
    clocks: Clocks,
    /// The number of steps of the local clock.
    local_steps: u64,
    masters: Vec<Master>,
    /// Whether a majority of the masters is sealed for another quorum now, and how often that began.
    sealed_for_another: bool,
    quorum_losses: u64,
    /// What the counters and clocks of the masters bound; `None` while fewer than a majority are known.
    bounds: Option<CounterBounds>,
    /// The time since 1970 by the wall clock of this process, at that moment.
    wall_clock: Option<(Duration, BootInstant)>,
    known: Known,
    batches: BTreeMap<u64, Batch>,
    next_batch: u64,
    last_sent: BootInstant,
    last_request: BootInstant,
    /// Requests that arrived while a batch was under way: see [`dispatch::HOLD`].
    waiting: Vec<Entry>,
    /// The entries to send at the next poll: requests, and the confirms and undos that result from replies.
    ready: Vec<Entry>,
    repeats: Repeats,
    outputs: VecDeque<Output>,
    plant: Plant,
    #[cfg(feature = "planted")]
    planted: planted::Planted,
}

impl Engine {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            size: config.size,
            keys: config.keys,
            cluster: config.cluster.to_string().into(),
            longest_lease: config.longest_lease,
            acquire_limit: config.acquire_limit,
            command_timeout: config.command_timeout,
            longest_timeout: config.command_timeout,
            identity: Identity::new(config.fingerprint, config.quorum),
            clocks: Clocks::new(config.size, config.longest_lease),
            local_steps: 0,
            masters: (0..config.size.masters()).map(|_| Master::default()).collect(),
            sealed_for_another: false,
            quorum_losses: 0,
            bounds: None,
            wall_clock: None,
            known: Known::default(),
            batches: BTreeMap::new(),
            next_batch: 0,
            last_sent: BootInstant::default(),
            last_request: BootInstant::default(),
            waiting: Vec::new(),
            ready: Vec::new(),
            repeats: Repeats::default(),
            outputs: VecDeque::new(),
            plant: Plant::Nothing,
            #[cfg(feature = "planted")]
            planted: planted::Planted::default(),
        }
    }

    /// Handles one input. [`Self::poll`] returns the resulting outputs.
    pub fn handle(&mut self, input: Input, now: BootInstant) {
        match input {
            Input::Request(request) => self.on_request(request, now),
            Input::Reply { transmit, result } => self.on_reply(transmit, result, now),
            Input::Connected { master, connection } => self.on_connected(master, connection, now),
            Input::Replaced {
                master,
                connection,
                facts,
            } => self.on_replaced(master, connection, facts, now),
            Input::Disconnected { master } => self.on_disconnected(master),
            Input::Unreachable { master, reason } => self.masters[master].trouble = Some(reason),
            Input::Polled {
                master,
                connection,
                facts,
            } => self.on_polled(master, connection, facts, now),
            Input::PollFailed { master, reason } => self.on_poll_failed(master, reason, now),
            Input::ServerChanged { master } => self.on_server_changed(master),
            Input::CommandTimeout(timeout) => {
                self.longest_timeout = self.longest_timeout.max(timeout);
                self.command_timeout = timeout;
            }
            Input::WallClock(unix) => self.wall_clock = Some((unix, now)),
            Input::Timeout => self.on_timeout(now),
        }
    }

    /// Returns the next output; `None` until the next input or timeout.
    pub fn poll(&mut self, now: BootInstant) -> Option<Output> {
        if self.outputs.is_empty() {
            self.send(now);
        }
        self.outputs.pop_front()
    }

    /// Reports whether [`Self::poll`] returns an output that an input caused. Requests that wait for their
    /// batch do not count.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty() || !self.ready.is_empty()
    }

    /// Returns the latest time at which the caller must handle [`Input::Timeout`].
    #[must_use]
    pub fn next_timeout(&self) -> Option<BootInstant> {
        let overdue = self.batches.values().map(|batch| batch.deadline).min();
        [overdue, self.repeats.next(), self.release_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Reports whether no caller waits for work, and no script call is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.waiting.is_empty() && self.ready.is_empty() && self.outputs.is_empty()
    }

    /// Returns the number of undos and reserves that still have to be repeated.
    #[must_use]
    pub fn repeats_left(&self) -> usize {
        self.repeats.count()
    }
}

#[cfg(test)]
mod tests;
