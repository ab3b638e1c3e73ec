//! A process that takes part: the production machine, a clock, connections.

use std::{collections::BTreeMap, time::Duration};

use redlock::lease::{
    Authority, ClusterId, HolderIdentity, LeaseValue, Machine, Moment, Nonce, Participation, QuorumSize,
    Terms, Timings,
};

use super::{clock::Clock, flight::Flight};

pub const RETRY: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Candidate {
    pub clock: Clock,
    pub machine: Machine,
    /// Counts the processes of this candidate.
    pub life: u32,
    pub alive: bool,
    pub stopping: bool,
    pub paused_until: u64,
    pub flights: BTreeMap<u64, Flight>,
    /// Replaced by every `SleepUntil`.
    pub timer: u64,
    /// The lease of the last attempt.
    pub lease: LeaseValue,
    /// The largest counter seen.
    pub floor: u64,
    /// Of each master: its clock (microseconds) and when it was read.
    pub offsets: Vec<(u64, Moment)>,
    pub connections: Vec<u32>,
    /// Of each connection, the last arrival: what is sent later arrives later.
    pub sent: Vec<u64>,
}

pub fn cluster(index: usize) -> ClusterId {
    ClusterId::new(["east", "west"][index % 2], "uid").unwrap()
}

pub fn terms(index: usize, lease: Duration) -> Terms {
    Terms {
        cluster: cluster(index),
        timings: Timings {
            lease_duration: lease,
            renew_deadline: lease * 2 / 3,
            retry_period: RETRY,
            stop: Duration::ZERO,
        },
        participation: Participation::Contend,
        ordered_delay: Duration::ZERO,
    }
}

impl Candidate {
    pub fn new(index: usize, clock: Clock, terms: Terms, size: QuorumSize) -> Self {
        Self {
            clock,
            lease: LeaseValue {
                cluster: terms.cluster.clone(),
                identity: HolderIdentity::parse(&format!("candidate-{index}")).unwrap(),
                nonce: Nonce(0),
                grant: 0,
            },
            machine: Machine::new(terms, size.majority()),
            life: 0,
            alive: true,
            stopping: false,
            paused_until: 0,
            flights: BTreeMap::new(),
            timer: 0,
            floor: 0,
            offsets: vec![(0, Moment::default()); size.masters()],
            connections: vec![0; size.masters()],
            sent: vec![0; size.masters()],
        }
    }

    /// A new process in the place of the old one. Nothing is remembered.
    pub fn begin(&mut self, terms: Terms, size: QuorumSize) {
        self.machine = Machine::new(terms, size.majority());
        self.life += 1;
        self.alive = true;
        self.stopping = false;
        self.flights.clear();
        self.floor = 0;
        for master in 0..size.masters() {
            self.reconnect(master);
        }
    }

    pub fn reconnect(&mut self, master: usize) {
        self.connections[master] += 1;
        self.sent[master] = 0;
    }

    /// What this process believes, also while it is paused.
    pub fn authority(&self, now: u64) -> Option<Authority> {
        self.alive
            .then(|| self.machine.authority_at(self.clock.read(now)))
            .flatten()
    }
}
