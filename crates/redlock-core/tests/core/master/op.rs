//! Calls of scripts, and their answers.

use redlock_core::{LeaseValue, Mark, Marks, Obstacle};

use super::Job;

/// The additional arguments of a renewal of a fenced lock.
#[derive(Clone, Debug)]
pub(crate) struct Fenced {
    /// The mark without its token; empty if the lease was never marked.
    pub(crate) mark: String,
    pub(crate) delay: u64,
    pub(crate) keep_ms: u64,
}

/// The treatment of an own reservation whose place another cluster would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Replaced,
    /// The reserve is refused.
    Refuses,
}

/// One script call.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Grant {
        stem: LeaseValue,
        floor: u64,
        lease_ms: u64,
        fenced: bool,
    },
    Confirm {
        value: LeaseValue,
        token: u64,
    },
    Renew {
        stem: LeaseValue,
        token: u64,
        lease_ms: u64,
        /// The additional arguments for a fenced lock.
        fence: Option<Fenced>,
    },
    Release {
        stem: LeaseValue,
        publish: bool,
        /// Whether the own cluster's reservation stays, as in an undo.
        keep_reservation: bool,
    },
    Reserve {
        stem: LeaseValue,
        cluster: String,
        /// For a fenced lock, the treatment of an own reservation.
        own: Option<Own>,
    },
    Observe {
        cluster: String,
    },
    Break {
        longest_ms: u64,
    },
    Mark {
        stem: LeaseValue,
        token: u64,
        mark: Mark,
        /// For a fenced lock, the fence mark without its token.
        fence: Option<String>,
    },
    Claim {
        slot: u64,
        job: Job,
    },
}

/// The answer for one lock, in the words of the script.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(u64),
    Done,
    NotDone,
    Ours,
    Obstacle(Obstacle, u64),
    /// The part of this lock is an error, for want of memory.
    Failed,
    /// The whole script is, and has written nothing.
    OutOfMemory,
    /// Not sealed, or too late.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    /// Microseconds by the master's clock.
    pub(crate) time: u64,
    pub(crate) counter: u64,
    /// The marks of a grant.
    pub(crate) marks: Marks,
    /// The fence mark of a grant of a fenced lock.
    pub(crate) fence: Option<(u64, String)>,
    /// Whether the standbys are notified.
    pub(crate) published: bool,
}
