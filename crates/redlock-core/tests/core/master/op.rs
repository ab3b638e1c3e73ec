//! Calls of scripts, and what they answer.

use redlock_core::{LeaseValue, Mark, Marks, Obstacle};

use super::Job;

/// One script call.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Grant {
        stem: LeaseValue,
        floor: u64,
        lease_ms: u64,
    },
    Confirm {
        value: LeaseValue,
        token: u64,
    },
    Renew {
        stem: LeaseValue,
        token: u64,
        lease_ms: u64,
    },
    Release {
        stem: LeaseValue,
        publish: bool,
        /// The own cluster's reservation stays: an undo.
        keep_reservation: bool,
    },
    Reserve {
        stem: LeaseValue,
        cluster: String,
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
    },
    Claim {
        slot: u64,
        job: Job,
    },
}

/// What stands in the way, as the script words it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(u64),
    Done,
    NotDone,
    Ours,
    Obstacle(Obstacle, u64),
    /// Not sealed, or too late.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    /// Microseconds by the master's clock.
    pub(crate) time: u64,
    pub(crate) counter: u64,
    /// Of a grant.
    pub(crate) marks: Marks,
    /// Tell the standbys.
    pub(crate) published: bool,
}
