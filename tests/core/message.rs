//! What travels between candidates and masters.

use redlock::lease::{ClusterId, LeaseValue, Obstacle};

#[derive(Clone, Debug)]
pub enum Ask {
    Grant {
        millis: u64,
        floor: u64,
    },
    Confirm {
        number: u64,
        token: u64,
    },
    Renew {
        token: u64,
        millis: u64,
    },
    /// Undo where it is not announced.
    Release {
        announce: bool,
    },
    Reserve {
        to: ClusterId,
    },
    Observe,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub from: usize,
    /// The life of the process, and its connection: an answer to another one is lost.
    pub life: u32,
    pub connection: u32,
    pub flight: u64,
    pub ask: Ask,
    /// The lease text, with a grant number of 0.
    pub lease: LeaseValue,
    /// Microseconds of the master's clock.
    pub not_after: u64,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Granted(u64),
    Done,
    NotMine,
    Free,
    Ours,
    /// Remaining milliseconds.
    Blocked(Obstacle, u64),
    /// Not sealed, or too late.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub master: usize,
    /// Microseconds of the master's clock.
    pub time: u64,
    pub counter: u64,
    pub answer: Answer,
}
