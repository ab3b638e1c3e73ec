//! Requests to the masters and their completions.

use std::{sync::Arc, time::Duration};

use crate::{
    Answer, BootInstant, ClusterId, FencingToken, LeaseAttempt, LockKeys, Loss, MAX_MASTERS, Mark, SlotView,
    View, Won,
};

/// One request for one lock. Its [`Completion`] carries the same id.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    pub id: RequestId,
    pub lock: Arc<LockKeys>,
    pub command: Command,
}

/// An id that the caller of the engine chooses. Requests whose completions are not needed may share an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestId(pub u64);

/// The command of a [`Request`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {
    /// A whole attempt: grant, confirm where needed, undo if lost.
    Acquire {
        attempt: Arc<LeaseAttempt>,
        lease_duration: Duration,
    },
    Renew {
        attempt: Arc<LeaseAttempt>,
        token: FencingToken,
        lease_duration: Duration,
    },
    /// Deletes the lease and publishes the release.
    Release {
        attempt: Arc<LeaseAttempt>,
    },
    /// Deletes the lease, and reserves the lock for a cluster: no other cluster may acquire it next.
    Reserve {
        attempt: Arc<LeaseAttempt>,
        cluster: ClusterId,
    },
    Observe,
    /// Like `Observe`, but waits for every master.
    Inspect,
    /// Prevents every candidate from acquiring or renewing the lock for one longest lease.
    Break {
        longest_lease: Duration,
    },
    /// Writes the token into the registers of this mark: `held` only where the lease is that of this attempt, `clean` everywhere.
    Mark {
        attempt: Arc<LeaseAttempt>,
        token: FencingToken,
        mark: Mark,
    },
    /// Claims a slot of a target's object for a job.
    Claim {
        object: Arc<str>,
        slot: u64,
        job: Arc<str>,
    },
    /// Reads the claimed slot of a target's object, and writes nothing (P-89).
    Slots {
        object: Arc<str>,
    },
    /// Deletes the lease and keeps reservations.
    Undo {
        attempt: Arc<LeaseAttempt>,
        /// Whether the undo is published. A majority may have granted an attempt that was given up, and
        /// standbys wait for the end of its lease. The undo of a lost attempt is not published, or each clash
        /// would cause the next one (P-53).
        publish: bool,
    },
}

#[cfg(feature = "trace")]
impl Command {
    /// Returns the attempt of the lease that the command creates, keeps, marks or ends.
    pub(crate) const fn attempt_mut(&mut self) -> Option<&mut Arc<LeaseAttempt>> {
        match self {
            Self::Acquire { attempt, .. }
            | Self::Renew { attempt, .. }
            | Self::Release { attempt }
            | Self::Undo { attempt, .. }
            | Self::Reserve { attempt, .. }
            | Self::Mark { attempt, .. } => Some(attempt),
            Self::Observe | Self::Inspect | Self::Break { .. } | Self::Claim { .. } | Self::Slots { .. } => {
                None
            }
        }
    }
}

/// The result of a [`Command`].
#[derive(Clone, Debug)]
pub enum Completion {
    Won(Won),
    NotWon(Loss),
    Renewed {
        started: BootInstant,
    },
    RenewalRefused,
    RenewalUndecided,
    Observed(View),
    Slots(SlotView),
    /// The result of the other commands: whether a majority carried out the command in this one round,
    /// whether too many masters refused for a majority, and each master's answer.
    Done {
        majority: bool,
        refused: bool,
        answers: Box<[Option<Answer>; MAX_MASTERS]>,
    },
}

/// Kinds of script calls, as metrics name them. One script call carries one kind.
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

    /// Returns the masters that receive this operation. Clean-up goes also to masters that may not vote (P-8).
    #[must_use]
    pub const fn admission(self) -> Admission {
        match self {
            Self::Release | Self::Undo => Admission::Connected,
            _ => Admission::Voting,
        }
    }
}

/// The masters to which a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Admission {
    /// Only a master that may vote.
    Voting,
    /// Every connected master: clean-up, polls, seals.
    Connected,
}

/// One lock's part of a script call: a command, or the continuation of one.
#[derive(Clone, Debug)]
pub enum Item {
    Command(Command),
    /// The confirm of an acquire: the token, and the number that each master granted, which is part of the value
    /// that must be there (P-35).
    Confirm {
        attempt: Arc<LeaseAttempt>,
        token: FencingToken,
        granted: Vec<(usize, u64)>,
    },
    /// The repeat of a release or an undo at one master. It leaves every reservation, even where the release would have
    /// deleted one (P-111).
    UndoAgain {
        attempt: Arc<LeaseAttempt>,
        /// Whether the repeat is published, as the call before it was. Where that call reached a minority, standbys
        /// wait for the leases that the repeat deletes.
        publish: bool,
        only: usize,
    },
    /// The repeat of a reserve at one master that did not answer. An undo would admit every candidate there before the
    /// lease has run out (P-57).
    ReserveAgain {
        attempt: Arc<LeaseAttempt>,
        cluster: ClusterId,
        only: usize,
    },
}

impl Item {
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Confirm { .. } => Operation::Confirm,
            Self::UndoAgain { .. } => Operation::Undo,
            Self::ReserveAgain { .. } => Operation::Reserve,
            Self::Command(command) => match command {
                Command::Acquire { .. } => Operation::Grant,
                Command::Renew { .. } => Operation::Renew,
                Command::Release { .. } => Operation::Release,
                Command::Undo { .. } => Operation::Undo,
                Command::Reserve { .. } => Operation::Reserve,
                Command::Observe | Command::Inspect => Operation::Observe,
                Command::Break { .. } => Operation::Break,
                Command::Mark { .. } => Operation::Mark,
                Command::Claim { .. } => Operation::Claim,
                Command::Slots { .. } => Operation::Slots,
            },
        }
    }

    /// Returns the attempt of the lease that the item creates, keeps, marks or ends.
    pub(crate) const fn attempt(&self) -> Option<&Arc<LeaseAttempt>> {
        match self {
            Self::Confirm { attempt, .. }
            | Self::UndoAgain { attempt, .. }
            | Self::ReserveAgain { attempt, .. } => Some(attempt),
            Self::Command(command) => match command {
                Command::Acquire { attempt, .. }
                | Command::Renew { attempt, .. }
                | Command::Release { attempt }
                | Command::Undo { attempt, .. }
                | Command::Reserve { attempt, .. }
                | Command::Mark { attempt, .. } => Some(attempt),
                Command::Observe
                | Command::Inspect
                | Command::Break { .. }
                | Command::Claim { .. }
                | Command::Slots { .. } => None,
            },
        }
    }

    /// Reports whether a script for fenced locks carries this item. Locks without fencing use the same
    /// scripts and arguments whether or not other locks are fenced.
    pub(crate) fn is_fenced(&self) -> bool {
        let carries = match self {
            Self::ReserveAgain { .. } => true,
            Self::Confirm { .. } | Self::UndoAgain { .. } => false,
            Self::Command(command) => match command {
                Command::Acquire { .. } | Command::Renew { .. } | Command::Reserve { .. } => true,
                Command::Mark { mark, .. } => *mark != Mark::Clean,
                _ => false,
            },
        };
        carries && self.attempt().is_some_and(|attempt| attempt.fence().is_some())
    }

    /// Returns the kind of this item. A script call carries items of one kind.
    pub(crate) fn kind(&self) -> (Operation, bool) {
        (self.operation(), self.is_fenced())
    }

    /// Reports whether this item is for that master.
    pub(crate) fn is_for(&self, master: usize) -> bool {
        match self {
            Self::Confirm { granted, .. } => granted.iter().any(|(m, _)| *m == master),
            Self::UndoAgain { only, .. } | Self::ReserveAgain { only, .. } => *only == master,
            Self::Command(_) => true,
        }
    }

    /// Reports whether this is a repeat, which is sent after every `not_after` of its lease, on any
    /// connection.
    pub(crate) const fn is_repeat(&self) -> bool {
        matches!(self, Self::UndoAgain { .. } | Self::ReserveAgain { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_the_name_that_metrics_document() {
        let names = Operation::ALL.map(Operation::name);
        let documented = [
            "grant", "confirm", "renew", "release", "undo", "reserve", "observe", "break", "mark", "claim",
            "slots",
        ];
        assert_eq!(names, documented);
    }
}
