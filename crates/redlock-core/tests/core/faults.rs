//! Injects faults, and ends them.

use std::time::Duration;

use redlock_core::{ClusterId, Event, Mark, Participation, ReleaseMode};

use crate::{
    rate::{Instant, MS, SECOND},
    world::{EPOCH, LONG, LONGEST, PATIENT, SHORT, STOPPING, Weather, What, World},
};

const YEAR: u64 = 365 * 86_400 * SECOND;

impl World {
    /// Begins rough weather, with a fault every few hundred milliseconds.
    pub(crate) fn storm(&mut self) {
        self.weather = Weather {
            loss: self.rng.f64() * if self.hand_overs { 0.3 } else { 0.05 },
            duplicate: self.rng.f64() * 0.05,
            slow: self.rng.f64() * 0.1,
        };
        self.at(self.now, What::Fault);
        self.begin_forging();
        self.begin_forgetting();
        self.begin_strain();
        self.at(self.now, What::Slot);
    }

    pub(crate) fn fault(&mut self) {
        if !self.storms() {
            return;
        }
        let (candidate, master) = (
            self.rng.usize(..self.candidates.len()),
            self.rng.usize(..self.masters.len()),
        );
        let fault = if self.hand_overs {
            [0, 1, 2, 8, 10, 10, 10, 10, 15, 8][self.rng.usize(..10)]
        } else {
            self.rng.u32(..20)
        };
        match fault {
            0 | 1 | 2 | 12 | 18 => self.network_fault(fault, candidate, master),
            4 | 5 | 6 | 13 | 14 | 19 => self.server_fault(fault, master),
            11 if self.rng.u32(..4) == 0 => {
                self.count("break");
                self.break_lock();
            }
            _ => self.process_fault(fault, candidate),
        }
        if self.is_fenced() {
            self.node_fault(master);
        }
        // Holders of a fenced lock need time between two faults: to wait, to mark, to start and to stop.
        let within = if self.is_fenced() { 900 } else { 300 };
        let at = self.now + later(&mut self.rng, within);
        self.at(at, What::Fault);
    }

    /// Injects a fault between a candidate and a master.
    fn network_fault(&mut self, fault: u32, candidate: usize, master: usize) {
        match fault {
            0 => {
                self.count("partition");
                self.cut[candidate][master] ^= true;
            }
            1 => {
                self.count("partition from all masters");
                let cut = self.rng.bool();
                self.cut[candidate].fill(cut);
            }
            2 => {
                self.count("lost connection");
                self.reset(candidate, master);
            }
            12 => {
                self.count("partition of replies alone");
                self.deaf[candidate][master] ^= true;
            }
            18 if self.paused[candidate] <= self.now => self.renew_connection(candidate, master),
            _ => {}
        }
    }

    /// Injects a fault of a master.
    fn server_fault(&mut self, fault: u32, master: usize) {
        match fault {
            4 if self.reachable(master) && !self.is_busy(master) => {
                self.count("hung master");
                self.hung[master] = Some(Vec::new());
                let at = self.now + later(&mut self.rng, 1_500);
                self.at(at, What::Resume { master });
            }
            5 | 6 if self.may_lose(master) => match self.rng.u32(..3) {
                0 if self.promotes => self.copy_master(master),
                0 => {
                    self.count("FLUSHALL");
                    self.lose_memory(master);
                }
                keeps => {
                    if keeps == 1 {
                        self.count("crash of a master that keeps its memory");
                    } else {
                        self.count("crash of a master without memory");
                        self.forget(master);
                    }
                    self.down[master] = true;
                    self.runs[master] += 1;
                    // Some hosts vanish with their server: then only a request shows that the connection is gone.
                    for candidate in 0..self.candidates.len() {
                        if self.rng.bool() {
                            self.reset(candidate, master);
                        }
                    }
                    let (at, run) = (self.now + later(&mut self.rng, 2_000), self.runs[master]);
                    self.at(at, What::Back { master, run });
                }
            },
            13 if self.steps => self.step_clocks(master),
            14 if self.total_losses && (self.mixed || self.rng.u32(..4) == 0) => {
                for master in 0..self.masters.len() {
                    if self.rng.u32(..4) != 0 && self.hung[master].is_none() && !self.down[master] {
                        self.lose_memory(master);
                    }
                }
            }
            19 if self.may_lose(master) && self.rng.bool() => self.replace_server(master),
            _ => {}
        }
    }

    /// Sets the clock of a master, or of all at once, by up to years, for good or for a while: a machine may boot with a
    /// wrong time, which is repaired later.
    fn step_clocks(&mut self, master: usize) {
        let longest = [5 * SECOND, 3_600 * SECOND, 10 * YEAR][self.rng.usize(..3)];
        let size = i64::try_from(self.rng.u64(MS..longest)).unwrap();
        let step = if self.rng.bool() { size } else { -size };
        let all = self.rng.u32(..4) == 0;
        let of = if all {
            0..self.masters.len()
        } else {
            master..master + 1
        };
        let steps: Vec<_> = of.map(|master| (master, step)).collect();
        if self.rng.bool() {
            let back = steps.iter().map(|(master, step)| (*master, -step)).collect();
            let at = self.now + later(&mut self.rng, 6_000);
            self.at(at, What::Step { steps: back });
        }
        self.set_clocks(&steps);
    }

    pub(crate) fn set_clocks(&mut self, steps: &[(usize, i64)]) {
        self.count(match steps {
            [_] => "clock step of a master",
            _ => "common clock step of the masters",
        });
        for (master, step) in steps {
            let offset = &mut self.masters[*master].clock.offset;
            // The clock of no machine shows a time before 1970.
            *offset = offset.saturating_add_signed(*step);
        }
    }

    /// Injects a fault of a candidate, or gives it an order.
    fn process_fault(&mut self, fault: u32, candidate: usize) {
        match fault {
            3 => {
                let nanos = later(&mut self.rng, 4_000);
                self.stop(candidate, nanos, false);
            }
            7 if self.candidates[candidate].alive() => {
                if self.rng.bool() {
                    self.count("crash of a candidate");
                    self.candidates[candidate].crash();
                } else {
                    if self.candidates[candidate].authority(self.now).is_some() {
                        self.count("death of a holder's elector");
                    }
                    self.candidates[candidate].elector_dies();
                }
            }
            8 | 16 if !self.candidates[candidate].alive() && self.paused[candidate] <= self.now => {
                self.start(candidate);
            }
            9 => {
                let first = if self.mixed { PATIENT } else { SHORT };
                let timings = [first, LONG, STOPPING][self.rng.usize(..3)];
                let mut terms = self.terms(candidate, timings);
                terms.participation = match self.rng.u32(..5) {
                    0 => Participation::Observe,
                    1 => Participation::SucceedSibling,
                    _ => Participation::Contend,
                };
                terms.ordered_delay = Duration::from_millis(self.rng.u64(..2) * 300);
                self.notify(candidate, Event::SpecChanged(terms));
            }
            10 => {
                // After a mark that all work has stopped, the candidate steps down by itself.
                if self.rng.u32(..3) == 0 && self.paused[candidate] <= self.now && !self.is_fenced() {
                    let out = self.candidates[candidate].mark(self.now, Mark::Clean, &mut self.rng);
                    self.carry(candidate, out);
                }
                let event = if self.rng.bool() {
                    Event::StepDown {
                        abstain: Duration::from_millis(self.rng.u64(..500)),
                    }
                } else {
                    self.count("reservation");
                    let to = if self.rng.bool() { "east" } else { "west" };
                    Event::HandOver {
                        to: ClusterId::new(to, to).unwrap(),
                        token: None,
                    }
                };
                self.notify(candidate, event);
            }
            15 => self.shut_down(candidate),
            17 => {
                let nanos = 500 * MS + later(&mut self.rng, 4_000);
                self.stop(candidate, nanos, true);
            }
            _ => {}
        }
    }

    /// Interrupts some renewals under way by other timings.
    pub(crate) fn interrupt_renewal(&mut self, candidate: usize) {
        if self.storms() && self.candidates[candidate].state() == Some("renewing") && self.rng.u32(..64) == 0
        {
            let timings = [SHORT, LONG, STOPPING][self.rng.usize(..3)];
            let event = Event::SpecChanged(self.terms(candidate, timings));
            let (at, life) = (self.now + self.rng.u64(..3 * MS), self.candidates[candidate].life);
            self.at(
                at,
                What::Event {
                    candidate,
                    life,
                    event,
                },
            );
        }
    }

    /// Stops a process for this time, alone or together with its clock.
    pub(crate) fn stop(&mut self, candidate: usize, nanos: u64, clock: bool) {
        if self.paused[candidate] > self.now || !self.storms() {
            return;
        }
        if clock {
            if self.candidates[candidate].alive() {
                self.stop_clock(candidate, nanos);
            }
            return;
        }
        self.paused[candidate] = self.now + nanos;
        let ends = self.candidates[candidate].authority_ends();
        if ends.is_some_and(|ends| self.now < ends && ends < self.paused[candidate]) {
            self.count("pause past the lease");
        }
    }

    /// Pauses a process whose attempt or renewal waits for replies: the process handles the replies after the pause.
    pub(crate) fn stop_amid_a_round(&mut self, candidate: usize) {
        let state = self.candidates[candidate].state();
        if !self.storms() || !matches!(state, Some("acquiring" | "renewing")) || self.rng.u32(..128) > 0 {
            return;
        }
        self.count("stop amid a round");
        let (at, life) = (self.now + self.rng.u64(..2 * MS), self.candidates[candidate].life);
        let nanos = self.rng.u64(1..2_000) * MS;
        let what = What::Stop {
            candidate,
            life,
            nanos,
        };
        self.at(at, what);
    }

    /// Interrupts some attempts under way by a shutdown: random faults rarely meet this state.
    pub(crate) fn interrupt_attempt(&mut self, candidate: usize) {
        if self.storms() && self.candidates[candidate].state() == Some("acquiring") && self.rng.u32(..64) == 0
        {
            let (at, life) = (self.now + self.rng.u64(..3 * MS), self.candidates[candidate].life);
            self.at(at, What::ShutDown { candidate, life });
        }
    }

    /// Shuts a candidate down gracefully, in whatever state it is.
    pub(crate) fn shut_down(&mut self, candidate: usize) {
        let state = self.candidates[candidate].state();
        let Some(fault) = state.and_then(shutdown_while) else {
            return;
        };
        // A shutdown that a pause delayed beyond the storm would leave no candidate to enter.
        if self.paused[candidate] > self.now || !self.storms() {
            return;
        }
        self.count(fault);
        let release_mode =
            [ReleaseMode::Release, ReleaseMode::Reserve, ReleaseMode::Abandon][self.rng.usize(..3)];
        let out = self.candidates[candidate].event(self.now, Event::Shutdown(release_mode), &mut self.rng);
        self.carry(candidate, out);
    }

    /// Lets candidates that run claim the slot that was due last, repeatedly, each for the Job of its own
    /// cluster.
    pub(crate) fn slot(&mut self) {
        const EVERY: u64 = 250 * MS;
        const SECONDS: u64 = 10;
        let slot = (EPOCH + self.now) / (SECONDS * SECOND) * SECONDS;
        for candidate in 0..self.candidates.len() {
            // A process that stands still claims nothing.
            if self.rng.u32(..4) == 0 && self.paused[candidate] <= self.now {
                let job = u32::try_from(candidate % 2).unwrap();
                // A Job that waited since the previous slot claims that one in the same call.
                let slots = [(slot, Some(job)), (slot - SECONDS, Some(job))];
                let slots = &slots[..1 + usize::from(self.rng.bool())];
                let out = self.candidates[candidate].claim(self.now, slots, &mut self.rng);
                self.carry(candidate, out);
            }
        }
        if self.storms() {
            let at = self.now + EVERY;
            self.at(at, What::Slot);
        }
    }

    pub(crate) fn storms(&self) -> bool {
        self.weather.slow > 0.0
    }

    /// Reports whether the master may lose its vote: no more than f masters at a time are without one.
    pub(crate) fn may_lose(&self, master: usize) -> bool {
        let without = (0..self.masters.len())
            .filter(|m| self.down[*m] || !self.masters[*m].sealed || self.is_unfit(*m));
        without.count() < self.size.tolerated() && self.hung[master].is_none() && !self.down[master]
    }

    fn break_lock(&mut self) {
        let longest_ms = u64::try_from(LONGEST.as_millis()).unwrap();
        for master in 0..self.masters.len() {
            if !self.down[master] && self.hung[master].is_none() {
                self.masters[master].run(self.now, u64::MAX, &crate::master::Op::Break { longest_ms });
            }
        }
    }
}

/// Returns a random time below this number of milliseconds.
fn later(rng: &mut fastrand::Rng, ms: u64) -> Instant {
    rng.u64(1..ms) * MS
}

/// Returns the fault that a shutdown in this state of the machine counts as.
fn shutdown_while(state: &str) -> Option<&'static str> {
    Some(match state {
        "waiting" => "shutdown while waiting",
        "observing" => "shutdown while observing",
        "acquiring" => "shutdown while acquiring",
        "active" => "shutdown while active",
        "renewing" => "shutdown while renewing",
        "ending" => "shutdown while ending",
        _ => return None,
    })
}
