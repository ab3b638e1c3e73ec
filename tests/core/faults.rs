//! What goes wrong, and its end.

use std::time::Duration;

use redlock::lease::{ClusterId, Event, Participation};

use crate::{
    rate::MS,
    world::{CALM, LONG, LONGEST, SHORT, Weather, What, World},
};

impl World {
    /// Rough weather, and a fault every few hundred milliseconds.
    pub(crate) fn storm(&mut self) {
        self.weather = Weather {
            loss: self.rng.f64() * 0.05,
            duplicate: self.rng.f64() * 0.05,
            slow: self.rng.f64() * 0.1,
        };
        self.at(self.now, What::Fault);
    }

    pub(crate) fn fault(&mut self) {
        if self.weather.slow <= 0.0 {
            return;
        }
        let (candidate, master) = (
            self.rng.usize(..self.candidates.len()),
            self.rng.usize(..self.masters.len()),
        );
        let later = |rng: &mut fastrand::Rng, ms: u64| rng.u64(1..ms) * MS;
        match self.rng.u32(..12) {
            0 => self.cut[candidate][master] ^= true,
            1 => {
                let cut = self.rng.bool();
                self.cut[candidate].fill(cut);
            }
            2 => self.candidates[candidate].connections[master] += 1,
            3 if self.paused[candidate] <= self.now => {
                self.paused[candidate] = self.now + later(&mut self.rng, 4_000);
            }
            4 if self.hung[master].is_none() && !self.down[master] => {
                self.hung[master] = Some(Vec::new());
                let at = self.now + later(&mut self.rng, 1_500);
                self.at(at, What::Resume { master });
            }
            5 | 6 => {
                let unsealed = self.masters.iter().filter(|m| !m.sealed).count();
                if unsealed < self.size.tolerated() && self.hung[master].is_none() {
                    self.down[master] ^= true;
                    if self.down[master] || self.rng.bool() {
                        self.lose_memory(master);
                        self.down[master] = false;
                    }
                }
            }
            7 => self.candidates[candidate].crash(),
            8 if !self.candidates[candidate].alive() => self.start(candidate),
            9 => {
                let timings = if self.rng.bool() { SHORT } else { LONG };
                let mut terms = self.terms(candidate, timings);
                terms.participation = match self.rng.u32(..5) {
                    0 => Participation::Observe,
                    1 => Participation::SucceedSibling,
                    _ => Participation::Contend,
                };
                terms.ordered_delay = Duration::from_millis(self.rng.u64(..2) * 300);
                self.tell(candidate, Event::SpecChanged(terms));
            }
            10 => {
                let event = if self.rng.bool() {
                    Event::StepDown {
                        abstain: Duration::from_millis(self.rng.u64(..500)),
                    }
                } else {
                    let to = if self.rng.bool() { "east" } else { "west" };
                    Event::HandOver {
                        to: ClusterId::new(to, "uid").unwrap(),
                        token: None,
                    }
                };
                self.tell(candidate, event);
            }
            11 if self.rng.u32(..4) == 0 => self.break_lock(),
            _ => {}
        }
        let at = self.now + later(&mut self.rng, 300);
        self.at(at, What::Fault);
    }

    fn break_lock(&mut self) {
        let longest_ms = u64::try_from(LONGEST.as_millis()).unwrap();
        for master in 0..self.masters.len() {
            if !self.down[master] && self.hung[master].is_none() {
                self.masters[master].run(self.now, u64::MAX, &crate::master::Op::Break { longest_ms });
            }
        }
    }

    /// Everything heals, but for up to f masters that stay down or hung; everybody contends.
    pub(crate) fn calm(&mut self) {
        self.weather = CALM;
        // What reached a stopped process is still to be taken, in the order of its arrival.
        let resumed = self.paused.iter().copied().max().unwrap_or(0).max(self.now) + MS;
        self.run_until(resumed);
        for master in 0..self.masters.len() {
            self.down[master] = false;
            self.resume(master);
        }
        let unsealed = self.masters.iter().filter(|m| !m.sealed).count();
        let sealed: Vec<usize> = (0..self.masters.len())
            .filter(|m| self.masters[*m].sealed)
            .collect();
        for master in sealed.into_iter().take(self.size.tolerated() - unsealed) {
            match self.rng.u32(..3) {
                0 => self.down[master] = true,
                1 => self.hung[master] = Some(Vec::new()),
                _ => {}
            }
        }
        for candidate in 0..self.candidates.len() {
            self.cut[candidate].fill(false);
            if self.candidates[candidate].alive() {
                let terms = self.terms(candidate, SHORT);
                self.tell(candidate, Event::SpecChanged(terms));
                self.tell(candidate, Event::QuorumBack);
            } else {
                self.start(candidate);
            }
        }
    }
}
