//! A master that lost its memory, until it is sealed again.

use redlock::lease::timing;

use super::{ACQUIRE_LIMIT, LONGEST, What, World, nanos};
use crate::{master::Plant, rate::MS};

impl World {
    pub(crate) fn lose_memory(&mut self, master: usize) {
        self.masters[master].forget();
        let run = self.masters[master].run;
        // The observer's clock may be the fastest that is allowed.
        let wait = nanos(timing::seal_wait(LONGEST, ACQUIRE_LIMIT)) * 1_000 / 1_005;
        let wait = if self.plant == Plant::SealWithoutWaiting {
            MS
        } else {
            wait
        };
        self.at(self.now + wait, What::ReadFloor { master, run });
    }

    pub(super) fn read_floor(&mut self, master: usize, run: u64) {
        if self.masters[master].run != run {
            return;
        }
        let mut others: Vec<usize> = (0..self.masters.len())
            .filter(|m| *m != master && self.masters[*m].sealed && !self.down[*m] && self.hung[*m].is_none())
            .collect();
        if others.len() < self.size.majority() {
            return self.at(self.now + 100 * MS, What::ReadFloor { master, run });
        }
        self.rng.shuffle(&mut others);
        let floor = others[..self.size.majority()]
            .iter()
            .map(|m| self.masters[*m].counter)
            .max();
        let at = self.now + self.rng.u64(..nanos(ACQUIRE_LIMIT));
        self.at(
            at,
            What::Seal {
                master,
                run,
                floor: floor.unwrap_or(0),
            },
        );
    }
}
