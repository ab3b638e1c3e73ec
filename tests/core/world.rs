//! Virtual time, the network between candidates and masters, and the events of both.

#[path = "world/network.rs"]
mod network;
#[path = "world/seal.rs"]
mod seal;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use redlock::lease::{Event, Moment, Participation, QuorumSize, Terms, Timings};

use crate::{
    candidate::{Candidate, Out},
    checks::Checks,
    master::{Master, Op, Plant, Reply},
    rate::{Instant, MS, Rate},
};

pub(crate) const SHORT: Timings = timings(2_000, 1_000, 200);
pub(crate) const LONG: Timings = timings(3_000, 1_500, 250);
pub(crate) const LONGEST: Duration = Duration::from_secs(3);
pub(crate) const ACQUIRE_LIMIT: Duration = Duration::from_millis(400);
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

#[derive(Clone, Debug)]
pub(crate) struct Request {
    candidate: usize,
    life: u32,
    connection: u32,
    call: u64,
    op: Op,
    not_after: u64,
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
        wait: Duration,
        until: Moment,
    },
    /// The registers of f+1 other masters are read, after the wait.
    ReadFloor {
        master: usize,
        run: u64,
    },
    Seal {
        master: usize,
        run: u64,
        floor: u64,
    },
    Resume {
        master: usize,
    },
    Fault,
}

/// How bad the network is.
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
    pub(crate) plant: Plant,
    pub(crate) size: QuorumSize,
    pub(crate) masters: Vec<Master>,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) checks: Checks,
    pub(crate) weather: Weather,
    queue: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    events: BTreeMap<u64, What>,
    next: u64,
    /// Until when a candidate's process is stopped.
    pub(crate) paused: Vec<Instant>,
    /// Requests that wait in the sockets of a stopped master.
    pub(crate) hung: Vec<Option<Vec<Request>>>,
    pub(crate) down: Vec<bool>,
    /// Whether a candidate reaches a master.
    pub(crate) cut: Vec<Vec<bool>>,
    /// The last arrival on each connection: requests on one stay in order.
    arrivals: BTreeMap<(usize, usize, u32), Instant>,
    pub(crate) trace: bool,
}

impl World {
    pub(crate) fn new(seed: u64, plant: Plant) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let size = QuorumSize::new(if rng.bool() { 3 } else { 5 }).unwrap();
        let n = size.masters();
        let mut clock = |base: u64| Rate {
            offset: base * 1_000 * MS + rng.u64(..1_000_000 * MS),
            // Both ends of a pair may err, in opposite directions: together within 1 %.
            parts_per_million: rng.i64(-4_500..=4_500),
        };
        let masters: Vec<_> = (0..n)
            .map(|_| Master::new(clock(1_700_000_000), 0, plant))
            .collect();
        let clocks: Vec<_> = (0..4).map(|_| clock(1)).collect();
        let count = rng.usize(2..=4);
        let candidates: Vec<_> = (0..count)
            .map(|i| {
                Candidate::new(
                    i,
                    if i % 2 == 0 { "east" } else { "west" },
                    clocks[i],
                    size,
                    plant,
                )
            })
            .collect();
        Self {
            now: MS,
            rng,
            plant,
            size,
            masters,
            candidates,
            checks: Checks::default(),
            weather: CALM,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            paused: vec![0; count],
            hung: vec![None; n],
            down: vec![false; n],
            cut: vec![vec![false; n]; count],
            arrivals: BTreeMap::new(),
            trace: false,
        }
    }

    pub(crate) fn at(&mut self, at: Instant, what: What) {
        self.next += 1;
        let tie = self.rng.u32(..);
        self.queue.push(Reverse((at.max(self.now), tie, self.next)));
        self.events.insert(self.next, what);
    }

    pub(crate) fn terms(&self, candidate: usize, timings: Timings) -> Terms {
        Terms {
            cluster: self.candidates[candidate].cluster.clone(),
            timings,
            participation: Participation::Contend,
            ordered_delay: Duration::ZERO,
            guards: false,
        }
    }

    pub(crate) fn start(&mut self, candidate: usize) {
        let terms = self.terms(candidate, SHORT);
        let (now, masters) = (self.now, &self.masters);
        let clocks: Vec<u64> = masters.iter().map(|m| m.micros(now)).collect();
        let out = self.candidates[candidate].start(terms, now, clocks.into_iter());
        self.carry(candidate, out);
    }

    pub(crate) fn tell(&mut self, candidate: usize, event: Event) {
        let life = self.candidates[candidate].life;
        self.at(
            self.now,
            What::Tell {
                candidate,
                life,
                event,
            },
        );
    }

    /// Runs until `end`, or until something broke.
    pub(crate) fn run_until(&mut self, end: Instant) {
        while self.checks.broken.is_none() {
            match self.queue.peek() {
                Some(Reverse((at, _, id))) if *at <= end => {
                    let (at, id) = (*at, *id);
                    self.queue.pop();
                    self.checks.until(at, &self.candidates, &self.masters);
                    self.now = at;
                    if let Some(what) = self.events.remove(&id) {
                        self.step(what);
                        self.checks.until(at, &self.candidates, &self.masters);
                    }
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
        self.checks.until(self.now, &self.candidates, &self.masters);
    }

    fn step(&mut self, what: What) {
        if self.trace {
            println!("{:>9.3} ms {what:?}", self.now as f64 / 1e6);
        }
        let addressee = match &what {
            What::Answers { request, .. } => Some((request.candidate, request.life)),
            What::Tell { candidate, life, .. }
            | What::Timer { candidate, life, .. }
            | What::Deadline { candidate, life, .. }
            | What::Repeat { candidate, life, .. } => Some((*candidate, *life)),
            _ => None,
        };
        if let Some((candidate, life)) = addressee {
            if self.candidates[candidate].life != life {
                return;
            }
            if self.paused[candidate] > self.now {
                return self.at(self.paused[candidate], what);
            }
        }
        match what {
            What::Arrives { master, request, .. } => self.arrive(master, request),
            What::Answers {
                master,
                request,
                reply,
            } => {
                let on = (request.call, master, request.connection);
                let candidate = &mut self.candidates[request.candidate];
                if candidate.connections[master] != request.connection && reply.is_some() {
                    return;
                }
                let out = candidate.on_reply(self.now, on, reply.as_ref(), &mut self.rng);
                self.carry(request.candidate, out);
            }
            What::Tell { candidate, event, .. } => {
                let out = self.candidates[candidate].event(self.now, self.rng.u64(..), event);
                self.carry(candidate, out);
            }
            What::Timer { candidate, due, .. } => {
                let out = self.candidates[candidate].on_timer(self.now, due, self.rng.u64(..));
                self.carry(candidate, out);
            }
            What::Deadline {
                candidate,
                call,
                silent,
                ..
            } => {
                let out = self.candidates[candidate].on_deadline(self.now, (call, silent), &mut self.rng);
                self.carry(candidate, out);
            }
            What::Repeat {
                candidate,
                tenure,
                master,
                wait,
                until,
                ..
            } => {
                let out = self.candidates[candidate].on_repeat(self.now, (tenure, master), wait, until);
                self.carry(candidate, out);
            }
            What::ReadFloor { master, run } => self.read_floor(master, run),
            What::Seal { master, run, floor } => {
                if self.masters[master].run == run && !self.masters[master].sealed {
                    self.masters[master].seal(floor);
                }
            }
            What::Resume { master } => self.resume(master),
            What::Fault => self.fault(),
        }
    }

    fn carry(&mut self, candidate: usize, out: Vec<Out>) {
        let life = self.candidates[candidate].life;
        for out in out {
            if self.trace {
                println!("              {candidate}: {out:?}");
            }
            let clock = self.candidates[candidate].clock;
            match out {
                Out::Send {
                    master,
                    connection,
                    call,
                    op,
                    not_after,
                } => {
                    let request = Request {
                        candidate,
                        life,
                        connection,
                        call,
                        op,
                        not_after,
                    };
                    self.dispatch(master, request);
                }
                Out::WakeAt(due) => self.at(clock.instant(due), What::Timer { candidate, life, due }),
                Out::Deadline { call, at, silent } => {
                    self.at(
                        clock.instant(at),
                        What::Deadline {
                            candidate,
                            life,
                            call,
                            silent,
                        },
                    );
                }
                Out::Repeat {
                    tenure,
                    master,
                    wait,
                    until,
                    at,
                } => {
                    self.at(
                        clock.instant(at),
                        What::Repeat {
                            candidate,
                            life,
                            tenure,
                            master,
                            wait,
                            until,
                        },
                    );
                }
                Out::Active { token, won } => self.checks.active(token.0, won, self.now),
                Out::WithoutAuthority => {
                    self.checks.fail(
                        "S4",
                        self.now,
                        "a renewal was sent after the local end".to_owned(),
                    );
                }
            }
        }
    }
}
