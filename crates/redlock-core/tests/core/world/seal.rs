//! A master that lost its memory, until it is sealed again.

use redlock_core::timing;

use super::{ACQUIRE_LIMIT, EPOCH, LONGEST, What, World, nanos};
use crate::{
    master::Registers,
    plant::Plant,
    rate::{Instant, MS, SECOND},
};

/// Beyond the wall clock, so that no slot that is due can have been claimed before.
const SLOTS_AFTER: u64 = 60;

/// The observer's clock may be the fastest that is allowed.
fn wait() -> u64 {
    nanos(timing::seal_wait(LONGEST, ACQUIRE_LIMIT)) * 1_000 / 1_005
}

impl World {
    pub(crate) fn lose_memory(&mut self, master: usize) {
        self.forget(master);
        self.quarantine(master);
    }

    pub(crate) fn forget(&mut self, master: usize) {
        self.masters[master].forget();
        self.stamped[master] = self.masters[master].sealed;
    }

    /// Another server takes the place of a master, by another clock and without memory. The former one has lost its vote.
    /// Each candidate learns of it at a time of its own.
    pub(crate) fn replace_server(&mut self, master: usize) {
        self.count("server replaced");
        self.forget(master);
        self.runs[master] += 1;
        self.masters[master].clock.offset += self.rng.u64(..100_000 * MS);
        self.masters[master].clock.parts_per_million = self.rng.i64(-4_500..=4_500);
        self.quarantine(master);
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

    pub(crate) fn back(&mut self, master: usize, probe: u64) {
        if self.masters[master].probe == probe {
            self.down[master] = false;
            self.masters[master].restart();
            self.quarantine(master);
        }
    }

    fn quarantine(&mut self, master: usize) {
        let probe = self.masters[master].probe;
        self.probed[master] = self.now;
        let wait = match self.planted.model {
            Plant::FloorWithoutWait => MS,
            _ => wait(),
        };
        self.at(self.now + wait, What::ReadFloor { master, probe });
    }

    pub(super) fn read_floor(&mut self, master: usize, probe: u64) {
        if self.masters[master].probe != probe || self.masters[master].sealed {
            return;
        }
        if let Some(floor) = self.registers_of_others(master) {
            let at = self.now + self.rng.u64(..nanos(ACQUIRE_LIMIT));
            return self.at(at, What::Seal { master, probe, floor });
        }
        self.fall_back();
        self.at(self.now + 100 * MS, What::ReadFloor { master, probe });
    }

    /// Of a majority of sealed masters.
    fn registers_of_others(&mut self, master: usize) -> Option<Registers> {
        let mut others: Vec<usize> = (0..self.masters.len())
            .filter(|m| *m != master && self.masters[*m].sealed && self.reachable(*m))
            .collect();
        if others.len() < self.size.majority() {
            return None;
        }
        self.rng.shuffle(&mut others);
        Some(self.floor(&others[..self.size.majority()]))
    }

    pub(crate) fn reachable(&self, master: usize) -> bool {
        !self.down[master] && self.hung[master].is_none()
    }

    fn floor(&self, of: &[usize]) -> Registers {
        of.iter().fold(Registers::default(), |floor, m| {
            floor.merged(&self.masters[*m].registers, self.planted.model)
        })
    }

    /// A majority carried its probes for the whole wait, and shows them at once: nobody is left to ask.
    fn fall_back(&mut self) {
        let unsealed: Vec<usize> = (0..self.masters.len())
            .filter(|m| {
                !self.masters[*m].sealed && self.reachable(*m) && self.probed[*m] + wait() <= self.now
            })
            .collect();
        let silent = (0..self.masters.len()).filter(|m| !self.reachable(*m)).count();
        let counted = match self.planted.model {
            Plant::FallbackWhenUnreachable => unsealed.len() + silent,
            _ => unsealed.len(),
        };
        if counted < self.size.majority() {
            return;
        }
        self.count("total loss");
        let known: Vec<usize> = (0..self.masters.len()).filter(|m| self.reachable(*m)).collect();
        let mut floor = self.floor(&known);
        let wall = self.wall();
        floor.counter = floor.counter.max(wall / MS);
        floor.held_floor = floor.counter;
        floor.slot_floor = floor.slot_floor.max(wall / SECOND + SLOTS_AFTER);
        for master in unsealed {
            let probe = self.masters[master].probe;
            let at = self.now + self.rng.u64(..nanos(ACQUIRE_LIMIT));
            let floor = floor.clone();
            self.at(at, What::Seal { master, probe, floor });
        }
    }

    /// The wall clock of whoever seals. It only has to be right where a majority may lose its memory at once.
    pub(crate) fn wall(&self) -> Instant {
        if self.total_losses { EPOCH + self.now } else { 0 }
    }
}
