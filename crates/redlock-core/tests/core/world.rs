//! Virtual time, the network between candidates and masters, and the events of both.

#[path = "world/agent.rs"]
mod agent;
#[path = "world/begin.rs"]
mod begin;
#[path = "world/carry.rs"]
mod carry;
#[path = "world/clock.rs"]
mod clock;
#[path = "world/event.rs"]
mod event;
#[path = "world/holder.rs"]
mod holder;
#[path = "world/lineage.rs"]
mod lineage;
#[path = "world/network.rs"]
mod network;
#[path = "world/pod.rs"]
mod pod;
#[path = "world/promotion.rs"]
mod promotion;
#[path = "world/seal.rs"]
mod seal;
#[path = "world/second.rs"]
mod second;
#[path = "world/server.rs"]
mod server;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use redlock_core::{Event, Fingerprint, Participation, QuorumSize, Terms, Timings};

use self::{
    agent::Agent,
    clock::Stopped,
    event::{Answer, Answered, Request},
    lineage::Lineages,
    seal::Sealer,
};
pub(crate) use self::{
    begin::hands_over,
    event::{Call, What},
    second::has_second,
};
use crate::{
    candidate::Candidate,
    checks::Checks,
    forger::Forger,
    forgetter::Forgetter,
    master::Master,
    planted::Planted,
    rate::{Instant, SECOND},
    scripts::Named,
    strain::Strain,
};

pub(crate) const SHORT: Timings = timings(2_000, 1_000, 200);
pub(crate) const LONG: Timings = timings(3_000, 1_500, 250);
/// The timings of a holder that renews for as long as it can.
pub(crate) const PATIENT: Timings = timings(3_000, 2_600, 250);
/// The timings of work that takes long to stop.
pub(crate) const STOPPING: Timings = Timings {
    stop: Duration::from_millis(1_500),
    ..timings(3_000, 1_000, 200)
};
pub(crate) const LONGEST: Duration = Duration::from_secs(3);
/// The timings and the longest lease of a candidate that is configured with another fingerprint.
pub(crate) const OTHER: Timings = timings(400, 200, 50);
pub(crate) const OTHER_LONGEST: Duration = Duration::from_millis(400);
pub(crate) const ACQUIRE_LIMIT: Duration = Duration::from_millis(400);
/// The time that a correct wall clock shows at the beginning.
pub(crate) const EPOCH: Instant = 1_700_000_000 * SECOND;
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_millis(150);

const fn timings(lease: u64, renew_deadline: u64, retry: u64) -> Timings {
    Timings {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew_deadline),
        retry_period: Duration::from_millis(retry),
        stop: Duration::ZERO,
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// The state of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) slow: f64,
}

pub(crate) const CALM: Weather = Weather {
    loss: 0.0,
    duplicate: 0.0,
    slow: 0.0,
};

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) rng: fastrand::Rng,
    /// The source of the declared delays, apart from that of the network.
    delays: fastrand::Rng,
    pub(crate) planted: Planted,
    pub(crate) size: QuorumSize,
    /// The fingerprints of the candidates: that of the quorum, and the wrong one that some of them have.
    fingerprints: [Fingerprint; 2],
    pub(crate) masters: Vec<Master>,
    /// The planted second server of the first master's name, with the same clock.
    twin: Option<Master>,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) checks: Checks,
    pub(crate) weather: Weather,
    /// The time of each event, its order among those at the same instant, and its place in `events`.
    queue: BinaryHeap<Reverse<(Instant, u32, usize)>>,
    events: Vec<Option<What>>,
    free: Vec<usize>,
    /// The time until which each candidate's process is stopped.
    pub(crate) paused: Vec<Instant>,
    /// The last time that the clock of each candidate stood still with its process.
    pub(crate) stopped: Vec<Option<Stopped>>,
    /// The time at which each candidate last heard each master.
    pub(crate) last_reply: Vec<Vec<Instant>>,
    /// Requests that wait in the sockets of a stopped master.
    pub(crate) hung: Vec<Option<Vec<Request>>>,
    pub(crate) down: Vec<bool>,
    /// The number of the present process of each server.
    pub(crate) runs: Vec<u64>,
    /// The fingerprint that a master carries, sealed or not.
    pub(crate) stamps: Vec<Option<Named>>,
    /// The run to which the present connection of each candidate was opened.
    opened: Vec<Vec<u64>>,
    /// The processes that seal masters again, each for one fingerprint.
    sealers: Vec<Sealer>,
    /// Whether a candidate and a process that seals have another fingerprint than the others.
    pub(crate) mixed: bool,
    /// Whether a clock is beyond the drift that the protocol assumes.
    pub(crate) beyond: bool,
    /// Whether clocks of masters are set. Two candidates may hold the lock then, but tokens rise.
    pub(crate) steps: bool,
    /// Whether a majority may lose its memory at once.
    pub(crate) total_losses: bool,
    /// The master that shows registers that it never stored, in some worlds.
    pub(crate) forger: Option<Forger>,
    pub(crate) forgetter: Option<Forgetter>,
    pub(crate) strain: Option<Strain>,
    /// Whether the candidates contend for a second lock, and the greatest token of it.
    has_second: bool,
    /// Whether masters fail over to a copy and back.
    pub(crate) promotes: bool,
    second_token: u64,
    /// Whether the lock is passed on repeatedly, by a network that loses many messages.
    pub(crate) hand_overs: bool,
    /// Whether work runs under the lease.
    pub(crate) guards: bool,
    /// Whether a candidate is cut off from a master. `deaf` cuts off only the master's answers.
    pub(crate) cut: Vec<Vec<bool>>,
    pub(crate) deaf: Vec<Vec<bool>>,
    /// The number of times that each fault happened.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// The last arrival on each connection: requests on one connection stay in order.
    arrivals: BTreeMap<(usize, usize, u32), Instant>,
    pub(crate) trace: bool,
    /// The agents of a fenced lock, one for each cluster; empty if the lock is not fenced.
    pub(crate) agents: Vec<Agent>,
    /// The token under which each candidate may start targets of a fenced lock.
    pub(crate) may_start: Vec<Option<u64>>,
    lineages: Lineages,
}

impl World {
    pub(crate) fn is_fenced(&self) -> bool {
        !self.agents.is_empty()
    }

    pub(crate) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn at(&mut self, at: Instant, what: What) {
        let tie = self.rng.u32(..);
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(what);
        self.queue.push(Reverse((at.max(self.now), tie, place)));
    }

    pub(crate) fn terms(&self, candidate: usize, timings: Timings) -> Terms {
        let timings = match self.candidates[candidate].names {
            Named::Quorum => timings,
            Named::Other => OTHER,
        };
        Terms {
            cluster: self.candidates[candidate].cluster.clone(),
            timings,
            participation: Participation::Contend,
            ordered_delay: Duration::ZERO,
            guards: self.guards,
            siblings_first: self.guards,
            fenced: self.is_fenced(),
        }
    }

    pub(crate) fn start(&mut self, candidate: usize) {
        self.stopped[candidate] = None;
        self.lineages.begin(candidate);
        let terms = self.terms(candidate, SHORT);
        let out = self.candidates[candidate].start(terms, self.now, &mut self.rng);
        self.carry(candidate, out);
    }

    pub(crate) fn notify(&mut self, candidate: usize, event: Event) {
        let life = self.candidates[candidate].life;
        self.at(
            self.now,
            What::Event {
                candidate,
                life,
                event,
            },
        );
    }

    /// Runs until `end`, or until an invariant is broken.
    pub(crate) fn run_until(&mut self, end: Instant) {
        while self.checks.broken.is_none() {
            match self.queue.peek() {
                Some(Reverse((at, _, place))) if *at <= end => {
                    let (at, place) = (*at, *place);
                    self.queue.pop();
                    self.check(at);
                    self.now = at;
                    self.free.push(place);
                    if let Some(what) = self.events[place].take() {
                        self.step(what);
                        self.check(at);
                        self.check_pods();
                    }
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
        self.check(self.now);
    }

    fn step(&mut self, what: What) {
        if self.trace {
            println!("{:>9.3} ms {what:?}", self.now as f64 / 1e6);
        }
        if let Some((candidate, life)) = what.addressee() {
            if self.candidates[candidate].life != life {
                return;
            }
            if self.paused[candidate] > self.now {
                return self.at(self.paused[candidate], what);
            }
        }
        match what {
            What::Arrives { master, request } => self.arrive(master, request),
            What::Served { master, request } => self.serve(master, request, self.now),
            What::Answers(answered) => self.answered(*answered),
            What::Opened {
                candidate,
                master,
                run,
                ..
            } => self.opened(candidate, master, run),
            What::Second { candidate, event, .. } => self.second(candidate, event),
            What::Event { candidate, event, .. } => self.happens_to(candidate, event),
            What::Stop { candidate, nanos, .. } => self.stop(candidate, nanos, false),
            What::Sealer { sealer, step } => self.sealer(sealer, step),
            What::Resume { master } => self.resume(master),
            What::PromotedBack(promotion) => self.promote_back(*promotion),
            What::Back { master, run } => self.back(master, run),
            What::Fault => self.fault(),
            What::Step { steps } if self.storms() => self.set_clocks(&steps),
            // Once the faults have stopped, a clock stays as it is.
            What::Step { .. } => {}
            What::Forge => self.forge(),
            What::Forgets(step) => self.forgets(step),
            What::Strain(step) => self.strained(step),
            What::ShutDown { candidate, .. } => self.shut_down(candidate),
            What::Slot => self.slot(),
            What::Node { agent, step } => self.node(agent, step),
            What::Targets {
                candidate,
                token,
                step,
                ..
            } => self.targets(candidate, token, step),
            What::Reset { .. }
            | What::ServerChanged { .. }
            | What::Timer { .. }
            | What::Timeout { .. }
            | What::Keep { .. } => self.wake(&what),
        }
    }

    fn happens_to(&mut self, candidate: usize, event: Event) {
        let renews = self.candidates[candidate].state() == Some("renewing");
        if renews && matches!(event, Event::SpecChanged(_)) {
            self.count("timings changed during a renewal");
        }
        let out = self.candidates[candidate].event(self.now, event, &mut self.rng);
        self.carry(candidate, out);
    }

    /// Handles a timer or a connection of a candidate.
    fn wake(&mut self, what: &What) {
        let (now, rng) = (self.now, &mut self.rng);
        let (candidate, out) = match *what {
            What::Reset {
                candidate,
                master,
                connection,
                ..
            } => {
                let by = &mut self.candidates[candidate];
                (candidate, by.lose_connection(now, (master, connection), rng))
            }
            What::ServerChanged {
                candidate, master, ..
            } => {
                let out = self.candidates[candidate].change_server(now, master, rng);
                self.no_witness(candidate, master);
                (candidate, out)
            }
            What::Timer { candidate, due, .. } => {
                (candidate, self.candidates[candidate].on_timer(now, due, rng))
            }
            What::Timeout { candidate, due, .. } => {
                (candidate, self.candidates[candidate].on_timeout(now, due, rng))
            }
            What::Keep {
                candidate,
                master,
                due,
                ..
            } => (
                candidate,
                self.candidates[candidate].on_keep(now, (master, due), rng),
            ),
            _ => return,
        };
        self.carry(candidate, out);
    }
}
