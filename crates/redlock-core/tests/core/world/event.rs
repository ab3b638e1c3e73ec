//! What happens in a world, each at its instant.

use std::time::Duration;

use redlock_core::{Event, Moment};

use crate::{
    master::{Op, Registers, Reply},
    rate::Instant,
};

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) candidate: usize,
    pub(super) life: u32,
    pub(super) connection: u32,
    pub(super) call: u64,
    pub(super) op: Op,
    /// By the candidate's clock, and in true time.
    pub(super) sent: Moment,
    pub(super) sent_at: Instant,
    pub(super) not_after: u64,
    /// The same in true time.
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(crate) enum What {
    Arrives {
        master: usize,
        request: Request,
    },
    Answers {
        master: usize,
        request: Request,
        reply: Option<Reply>,
    },
    Tell {
        candidate: usize,
        life: u32,
        event: Event,
    },
    Timer {
        candidate: usize,
        life: u32,
        due: Moment,
    },
    Deadline {
        candidate: usize,
        life: u32,
        call: u64,
        silent: bool,
    },
    Repeat {
        candidate: usize,
        life: u32,
        tenure: usize,
        master: usize,
        reserve: bool,
        wait: Duration,
        until: Moment,
    },
    /// The registers of f+1 other masters are read, after the wait.
    ReadFloor {
        master: usize,
        probe: u64,
    },
    Seal {
        master: usize,
        probe: u64,
        floor: Registers,
    },
    Resume {
        master: usize,
    },
    /// A crashed master is there again, with what it knew.
    Back {
        master: usize,
        probe: u64,
    },
    Fault,
    /// A candidate shuts down.
    ShutDown {
        candidate: usize,
        life: u32,
    },
    /// A slot comes due.
    Slot,
}
