//! Models a master that lost its memory, until it is sealed again according to [`Quarantine`].

use std::time::Duration;

use redlock_core::{
    BootInstant, Fingerprint, Identity, MasterFacts,
    seal::{Past, Plan, Quarantine, Read, Registers, Response, Step},
};

use super::{ACQUIRE_LIMIT, EPOCH, What, World, nanos};
use crate::{
    master,
    plant::Plant,
    rate::{Instant, MS, Rate},
    scripts,
};

/// The interval of reads of all masters, while one of them has no seal.
const SURVEY_EVERY: Instant = 100 * MS;

/// The process that seals masters.
#[derive(Debug)]
pub(crate) struct Sealer {
    clock: Rate,
    identity: Identity,
    quarantine: Quarantine,
    /// Whether it reads the masters, until all have their seals.
    awake: bool,
    /// The number of probes that it drew.
    drawn: u64,
}

impl Sealer {
    pub(super) fn new(clock: Rate, fingerprint: Fingerprint) -> Self {
        let size = fingerprint.size().unwrap();
        Self {
            clock,
            identity: Identity::new(fingerprint.to_string(), Some(scripts::quorum())),
            quarantine: Quarantine::new(size, fingerprint),
            awake: false,
            drawn: 0,
        }
    }
}

/// The next action of the process that seals.
#[derive(Clone, Debug)]
pub(crate) enum Sealing {
    /// All masters are asked.
    Ask,
    /// The masters have answered that request.
    Answers {
        sent: BootInstant,
    },
    Probe {
        master: usize,
        run: u64,
        probe: String,
    },
    /// The registers of these masters are read, to seal others, each under the probe that it was seen to carry.
    Floor {
        of: Vec<usize>,
        fallback: bool,
        masters: Vec<(usize, String)>,
    },
    Seal {
        master: usize,
        probe: String,
        floor: Registers,
    },
}

impl World {
    pub(crate) fn lose_memory(&mut self, master: usize) {
        self.forget(master);
        self.wake_sealer();
    }

    pub(crate) fn forget(&mut self, master: usize) {
        self.masters[master].forget();
        self.stamped[master] = self.masters[master].sealed;
    }

    /// Replaces a master by another server, with another clock and without memory. The former one has lost its vote.
    /// Each candidate learns of the change at a time of its own.
    pub(crate) fn replace_server(&mut self, master: usize) {
        self.count("server replaced");
        self.forget(master);
        self.runs[master] += 1;
        self.masters[master].clock.offset += self.rng.u64(..100_000 * MS);
        self.masters[master].clock.parts_per_million = self.rng.i64(-4_500..=4_500);
        self.wake_sealer();
        for candidate in 0..self.candidates.len() {
            self.no_witness(candidate, master);
            let (at, life) = (
                self.now + self.rng.u64(..500 * MS),
                self.candidates[candidate].life,
            );
            let what = What::ServerChanged {
                candidate,
                life,
                master,
            };
            self.at(at, what);
        }
    }

    pub(crate) fn back(&mut self, master: usize, run: u64) {
        if self.runs[master] == run && self.down[master] {
            self.down[master] = false;
            self.masters[master].restart();
            self.wake_sealer();
        }
    }

    fn wake_sealer(&mut self) {
        if !std::mem::replace(&mut self.sealer.awake, true) {
            self.at(self.now, What::Sealer(Sealing::Ask));
        }
    }

    pub(super) fn sealer(&mut self, step: Sealing) {
        match step {
            Sealing::Ask => {
                let sent = self.sealer.clock.moment(self.now);
                let at = self.now + self.delay() * 2;
                self.at(at, What::Sealer(Sealing::Answers { sent }));
            }
            Sealing::Answers { sent } => self.survey(sent),
            Sealing::Probe { master, run, probe } => self.write_probe(master, run, probe),
            Sealing::Floor {
                of,
                fallback,
                masters,
            } => self.read_floor(&of, fallback, masters),
            Sealing::Seal { master, probe, floor } => self.write_seal(master, &probe, &floor),
        }
    }

    fn survey(&mut self, sent: BootInstant) {
        let received = self.sealer.clock.moment(self.now);
        let responses = (0..self.masters.len())
            .map(|master| self.response(master, received))
            .collect();
        // A planted fault skips the wait: every wait is then over before the read.
        let waited = match self.planted.model {
            Plant::FloorWithoutWait => Duration::from_secs(3_600),
            _ => Duration::ZERO,
        };
        let read = Read {
            sent: sent + waited,
            responses,
        };
        let plan = self.sealer.quarantine.decide(&read, &self.sealer.identity);
        self.carry_out(&plan);
        self.sealer.awake = self.masters.iter().any(|master| !master.sealed);
        if self.sealer.awake {
            let waits = plan.steps.iter().filter_map(|(_, step)| match step {
                Step::Wait { until } => Some(self.sealer.clock.instant(*until)),
                _ => None,
            });
            let soon = waits.filter(|until| *until > self.now).min();
            let next = self.now + SURVEY_EVERY;
            let at = soon.map_or(next, |soon| soon.min(next));
            self.at(at, What::Sealer(Sealing::Ask));
        }
    }

    /// Returns what a master shows; `None` if it does not answer, unless its silence is planted to count as a loss of
    /// its memory.
    fn response(&self, master: usize, received: BootInstant) -> Option<Response> {
        let facts = self.facts_of(master);
        if self.reachable(master) {
            return Some(Response { facts, received });
        }
        (self.planted.model == Plant::FallbackWhenUnreachable).then(|| Response {
            facts: MasterFacts {
                seal: String::new(),
                probe: format!("{}|silent", facts.run_id),
                ..facts
            },
            received: BootInstant::default(),
        })
    }

    fn carry_out(&mut self, plan: &Plan) {
        for master in plan.of(&Step::Probe) {
            self.sealer.drawn += 1;
            let run = self.runs[master];
            let probe = format!("{master}.{run}|{}", self.sealer.drawn);
            let at = self.now + self.delay();
            self.at(at, What::Sealer(Sealing::Probe { master, run, probe }));
        }
        let quarantine = &self.sealer.quarantine;
        let under_probe = |masters: Vec<usize>| -> Vec<(usize, String)> {
            let probe = |master: usize| Some((master, quarantine.probe(master)?.to_owned()));
            masters.into_iter().filter_map(probe).collect()
        };
        let (ripe, lost) = (
            under_probe(plan.of(&Step::Seal)),
            under_probe(plan.of(&Step::Fallback)),
        );
        let all = plan.steps.iter().map(|(master, _)| *master);
        let all: Vec<usize> = plan.sources.iter().copied().chain(all).collect();
        for (masters, of, fallback) in [(ripe, plan.sources.clone(), false), (lost, all, true)] {
            if !masters.is_empty() {
                let at = self.now + self.delay();
                self.at(
                    at,
                    What::Sealer(Sealing::Floor {
                        of,
                        fallback,
                        masters,
                    }),
                );
            }
        }
    }

    fn write_probe(&mut self, master: usize, run: u64, probe: String) {
        if !self.reachable(master) || self.runs[master] != run || self.masters[master].sealed {
            return;
        }
        let stands = &mut self.masters[master].probe;
        if !stands.starts_with(&format!("{master}.{run}|")) {
            *stands = probe;
        }
        let (stands, received) = (stands.clone(), self.sealer.clock.moment(self.now));
        self.sealer.quarantine.note(master, &stands, received);
    }

    fn read_floor(&mut self, of: &[usize], fallback: bool, masters: Vec<(usize, String)>) {
        let reached: Vec<usize> = of.iter().copied().filter(|m| self.reachable(*m)).collect();
        let floor = if fallback {
            // All masters that answered before must answer again.
            if reached.len() < of.len() && self.planted.model != Plant::FallbackWhenUnreachable {
                return;
            }
            self.count("total loss");
            self.floor(&reached)
                .fallback(Duration::from_nanos(self.wall()), Past::MayHaveHeld)
        } else {
            let mut sealed: Vec<usize> = reached.into_iter().filter(|m| self.masters[*m].sealed).collect();
            if sealed.len() < self.size.majority() {
                return;
            }
            self.rng.shuffle(&mut sealed);
            self.floor(&sealed[..self.size.majority()])
        };
        for (master, probe) in masters {
            let at = self.now + self.rng.u64(..nanos(ACQUIRE_LIMIT));
            let floor = floor.clone();
            self.at(at, What::Sealer(Sealing::Seal { master, probe, floor }));
        }
    }

    fn write_seal(&mut self, master: usize, probe: &str, floor: &Registers) {
        let run = format!("{master}.{}|", self.runs[master]);
        let server = &mut self.masters[master];
        if self.down[master] || server.sealed || server.probe != probe || !probe.starts_with(&run) {
            return;
        }
        server.seal(&scripts::of_shipped(floor));
        server.probe.clear();
        self.stamped[master] = true;
    }

    pub(crate) fn reachable(&self, master: usize) -> bool {
        !self.down[master] && self.hung[master].is_none()
    }

    fn floor(&self, of: &[usize]) -> Registers {
        let registers = of.iter().map(|master| &self.masters[*master].registers);
        if self.planted.model == Plant::TieToOne {
            let merged = registers.fold(master::Registers::default(), |floor, of| {
                floor.merged(of, Plant::TieToOne)
            });
            return scripts::shipped(&merged);
        }
        registers.fold(Registers::default(), |floor, of| {
            floor.merged(scripts::shipped(of))
        })
    }

    /// Returns the wall clock of the process that seals. It only has to be right where a majority may lose its memory
    /// at once.
    fn wall(&self) -> Instant {
        if self.total_losses { EPOCH + self.now } else { 0 }
    }
}
