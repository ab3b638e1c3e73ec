//! Models a master that lost its memory, until it is sealed again according to [`Quarantine`].

use std::time::Duration;

use redlock_core::{
    BootInstant, Fingerprint, Identity, MasterFacts,
    plausible::{CounterBounds, ShownCounter},
    seal::{Past, Plan, Quarantine, Read, Registers, Response, SealedBy, Step},
};

use super::{ACQUIRE_LIMIT, EPOCH, What, World, nanos};
use crate::{
    master,
    plant::Plant,
    rate::{Instant, MS, Rate},
    scripts::{self, Named},
};

/// The interval of reads of all masters, while one of them has no seal.
const SURVEY_EVERY: Instant = 100 * MS;

/// A process that seals masters.
#[derive(Debug)]
pub(crate) struct Sealer {
    clock: Rate,
    /// The fingerprint under which it seals.
    names: Named,
    identity: Identity,
    quarantine: Quarantine,
    /// Whether it reads the masters, until all have their seals.
    awake: bool,
    /// The number of probes that it drew.
    drawn: u64,
}

impl Sealer {
    /// Returns a process that has just started. Only a process of the quorum remembers the id from before.
    pub(super) fn new(clock: Rate, names: Named, fingerprints: &[Fingerprint; 2]) -> Self {
        let fingerprint = fingerprints[names as usize].clone();
        let stored = (names == Named::Quorum).then(scripts::quorum);
        Self {
            clock,
            names,
            identity: Identity::new(fingerprint.to_string(), stored),
            quarantine: Quarantine::new(fingerprint.size().unwrap(), fingerprint, SealedBy::Process),
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
        if !self.masters[master].sealed {
            self.stamps[master] = None;
        }
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

    /// Adds a process that seals for another fingerprint, and gives the last candidate that one, too.
    pub(crate) fn mix_fingerprints(&mut self) {
        self.mixed = true;
        self.total_losses = true;
        let clock = self.sealers[0].clock;
        let mut sealer = Sealer::new(clock, Named::Other, &self.fingerprints);
        if self.planted.model == Plant::UnseenSealed {
            let own = self.fingerprints[Named::Other as usize].to_string();
            sealer.identity = Identity::new(own, Some(scripts::quorum()));
        } else {
            for master in 0..self.masters.len() {
                sealer.identity.note(master, &self.facts_of(master));
            }
        }
        self.sealers.push(sealer);
        if let Some(last) = self.candidates.last_mut() {
            last.names = Named::Other;
        }
    }

    /// Starts the process with the other fingerprint anew: it has seen no master.
    pub(crate) fn restart_sealer_of_other(&mut self) {
        for sealer in self
            .sealers
            .iter_mut()
            .filter(|sealer| sealer.names == Named::Other)
        {
            let awake = sealer.awake;
            *sealer = Sealer::new(sealer.clock, Named::Other, &self.fingerprints);
            sealer.awake = awake;
        }
    }

    pub(super) fn wake_sealer(&mut self) {
        for sealer in 0..self.sealers.len() {
            if !std::mem::replace(&mut self.sealers[sealer].awake, true) {
                self.sealer_at(self.now, sealer, Sealing::Ask);
            }
        }
    }

    fn sealer_at(&mut self, at: Instant, sealer: usize, step: Sealing) {
        self.at(at, What::Sealer { sealer, step });
    }

    pub(super) fn sealer(&mut self, sealer: usize, step: Sealing) {
        match step {
            Sealing::Ask => {
                let sent = self.sealers[sealer].clock.moment(self.now);
                let at = self.now + self.delay() * 2;
                self.sealer_at(at, sealer, Sealing::Answers { sent });
            }
            Sealing::Answers { sent } => self.survey(sealer, sent),
            Sealing::Probe { master, probe } => self.write_probe(sealer, master, probe),
            Sealing::Floor {
                of,
                fallback,
                masters,
            } => self.read_floor(sealer, &of, fallback, masters),
            Sealing::Seal { master, probe, floor } => self.write_seal(sealer, master, (&probe, &floor)),
        }
    }

    fn survey(&mut self, sealer: usize, sent: BootInstant) {
        let received = self.sealers[sealer].clock.moment(self.now);
        let responses = (0..self.masters.len())
            .map(|master| self.response(master, received, self.sealers[sealer].names))
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
        let by = &mut self.sealers[sealer];
        let plan = by.quarantine.decide(&read, &by.identity);
        self.carry_out(sealer, &plan);
        self.sealers[sealer].awake = self.masters.iter().any(|master| !master.sealed);
        if self.sealers[sealer].awake {
            let waits = plan.steps.iter().filter_map(|(_, step)| match step {
                Step::Wait { until } => Some(self.sealers[sealer].clock.instant(*until)),
                _ => None,
            });
            let soon = waits.filter(|until| *until > self.now).min();
            let next = self.now + SURVEY_EVERY;
            let at = soon.map_or(next, |soon| soon.min(next));
            self.sealer_at(at, sealer, Sealing::Ask);
        }
    }

    /// Returns what a master shows; `None` if it does not answer, unless its silence is planted to count as a loss of
    /// its memory.
    fn response(&self, master: usize, received: BootInstant, by: Named) -> Option<Response> {
        let mut facts = self.facts_of(master);
        if self.planted.model == Plant::UnseenSealed && self.stamps[master] != Some(by) {
            facts.fingerprint.clear();
        }
        if self.reachable(master) {
            return Some(Response { facts, received });
        }
        (self.planted.model == Plant::FallbackWhenUnreachable).then(|| Response {
            facts: MasterFacts {
                seal: String::new(),
                probe: facts.probe_prefix() + "silent",
                ..facts
            },
            received: BootInstant::default(),
        })
    }

    fn carry_out(&mut self, sealer: usize, plan: &Plan) {
        for master in plan.of(&Step::Probe) {
            self.sealers[sealer].drawn += 1;
            let prefix = self.facts_of(master).probe_prefix();
            let probe = format!("{prefix}{sealer}.{}", self.sealers[sealer].drawn);
            let at = self.now + self.delay();
            self.sealer_at(at, sealer, Sealing::Probe { master, probe });
        }
        let quarantine = &self.sealers[sealer].quarantine;
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
                let step = Sealing::Floor {
                    of,
                    fallback,
                    masters,
                };
                self.sealer_at(at, sealer, step);
            }
        }
    }

    fn write_probe(&mut self, sealer: usize, master: usize, probe: String) {
        let refuses = self.masters[master].sealed || self.masters[master].memory_is_full;
        let prefix = self.facts_of(master).probe_prefix();
        if !self.reachable(master) || !probe.starts_with(&prefix) || refuses {
            return;
        }
        let stands = &mut self.masters[master].probe;
        if !stands.starts_with(&prefix) {
            *stands = probe;
        }
        let (stands, by) = (stands.clone(), &mut self.sealers[sealer]);
        by.quarantine.note(master, &stands, by.clock.moment(self.now));
    }

    fn read_floor(&mut self, sealer: usize, of: &[usize], fallback: bool, masters: Vec<(usize, String)>) {
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
            let names = self.sealers[sealer].names;
            let source = |master: &usize| self.is_sealed_for(*master, names);
            let mut sealed: Vec<usize> = reached.into_iter().filter(source).collect();
            let shown: Vec<ShownCounter> = sealed.iter().map(|master| self.shown_counter(*master)).collect();
            let own_clock = Some(Duration::from_nanos(EPOCH + self.now));
            let Some(bounds) = CounterBounds::of(&shown, self.size.majority(), own_clock) else {
                return;
            };
            let shown = |master: &usize| scripts::shipped(&self.masters[*master].registers);
            let all: Vec<Registers> = sealed.iter().map(shown).collect();
            let limits = Registers::widen(
                bounds.registers,
                &all.iter().collect::<Vec<_>>(),
                self.size.majority(),
            );
            sealed.retain(|master| shown(master).implausible(&limits).is_none());
            if sealed.len() < self.size.majority() {
                return;
            }
            self.rng.shuffle(&mut sealed);
            self.floor(&sealed[..self.size.majority()])
        };
        for (master, probe) in masters {
            let at = self.now + self.rng.u64(..nanos(ACQUIRE_LIMIT));
            let floor = floor.clone();
            self.sealer_at(at, sealer, Sealing::Seal { master, probe, floor });
        }
    }

    fn write_seal(&mut self, sealer: usize, master: usize, (probe, floor): (&str, &Registers)) {
        let prefix = self.facts_of(master).probe_prefix();
        let server = &mut self.masters[master];
        if self.down[master]
            || server.sealed
            || server.memory_is_full
            || server.probe != probe
            || !probe.starts_with(&prefix)
        {
            return;
        }
        server.seal(&scripts::of_shipped(floor));
        server.probe.clear();
        self.stamps[master] = Some(self.sealers[sealer].names);
    }

    /// Reports whether a master is sealed for this fingerprint.
    pub(crate) fn is_sealed_for(&self, master: usize, names: Named) -> bool {
        self.masters[master].sealed && self.stamps[master] == Some(names)
    }

    fn shown_counter(&self, master: usize) -> ShownCounter {
        let server = &self.masters[master];
        ShownCounter {
            counter: server.registers.counter,
            clock: Duration::from_micros(server.micros(self.now)),
        }
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
        Registers::floor_of(registers.map(scripts::shipped).collect(), self.size.majority())
    }

    /// Returns the wall clock of the process that seals. It only has to be right where a majority may lose its memory
    /// at once.
    fn wall(&self) -> Instant {
        if self.total_losses { EPOCH + self.now } else { 0 }
    }
}
