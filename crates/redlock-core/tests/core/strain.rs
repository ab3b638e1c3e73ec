//! Faults of servers that run and answer, in some worlds: a full memory, forgotten scripts, leases that vanish, commands
//! that take long, and connections that end with a release.

#[path = "strain/cache.rs"]
mod cache;
#[path = "strain/lease.rs"]
mod lease;
#[path = "strain/release.rs"]
mod release;
#[path = "strain/slow.rs"]
mod slow;

use self::{cache::Caches, slow::Queue};
pub(crate) use self::{cache::Text, release::Fate, slow::Service};
use crate::{
    rate::{Instant, MS},
    world::{What, World},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Slow,
    MemoryFull,
    ScriptsForgotten,
    LeasesLost,
    ConnectionLostAtRelease,
}

const KINDS: [Kind; 5] = [
    Kind::Slow,
    Kind::MemoryFull,
    Kind::ScriptsForgotten,
    Kind::LeasesLost,
    Kind::ConnectionLostAtRelease,
];

/// Up to three kinds of faults, and the state of the servers that they need.
#[derive(Debug)]
pub(crate) struct Strain {
    /// Has a state of its own: other worlds stay as they are.
    rng: fastrand::Rng,
    kinds: Vec<Kind>,
    caches: Caches,
    queues: Vec<Queue>,
    /// The masters at which the next release of the calm loses its connection.
    at_release: Vec<bool>,
}

/// A fault, or its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Strained {
    Strikes,
    MemoryFreed {
        master: usize,
    },
    /// A person restarts a master that has evicted keys.
    Restarted {
        master: usize,
    },
}

impl Strain {
    /// Returns the faults of this seed: a fifth of the worlds has some.
    pub(crate) fn of(seed: u64, masters: usize) -> Option<Self> {
        if !matches!(seed % 32, 8 | 10 | 14 | 20 | 24 | 28 | 30) {
            return None;
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(1..=3);
        Some(Self {
            kinds: rng.choose_multiple(KINDS, count),
            rng,
            caches: Caches::new(masters),
            queues: vec![Queue::default(); masters],
            at_release: vec![false; masters],
        })
    }

    fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    fn later(&mut self, ms: u64) -> Instant {
        self.rng.u64(1..ms) * MS
    }
}

impl World {
    pub(crate) fn begin_strain(&mut self) {
        if self.strain.is_some() {
            self.at(self.now, What::Strain(Strained::Strikes));
        }
    }

    pub(crate) fn strained(&mut self, step: Strained) {
        if !self.storms() {
            return;
        }
        match step {
            Strained::Strikes => self.strike(),
            Strained::MemoryFreed { master } => self.masters[master].memory_is_full = false,
            Strained::Restarted { master } => self.restart_after_eviction(master),
        }
    }

    fn strike(&mut self) {
        let (now, masters) = (self.now, self.masters.len());
        let Some(strain) = &mut self.strain else { return };
        let kind = strain.kinds[strain.rng.usize(..strain.kinds.len())];
        let (master, all) = (strain.rng.usize(..masters), strain.rng.u32(..6) == 0);
        let next = now + strain.later(400);
        match kind {
            Kind::Slow => {
                let until = now + strain.later(1_500);
                strain.queues[master].slow_until(until);
            }
            Kind::MemoryFull => self.fill_memory(if all { 0..masters } else { master..master + 1 }),
            Kind::ScriptsForgotten => {
                strain
                    .caches
                    .flush(if all { 0..masters } else { master..master + 1 });
                self.count("scripts forgotten");
            }
            Kind::LeasesLost => self.lose_lease(master),
            Kind::ConnectionLostAtRelease => {}
        }
        self.at(next, What::Strain(Strained::Strikes));
    }

    /// Fills the memory of these masters, each for a time of its own.
    fn fill_memory(&mut self, of: std::ops::Range<usize>) {
        self.count(match of.len() {
            1 => "full memory",
            _ => "full memory of all masters",
        });
        for master in of {
            let Some(strain) = &mut self.strain else { return };
            let at = self.now + strain.later(3_000);
            self.masters[master].memory_is_full = true;
            self.at(at, What::Strain(Strained::MemoryFreed { master }));
        }
    }

    /// Frees the memory of every master, and lets no further command take long.
    pub(crate) fn calm_strain(&mut self) {
        let queues = self.strain.iter_mut().flat_map(|strain| &mut strain.queues);
        queues.for_each(|queue| queue.calm(self.now));
        for master in &mut self.masters {
            master.memory_is_full = false;
        }
    }

    /// Leaves the memory of a master full beyond the storm, in some worlds.
    pub(crate) fn stay_full(&mut self, master: usize) {
        if let Some(strain) = &mut self.strain
            && strain.has(Kind::MemoryFull)
            && strain.rng.bool()
        {
            self.masters[master].memory_is_full = true;
            self.count("full memory in the calm");
        }
    }
}
