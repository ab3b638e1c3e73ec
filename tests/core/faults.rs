//! What goes wrong: in the network, at masters and candidates; and the bugs that are planted.

use std::{collections::BTreeSet, time::Duration};

use redlock::lease::{Event, Participation, timing};

use super::{
    candidate::{cluster, terms},
    clock::MS,
    world::{ACQUIRE_LIMIT, Happening, LEASE, LONGEST, World},
};

/// Each lives in the driver or in the model of a master, never in the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    NoDrift,
    NoConfirm,
    ResealWithoutWaiting,
    MasterVotesTwice,
    FailedRenewalDeletes,
    RenewalAfterTheEnd,
}

#[derive(Debug)]
pub struct Network {
    rough: bool,
    cuts: BTreeSet<(usize, usize)>,
}

impl Network {
    pub fn rough() -> Self {
        Self {
            rough: true,
            cuts: BTreeSet::new(),
        }
    }

    pub fn calm() -> Self {
        Self {
            rough: false,
            cuts: BTreeSet::new(),
        }
    }

    pub fn delay(&self, rng: &mut fastrand::Rng) -> u64 {
        match rng.u8(..) {
            0..8 if self.rough => rng.u64(0..400 * MS),
            8..40 if self.rough => rng.u64(0..40 * MS),
            _ => rng.u64(MS / 10..MS),
        }
    }

    pub fn loses(&self, rng: &mut fastrand::Rng) -> bool {
        self.rough && rng.u8(..) < 5
    }

    pub fn repeats(&self, rng: &mut fastrand::Rng) -> bool {
        self.rough && rng.u8(..) < 5
    }

    pub fn cut(&self, candidate: usize, master: usize) -> bool {
        self.cuts.contains(&(candidate, master))
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    Next,
    Up { master: usize, run: u32 },
    ReadFloor { master: usize, run: u32 },
    Seal { master: usize, run: u32, floor: u64 },
    Begin { candidate: usize },
    Join { candidate: usize, master: usize },
}

impl World {
    pub fn trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Next if self.now < self.calm => {
                self.something();
                let pause = self.rng.u64(50 * MS..1_500 * MS);
                self.later(pause, Happening::Trouble(Trouble::Next));
            }
            Trouble::Next => {}
            Trouble::Up { master, run } if self.masters[master].run == run => self.up(master, run),
            Trouble::ReadFloor { master, run } if self.masters[master].run == run => {
                self.read_floor(master, run);
            }
            Trouble::Seal { master, run, floor } if self.masters[master].run == run => {
                let m = &mut self.masters[master];
                m.counter = m.counter.max(floor);
                m.sealed = true;
            }
            Trouble::Up { .. } | Trouble::ReadFloor { .. } | Trouble::Seal { .. } => {}
            Trouble::Begin { candidate } => {
                if !self.candidates[candidate].alive {
                    let size = self.size;
                    self.candidates[candidate].begin(terms(candidate, LEASE), size);
                    self.open(candidate);
                    self.event(candidate, Event::TimerFired);
                }
            }
            Trouble::Join { candidate, master } => {
                self.network.cuts.remove(&(candidate, master));
            }
        }
    }

    fn something(&mut self) {
        let master = self.rng.usize(..self.masters.len());
        let candidate = self.rng.usize(..self.candidates.len());
        let long = self.rng.u64(MS..6_000 * MS);
        let alive = self.candidates[candidate].alive;
        match self.rng.u8(..13) {
            0 | 1 => self.restart(master, true),
            2 => self.restart(master, false),
            3 => self.masters[master].hung_until = self.now + long / 2,
            4 | 5 => self.candidates[candidate].paused_until = self.now + long,
            6 => self.candidates[candidate].reconnect(master),
            7 => {
                self.network.cuts.insert((candidate, master));
                self.later(long, Happening::Trouble(Trouble::Join { candidate, master }));
            }
            8 => {
                self.candidates[candidate].alive = false;
                self.later(long, Happening::Trouble(Trouble::Begin { candidate }));
            }
            9 if alive => self.new_terms(candidate),
            10 if alive => {
                let abstain = Duration::from_nanos(long / 2);
                self.event(candidate, Event::StepDown { abstain });
            }
            11 if alive => {
                let to = cluster(self.rng.usize(..2));
                self.event(candidate, Event::HandOver { to });
            }
            12 if self.rng.bool() => {
                let longest = u64::try_from(LONGEST.as_millis()).unwrap();
                for master in &mut self.masters {
                    master.reserve_for_nobody(longest, self.now);
                }
            }
            _ if alive => {
                self.event(candidate, Event::Shutdown);
                self.later(long, Happening::Trouble(Trouble::Begin { candidate }));
            }
            _ => {}
        }
    }

    fn new_terms(&mut self, candidate: usize) {
        let lease = Duration::from_millis(self.rng.u64(2_000..=6_000));
        let mut terms = terms(candidate, lease);
        terms.participation = match self.rng.u8(..6) {
            0 => Participation::Observe,
            1 => Participation::SucceedSibling,
            _ => Participation::Contend,
        };
        terms.ordered_delay = Duration::from_millis(self.rng.u64(..2) * 500);
        self.event(candidate, Event::SpecChanged(terms));
    }

    /// Never so many at once that no majority is sealed: what is left then is not for the lease to decide.
    fn restart(&mut self, master: usize, forget: bool) {
        let others = self.masters.iter().enumerate().filter(|(m, _)| *m != master);
        if others.filter(|(_, m)| !m.sealed).count() >= self.size.tolerated() {
            return;
        }
        let m = &mut self.masters[master];
        m.restart(forget);
        m.down = true;
        m.hung_until = 0;
        let run = m.run;
        let away = self.rng.u64(MS..2_000 * MS);
        self.later(away, Happening::Trouble(Trouble::Up { master, run }));
    }

    fn up(&mut self, master: usize, run: u32) {
        self.masters[master].down = false;
        let wait = match self.bug {
            Some(Bug::ResealWithoutWaiting) => Duration::ZERO,
            _ => timing::seal_wait(LONGEST, ACQUIRE_LIMIT),
        };
        let observer = self.candidates[self.rng.usize(..self.candidates.len())].clock;
        let over = observer.when(observer.nanos(self.now) + u64::try_from(wait.as_nanos()).unwrap());
        self.at(over, Happening::Trouble(Trouble::ReadFloor { master, run }));
    }

    /// The greatest counter of f+1 sealed masters that answer.
    fn floor_of_others(&self, master: usize) -> Option<u64> {
        let now = self.now;
        let others = self.masters.iter().enumerate().filter(|(m, _)| *m != master);
        let counters: Vec<u64> = others
            .filter(|(_, m)| m.sealed && !m.down && m.hung_until <= now)
            .map(|(_, m)| m.counter)
            .take(self.size.majority())
            .collect();
        (counters.len() >= self.size.majority())
            .then(|| counters.into_iter().max())
            .flatten()
    }

    fn read_floor(&mut self, master: usize, run: u32) {
        let Some(floor) = self.floor_of_others(master) else {
            let again = Happening::Trouble(Trouble::ReadFloor { master, run });
            return self.later(100 * MS, again);
        };
        let delay = self.rng.u64(..50 * MS);
        self.later(delay, Happening::Trouble(Trouble::Seal { master, run, floor }));
    }

    /// Everything works again, and everybody contends.
    pub fn calm_down(&mut self) {
        self.network = Network::calm();
        for master in &mut self.masters {
            master.hung_until = 0;
        }
        for candidate in 0..self.candidates.len() {
            self.candidates[candidate].paused_until = 0;
            if self.candidates[candidate].alive {
                let terms = terms(candidate, LEASE);
                self.event(candidate, Event::SpecChanged(terms));
            }
        }
    }
}
