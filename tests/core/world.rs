//! The simulation: what happens next, in virtual time.

use std::{collections::BTreeMap, time::Duration};

use redlock::lease::{Event, LeaseValue, QuorumSize};

use super::{
    candidate::{Candidate, terms},
    checks::Checks,
    clock::{Clock, MS},
    faults::{Bug, Network, Trouble},
    master::Master,
    message::{Reply, Request},
};

pub const COMMAND_TIMEOUT: Duration = Duration::from_millis(150);
pub const ACQUIRE_LIMIT: Duration = Duration::from_millis(600);
pub const LEASE: Duration = Duration::from_secs(3);
pub const LONGEST: Duration = Duration::from_secs(6);

#[derive(Debug)]
pub enum Happening {
    Timer {
        candidate: usize,
        life: u32,
        timer: u64,
    },
    Reply {
        candidate: usize,
        life: u32,
        connection: u32,
        flight: u64,
        reply: Reply,
    },
    Deadline {
        candidate: usize,
        life: u32,
        flight: u64,
    },
    Published {
        candidate: usize,
        life: u32,
        master: usize,
    },
    /// An undo that may have run before its grant, or not at all.
    Repeat {
        candidate: usize,
        life: u32,
        lease: LeaseValue,
        master: usize,
    },
    Arrival {
        master: usize,
        request: Request,
    },
    Trouble(Trouble),
}

pub struct World {
    pub seed: u64,
    pub now: u64,
    pub size: QuorumSize,
    pub rng: fastrand::Rng,
    pub bug: Option<Bug>,
    pub network: Network,
    /// Candidates bring the largest counter that they saw, as they should. Without it the counters part, and grants are
    /// confirmed more often; nothing that must hold depends on it.
    pub floors: bool,
    /// Faults end here.
    pub calm: u64,
    pub masters: Vec<Master>,
    pub candidates: Vec<Candidate>,
    pub checks: Checks,
    agenda: BTreeMap<(u64, u8, u64), Happening>,
    next: u64,
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let size = QuorumSize::new(if rng.bool() { 3 } else { 5 }).unwrap();
        // Rates differ by 0.8 %, the drift is 1 %.
        let mut clock = |offset: u64| Clock {
            offset: offset * 1_000 * MS,
            ppm: if bug == Some(Bug::NoDrift) {
                if offset > 1_000_000 { 4_000 } else { -4_000 }
            } else {
                rng.i64(-4_000..=4_000)
            },
        };
        let masters: Vec<Master> = (0..size.masters())
            .map(|m| Master::new(clock(1_700_000_000 + m as u64)))
            .collect();
        let clocks: Vec<Clock> = (0..4).map(|c| clock(1_000 * (c + 1))).collect();
        let candidates = clocks[..rng.usize(2..=4)]
            .iter()
            .enumerate()
            .map(|(index, clock)| Candidate::new(index, *clock, terms(index, LEASE), size))
            .collect();
        let mut world = Self {
            seed,
            now: 0,
            size,
            rng,
            bug,
            network: Network::rough(),
            floors: seed.is_multiple_of(2),
            calm: 40_000 * MS,
            masters,
            candidates,
            checks: Checks::default(),
            agenda: BTreeMap::new(),
            next: 0,
        };
        for index in 0..world.candidates.len() {
            world.open(index);
            world.event(index, Event::TimerFired);
        }
        world.later(100 * MS, Happening::Trouble(Trouble::Next));
        world
    }

    /// Connects a new process: every connection begins with a look at the master's clock.
    pub fn open(&mut self, candidate: usize) {
        let c = &mut self.candidates[candidate];
        let now = c.clock.read(self.now);
        c.offsets = self.masters.iter().map(|m| (m.micros(self.now), now)).collect();
    }

    pub fn later(&mut self, delay: u64, what: Happening) {
        self.at(self.now + delay, what);
    }

    /// What was due while a process was paused comes in this order: timers, what has arrived, deadlines.
    pub fn at(&mut self, time: u64, what: Happening) {
        let rank = match what {
            Happening::Timer { .. } => 0,
            Happening::Deadline { .. } => 2,
            _ => 1,
        };
        self.next += 1;
        self.agenda.insert((time.max(self.now), rank, self.next), what);
    }

    /// Runs until `end`, and checks after every event.
    pub fn run_until(&mut self, end: u64) {
        while self
            .agenda
            .first_key_value()
            .is_some_and(|((time, ..), _)| *time <= end)
        {
            let Some(((time, ..), what)) = self.agenda.pop_first() else {
                break;
            };
            self.now = time;
            self.happen(what);
            self.check();
            if self.checks.broken.is_some() {
                return;
            }
        }
        self.now = end;
    }

    fn happen(&mut self, what: Happening) {
        let until = self.postponed(&what);
        if until > self.now {
            return self.at(until, what);
        }
        match what {
            Happening::Timer {
                candidate,
                life,
                timer,
            } => {
                if self.is_life(candidate, life) && self.candidates[candidate].timer == timer {
                    self.event(candidate, Event::TimerFired);
                }
            }
            Happening::Published {
                candidate,
                life,
                master,
            } => {
                if self.is_life(candidate, life) {
                    self.event(candidate, Event::Released { master });
                }
            }
            Happening::Reply {
                candidate,
                life,
                connection,
                flight,
                reply,
            } => {
                let c = &self.candidates[candidate];
                if self.is_life(candidate, life) && c.connections[reply.master] == connection {
                    self.on_reply(candidate, flight, reply);
                }
            }
            Happening::Deadline {
                candidate,
                life,
                flight,
            } => {
                if self.is_life(candidate, life) {
                    self.on_deadline(candidate, flight);
                }
            }
            Happening::Repeat {
                candidate,
                life,
                lease,
                master,
            } => {
                if self.is_life(candidate, life) {
                    self.repeat(candidate, lease, master);
                }
            }
            Happening::Arrival { master, request } => self.arrive(master, &request),
            Happening::Trouble(trouble) => self.trouble(trouble),
        }
    }

    pub fn is_life(&self, candidate: usize, life: u32) -> bool {
        self.candidates[candidate].alive && self.candidates[candidate].life == life
    }

    /// Until when who is to take it is paused.
    fn postponed(&self, what: &Happening) -> u64 {
        match what {
            Happening::Timer { candidate, .. }
            | Happening::Published { candidate, .. }
            | Happening::Reply { candidate, .. }
            | Happening::Deadline { candidate, .. }
            | Happening::Repeat { candidate, .. } => self.candidates[*candidate].paused_until,
            Happening::Arrival { master, .. } => self.masters[*master].hung_until,
            Happening::Trouble(_) => 0,
        }
    }

    /// A request reaches its master, which answers, and publishes what it has to.
    fn arrive(&mut self, master: usize, request: &Request) {
        if self.masters[master].down {
            return;
        }
        let (answer, published) = self.masters[master].run(request, self.now);
        self.check_deleted(request, &answer);
        let reply = Reply {
            master,
            time: self.masters[master].micros(self.now),
            counter: self.masters[master].counter,
            answer,
        };
        let delay = self.network.delay(&mut self.rng);
        if !self.network.loses(&mut self.rng) {
            self.later(
                delay,
                Happening::Reply {
                    candidate: request.from,
                    life: request.life,
                    connection: request.connection,
                    flight: request.flight,
                    reply,
                },
            );
        }
        if published {
            for candidate in 0..self.candidates.len() {
                let delay = self.network.delay(&mut self.rng);
                let life = self.candidates[candidate].life;
                if !self.network.loses(&mut self.rng) {
                    self.later(
                        delay,
                        Happening::Published {
                            candidate,
                            life,
                            master,
                        },
                    );
                }
            }
        }
    }
}
