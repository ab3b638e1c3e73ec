//! A master whose registers are changed by hand, or that forges numbers. A person restarts it empty at last.

use crate::{
    rate::{Instant, MS},
    world::{What, World},
};

/// The greatest number of the scripts, less some grants.
const ALMOST_EXHAUSTED: u64 = (1 << 53) - 12;

/// The master that forges registers.
#[derive(Clone, Debug)]
pub(crate) struct Forger {
    /// Has a state of its own: other worlds stay as they are.
    rng: fastrand::Rng,
    /// The master, while its registers are forged.
    pub(crate) forged: Option<usize>,
}

impl Forger {
    /// Returns the forger of one in 32 worlds.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        (seed % 32 == 13).then(|| Self {
            rng: fastrand::Rng::with_seed(seed),
            forged: None,
        })
    }

    fn later(&mut self) -> Instant {
        self.rng.u64(1..2_000) * MS
    }
}

impl World {
    pub(crate) fn begin_forging(&mut self) {
        let Some(forger) = &mut self.forger else {
            return;
        };
        self.total_losses = false;
        let at = self.now + forger.later();
        self.at(at, What::Forge);
    }

    pub(crate) fn is_forged(&self, master: usize) -> bool {
        self.forger
            .as_ref()
            .is_some_and(|forger| forger.forged == Some(master))
    }

    /// Forges the registers of a master, or repairs it.
    pub(crate) fn forge(&mut self) {
        if !self.storms() {
            return;
        }
        let Some(mut forger) = self.forger.take() else {
            return;
        };
        let next = self.now + forger.later();
        match forger.forged.take() {
            Some(master) => {
                if self.hung[master].is_none() && !self.down[master] {
                    self.count("forged registers repaired");
                    self.lose_memory(master);
                } else {
                    forger.forged = Some(master);
                }
                self.at(next, What::Forge);
            }
            None => {
                let master = forger.rng.usize(..self.masters.len());
                if self.may_lose(master) {
                    self.count("forged registers");
                    self.change_registers(master, forger.rng.bool());
                    forger.forged = Some(master);
                }
                self.at(next, What::Forge);
            }
        }
        self.forger = Some(forger);
    }

    fn change_registers(&mut self, master: usize, exhausts: bool) {
        let held = self.masters.iter().map(|master| master.registers.held).max();
        let registers = &mut self.masters[master].registers;
        if exhausts {
            (registers.counter, registers.held) = (ALMOST_EXHAUSTED, ALMOST_EXHAUSTED);
        } else {
            // The last holder did not stop its work.
            registers.clean = held.unwrap_or_default();
        }
    }
}
