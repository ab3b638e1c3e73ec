//! The events of a world, each at its instant.

use std::fmt;

use redlock_core::{BootInstant, Event, Reply, Transmit, TransmitId, Unknown};

use super::{promotion::Promotion, seal::Sealing};
use crate::{
    candidate::{Polled, SecondEvent},
    rate::Instant,
    strain::{Strained, Text},
};

/// Bytes on their way to a master.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) candidate: usize,
    pub(super) life: u32,
    pub(super) connection: u32,
    /// The run of the server that the connection was opened to.
    pub(super) run: u64,
    pub(super) sent_at: Instant,
    pub(super) call: Call,
}

#[derive(Clone)]
pub(crate) enum Call {
    Poll(u64),
    Script {
        transmit: Box<Transmit>,
        /// The deadline, in true time.
        deadline: Instant,
        text: Text,
    },
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(number) => write!(f, "poll {number}"),
            Self::Script { transmit, .. } => {
                let items = transmit
                    .members
                    .iter()
                    .map(|member| &transmit.payload.items[*member].1);
                write!(f, "{:?} {:?}", transmit.id, items.collect::<Vec<_>>())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Poll(u64, Box<Polled>),
    Script {
        id: TransmitId,
        script: &'static str,
        result: Result<Reply, Unknown>,
    },
    /// The master has forgotten the script of this call.
    NoScript {
        transmit: Box<Transmit>,
        deadline: Instant,
    },
}

/// An answer on its way back.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(super) candidate: usize,
    pub(super) life: u32,
    pub(super) connection: u32,
    pub(super) master: usize,
    pub(super) run: u64,
    pub(super) sent_at: Instant,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(crate) enum What {
    Arrives {
        master: usize,
        request: Request,
    },
    /// A request is run that waited for those before it.
    Served {
        master: usize,
        request: Request,
    },
    Answers(Box<Answered>),
    /// An attempt to connect ended, with a connection to this run of the server or without one.
    Opened {
        candidate: usize,
        life: u32,
        master: usize,
        run: Option<u64>,
    },
    /// The server or the network ended a connection.
    Reset {
        candidate: usize,
        life: u32,
        master: usize,
        connection: u32,
    },
    /// A candidate learns that another server is this master.
    ServerChanged {
        candidate: usize,
        life: u32,
        master: usize,
    },
    Event {
        candidate: usize,
        life: u32,
        event: Event,
    },
    Timer {
        candidate: usize,
        life: u32,
        due: BootInstant,
    },
    /// An event of the second lock of a process.
    Second {
        candidate: usize,
        life: u32,
        event: SecondEvent,
    },
    /// The timer of the engine.
    Timeout {
        candidate: usize,
        life: u32,
        due: BootInstant,
    },
    /// The timer of the task that keeps a master connected.
    Keep {
        candidate: usize,
        life: u32,
        master: usize,
        due: BootInstant,
    },
    /// A process stands still; its clock does not.
    Stop {
        candidate: usize,
        life: u32,
        nanos: Instant,
    },
    /// A process that seals masters acts.
    Sealer {
        sealer: usize,
        step: Sealing,
    },
    Resume {
        master: usize,
    },
    /// A server that was a replica of a copy of itself is promoted again.
    PromotedBack(Box<Promotion>),
    /// A crashed master is back, with the data that it kept.
    Back {
        master: usize,
        run: u64,
    },
    Fault,
    /// Registers are forged, or repaired.
    Forge,
    Strain(Strained),
    /// The process that removes registers acts.
    Forgets(crate::forgetter::Forgetting),
    /// The clocks of these masters are set by so many nanoseconds.
    Step {
        steps: Vec<(usize, i64)>,
    },
    /// A candidate shuts down.
    ShutDown {
        candidate: usize,
        life: u32,
    },
    /// A slot is due.
    Slot,
    /// An event on a node of a cluster, for a fenced lock.
    Node {
        agent: usize,
        step: super::agent::Step,
    },
    /// An action of a holder of a fenced lock on its targets.
    Targets {
        candidate: usize,
        life: u32,
        token: u64,
        step: super::holder::Step,
    },
}

impl What {
    /// Returns the process to which the event happens, if any.
    pub(super) fn addressee(&self) -> Option<(usize, u32)> {
        match self {
            Self::Answers(answered) => Some((answered.candidate, answered.life)),
            Self::Opened { candidate, life, .. }
            | Self::Reset { candidate, life, .. }
            | Self::ServerChanged { candidate, life, .. }
            | Self::Event { candidate, life, .. }
            | Self::Timer { candidate, life, .. }
            | Self::Second { candidate, life, .. }
            | Self::Timeout { candidate, life, .. }
            | Self::Keep { candidate, life, .. }
            | Self::Stop { candidate, life, .. }
            | Self::Targets { candidate, life, .. }
            | Self::ShutDown { candidate, life } => Some((*candidate, *life)),
            _ => None,
        }
    }
}
