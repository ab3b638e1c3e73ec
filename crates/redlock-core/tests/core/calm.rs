//! Ends the faults.

use redlock_core::Event;

use crate::{
    rate::MS,
    world::{CALM, SHORT, World},
};

impl World {
    /// Repairs everything, except for up to f masters that stay down or hung; all candidates contend.
    pub(crate) fn calm(&mut self) {
        self.weather = CALM;
        self.calm_strain();
        // The messages that reached a stopped process are still to be taken, in the order of their arrival.
        let resumed = self.paused.iter().copied().max().unwrap_or(0).max(self.now) + MS;
        self.run_until(resumed);
        for master in 0..self.masters.len() {
            if self.down[master] {
                self.back(master, self.runs[master]);
            }
            self.resume(master);
        }
        let unsealed = (0..self.masters.len()).filter(|m| !self.masters[*m].sealed || self.is_unfit(*m));
        let unsealed = unsealed.count();
        let sealed: Vec<usize> = (0..self.masters.len())
            .filter(|m| self.masters[*m].sealed && !self.is_unfit(*m))
            .collect();
        for master in sealed
            .into_iter()
            .take(self.size.tolerated().saturating_sub(unsealed))
        {
            match self.rng.u32(..3) {
                0 => self.down[master] = true,
                1 if !self.is_busy(master) => self.hung[master] = Some(Vec::new()),
                _ => self.stay_full(master),
            }
        }
        for candidate in 0..self.candidates.len() {
            self.cut[candidate].fill(false);
            self.deaf[candidate].fill(false);
            if self.candidates[candidate].alive() && !self.candidates[candidate].leaving {
                let terms = self.terms(candidate, SHORT);
                self.notify(candidate, Event::SpecChanged(terms));
                self.notify(candidate, Event::QuorumBack);
            } else {
                self.start(candidate);
            }
        }
    }
}
