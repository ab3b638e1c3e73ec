//! Carries calls to the masters. Calls that arrive together travel together: one script call a master for up to
//! [`CHUNK`] locks, decided lock by lock as the masters answer, so that a hung master delays nobody.
//!
//! Owns every lease text that was sent: what was not won, or not wanted any more, is undone from here, with a
//! deadline of its own, also when the caller is gone.

mod flight;
mod order;
mod progress;
mod repeat;
mod run;
mod tenure;

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

pub(in crate::masters) use flight::Cargo;
pub(crate) use run::Courier;
pub use tenure::Tenure;

use super::{keys::LockKeys, reply::Answer};
use crate::lease::{ClusterId, FencingToken, Loss, Mark, Moment, SlotView, View, Won, vote::MAX_MASTERS};

/// Locks in one script call. Measured: 100 to 200 have the throughput of one big call and block the master for a
/// tenth of its time.
pub(crate) const CHUNK: usize = 128;

/// What is asked of the masters for one lock.
#[derive(Clone, Debug)]
pub enum Request {
    /// A whole attempt: grant, confirm where needed, undo if lost.
    Acquire {
        tenure: Arc<Tenure>,
        lease_duration: Duration,
    },
    Renew {
        tenure: Arc<Tenure>,
        token: FencingToken,
        lease_duration: Duration,
    },
    /// Delete my lease and tell the standbys.
    Release {
        tenure: Arc<Tenure>,
    },
    /// Delete my lease for a cluster that alone may enter.
    Reserve {
        tenure: Arc<Tenure>,
        cluster: ClusterId,
    },
    Observe,
    /// As `Observe`, but waits for every master: for people.
    Inspect,
    /// Nobody may enter or stay, for one longest lease.
    Break {
        longest_lease: Duration,
    },
    /// Write the token into the registers of this mark, where the lease is mine.
    Mark {
        tenure: Arc<Tenure>,
        token: FencingToken,
        mark: Mark,
    },
    /// Claim a slot of a target's object for a job.
    Claim {
        object: Arc<str>,
        slot: u64,
        job: Arc<str>,
    },
    /// Look at the claimed slot of a target's object.
    Slots {
        object: Arc<str>,
    },
    #[doc(hidden)]
    Confirm {
        tenure: Arc<Tenure>,
        token: FencingToken,
        granted: Vec<(usize, u64)>,
    },
    /// Delete my lease and leave reservations alone.
    #[doc(hidden)]
    Undo {
        tenure: Arc<Tenure>,
        only: Option<usize>,
        /// The attempt was given up, so it may have been granted by a majority: standbys then wait for the end of its
        /// lease. That of a lost attempt is not published, or each clash would cause the next one.
        publish: bool,
    },
    /// Where the reserve was not heard of. An undo would let everybody in there, before the lease has run out.
    #[doc(hidden)]
    ReserveAgain {
        tenure: Arc<Tenure>,
        cluster: ClusterId,
        only: usize,
    },
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Delivery {
    Won(Won),
    NotWon(Loss),
    Renewed {
        started: Moment,
    },
    RenewalRefused,
    RenewalUndecided,
    Observed(View),
    Slots(SlotView),
    /// Of the other requests: whether a majority did it in this one round, whether so many refused that none could, and
    /// each master's answer.
    Done {
        majority: bool,
        refused: bool,
        answers: Box<[Option<Answer>; MAX_MASTERS]>,
    },
}

/// One lock's request, on its way.
#[derive(Debug)]
pub struct Call {
    pub(crate) lock: Arc<LockKeys>,
    pub(crate) request: Request,
    pub(crate) sink: Sink,
}

/// Where the delivery goes.
#[derive(Debug)]
pub(crate) enum Sink {
    One(oneshot::Sender<Delivery>),
    Many(u64, mpsc::UnboundedSender<(u64, Delivery)>),
    /// Only whether a majority did it.
    Majority(oneshot::Sender<bool>),
    Nobody,
}

impl Sink {
    /// False if nobody takes it.
    fn deliver(&mut self, delivery: Delivery) -> bool {
        match std::mem::replace(self, Self::Nobody) {
            Self::One(sender) => sender.send(delivery).is_ok(),
            Self::Many(tag, sender) => sender.send((tag, delivery)).is_ok(),
            Self::Majority(sender) => {
                let done = matches!(delivery, Delivery::Done { majority: true, .. });
                sender.send(done).is_ok()
            }
            Self::Nobody => false,
        }
    }
}

impl Call {
    /// Deletes what this call may have left of its lease, on all masters. Nobody waits for it.
    fn undo(&self, publish: bool) -> Option<Self> {
        let tenure = self.request.tenure()?.clone();
        Some(Self {
            lock: self.lock.clone(),
            request: Request::Undo {
                tenure,
                only: None,
                publish,
            },
            sink: Sink::Nobody,
        })
    }

    /// The sender is told whether a majority did it.
    pub(crate) const fn answering(
        lock: Arc<LockKeys>,
        request: Request,
        sender: oneshot::Sender<bool>,
    ) -> Self {
        Self {
            lock,
            request,
            sink: Sink::Majority(sender),
        }
    }

    /// The sender gets the delivery.
    pub(crate) const fn asking(
        lock: Arc<LockKeys>,
        request: Request,
        sender: oneshot::Sender<Delivery>,
    ) -> Self {
        Self {
            lock,
            request,
            sink: Sink::One(sender),
        }
    }

    /// The delivery goes to `sender`, marked with `tag`.
    #[must_use]
    pub fn tagged(
        lock: Arc<LockKeys>,
        request: Request,
        tag: u64,
        sender: mpsc::UnboundedSender<(u64, Delivery)>,
    ) -> Self {
        Self {
            lock,
            request,
            sink: Sink::Many(tag, sender),
        }
    }
}

/// Kinds of requests, as metrics name them. One script call carries one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Grant,
    Confirm,
    Renew,
    Release,
    Undo,
    Reserve,
    Observe,
    Break,
    Mark,
    Claim,
    Slots,
}

impl Operation {
    pub const ALL: [Self; 11] = [
        Self::Grant,
        Self::Confirm,
        Self::Renew,
        Self::Release,
        Self::Undo,
        Self::Reserve,
        Self::Observe,
        Self::Break,
        Self::Mark,
        Self::Claim,
        Self::Slots,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Confirm => "confirm",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Undo => "undo",
            Self::Reserve => "reserve",
            Self::Observe => "observe",
            Self::Break => "break",
            Self::Mark => "mark",
            Self::Claim => "claim",
            Self::Slots => "slots",
        }
    }
}

/// Is told of every script call: which master, what, the votes (granted, refused, unknown), how long it took.
pub trait Meter: Send + Sync + std::fmt::Debug {
    fn exchanged(&self, master: usize, operation: Operation, votes: [u64; 3], took: Duration);
}

impl Request {
    pub(crate) const fn operation(&self) -> Operation {
        match self {
            Self::Acquire { .. } => Operation::Grant,
            Self::Confirm { .. } => Operation::Confirm,
            Self::Renew { .. } => Operation::Renew,
            Self::Release { .. } => Operation::Release,
            Self::Undo { .. } => Operation::Undo,
            Self::Reserve { .. } | Self::ReserveAgain { .. } => Operation::Reserve,
            Self::Observe | Self::Inspect => Operation::Observe,
            Self::Break { .. } => Operation::Break,
            Self::Mark { .. } => Operation::Mark,
            Self::Claim { .. } => Operation::Claim,
            Self::Slots { .. } => Operation::Slots,
        }
    }

    pub(crate) const fn tenure(&self) -> Option<&Arc<Tenure>> {
        match self {
            Self::Acquire { tenure, .. }
            | Self::Confirm { tenure, .. }
            | Self::Renew { tenure, .. }
            | Self::Release { tenure }
            | Self::Undo { tenure, .. }
            | Self::Reserve { tenure, .. }
            | Self::ReserveAgain { tenure, .. }
            | Self::Mark { tenure, .. } => Some(tenure),
            Self::Observe | Self::Inspect | Self::Break { .. } | Self::Claim { .. } | Self::Slots { .. } => {
                None
            }
        }
    }

    /// Whether this request is for that master.
    pub(crate) fn wants(&self, master: usize) -> bool {
        match self {
            Self::Confirm { granted, .. } => granted.iter().any(|(m, _)| *m == master),
            Self::Undo { only, .. } => only.is_none_or(|m| m == master),
            Self::ReserveAgain { only, .. } => *only == master,
            _ => true,
        }
    }
}
