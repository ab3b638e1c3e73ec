//! The network between candidates and masters.

use std::time::Duration;

use redlock_core::{Event, Mark};

use super::{Answer, Answered, Call, Request, What, World};
use crate::{
    rate::{Instant, MS},
    strain::Fate,
};

/// The time for which a candidate waits for a connection.
const PATIENCE: u64 = 1_000 * MS;

impl World {
    pub(super) fn delay(&mut self) -> u64 {
        let slow = self.rng.f64() < self.weather.slow;
        let micros = if slow {
            self.count("delay");
            self.rng.u64(1_000..300_000)
        } else {
            self.rng.u64(50..1_500)
        };
        micros * 1_000
    }

    /// Marks the lease of the candidate, with some takeover delay for other clusters.
    pub(super) fn declare(&mut self, candidate: usize) {
        let delay = Duration::from_secs(self.delays.u64(1..4) * 20);
        let out = self.candidates[candidate].mark(self.now, Mark::Held { delay }, &mut self.rng);
        self.carry(candidate, out);
    }

    /// Lets a candidate try to connect. A server that is gone refuses; for a server that does not answer, the attempt
    /// takes long to fail.
    pub(super) fn open(&mut self, candidate: usize, master: usize) {
        let silent =
            self.cut[candidate][master] || self.deaf[candidate][master] || self.hung[master].is_some();
        let (delay, run) = if self.down[master] {
            (self.delay(), None)
        } else if silent || self.rng.f64() < self.weather.loss {
            (PATIENCE, None)
        } else {
            (self.delay() * 2, Some(self.runs[master]))
        };
        let life = self.candidates[candidate].life;
        let what = What::Opened {
            candidate,
            life,
            master,
            run,
        };
        self.at(self.now + delay, what);
    }

    pub(super) fn opened(&mut self, candidate: usize, master: usize, run: Option<u64>) {
        let opened = run == Some(self.runs[master]) && !self.down[master];
        self.opened[candidate][master] = self.runs[master];
        let out = self.candidates[candidate].on_opened(self.now, master, opened, &mut self.rng);
        self.carry(candidate, out);
    }

    /// Loses a connection. Both sides learn of the loss soon.
    pub(crate) fn reset(&mut self, candidate: usize, master: usize) {
        let Some(connection) = self.candidates[candidate].connection(master) else {
            return;
        };
        let at = self.now + self.delay();
        self.reset_at(at, candidate, (master, connection));
    }

    fn reset_at(&mut self, at: Instant, candidate: usize, (master, connection): (usize, u32)) {
        let life = self.candidates[candidate].life;
        let what = What::Reset {
            candidate,
            life,
            master,
            connection,
        };
        self.at(at, what);
    }

    /// Gives a candidate other credentials: another connection replaces the present one.
    pub(crate) fn renew_connection(&mut self, candidate: usize, master: usize) {
        let run = self.opened[candidate][master] == self.runs[master];
        let linked = !self.cut[candidate][master] && !self.deaf[candidate][master];
        if run && linked && self.reachable(master) && self.candidates[candidate].connection(master).is_some()
        {
            self.count("renewed connection");
            let facts = self.facts(candidate, master);
            let out = self.candidates[candidate].replace(self.now, master, facts, &mut self.rng);
            self.carry(candidate, out);
        }
    }

    pub(crate) fn dispatch(&mut self, candidate: usize, (master, connection): (usize, u32), call: Call) {
        let run = self.opened[candidate][master];
        if self.down[master] || self.runs[master] != run {
            return self.reset(candidate, master);
        }
        if let Call::Script { transmit, .. } = &call {
            let fate = self.fate(master, transmit.payload.operation);
            if fate != Fate::Kept {
                self.reset_at(self.now, candidate, (master, connection));
            }
            if fate == Fate::Lost {
                return;
            }
        }
        if self.cut[candidate][master] || self.rng.f64() < self.weather.loss {
            self.count("lost request");
            // Lost bytes may mean a lost connection.
            let connected = self.candidates[candidate].connection(master).is_some()
                && self.opened[candidate][master] == self.runs[master];
            if connected
                && !self.cut[candidate][master]
                && self.rng.u32(..if self.hand_overs { 8 } else { 2 }) == 0
            {
                self.reset(candidate, master);
            }
            return;
        }
        let request = Request {
            candidate,
            life: self.candidates[candidate].life,
            connection,
            run,
            sent_at: self.now,
            call,
        };
        if self.rng.f64() < self.weather.duplicate && matches!(request.call, Call::Script { .. }) {
            self.count("duplicate");
            let at = self.now + self.delay() * 2;
            let request = request.clone();
            self.at(at, What::Arrives { master, request });
        }
        let delay = self.delay();
        let last = self.arrivals.entry((candidate, master, connection)).or_default();
        *last = (*last + 1).max(self.now + delay);
        let at = *last;
        let before = (candidate, master, 0)..(candidate, master, connection);
        if self.arrivals.range(before).any(|(_, last)| *last > at) {
            self.count("overtaken on a new connection");
        }
        self.at(at, What::Arrives { master, request });
    }

    pub(super) fn answered(&mut self, answered: Answered) {
        let Answered {
            candidate,
            connection,
            master,
            run,
            sent_at,
            answer,
            ..
        } = answered;
        let by = &mut self.candidates[candidate];
        let (taken, out) = match answer {
            Answer::Poll(number, polled) => by.on_polled(self.now, (master, number), *polled, &mut self.rng),
            Answer::Script { id, script, result } => {
                let shows_time = result.is_ok();
                let (taken, out) = by.on_reply(self.now, (id, connection), result, &mut self.rng);
                if shows_time {
                    self.script_ran(candidate, (id, connection), script);
                }
                (taken && shows_time, out)
            }
            Answer::NoScript { transmit, deadline } => {
                return self.send_text((candidate, connection), transmit, deadline);
            }
        };
        self.carry(candidate, out);
        // The clock of a server that is gone is not a witness.
        if taken && run == self.runs[master] {
            self.record_reply(candidate, master, sent_at);
        }
    }

    /// Reports whether a message of the master reaches a candidate.
    pub(super) fn is_told_by(&mut self, candidate: usize, master: usize) -> bool {
        let connected = self.candidates[candidate].connection(master).is_some()
            && self.opened[candidate][master] == self.runs[master];
        connected && !self.cut[candidate][master] && self.rng.f64() >= self.weather.loss
    }

    pub(super) fn publish(&mut self, master: usize) {
        for candidate in 0..self.candidates.len() {
            if self.is_told_by(candidate, master) {
                let (at, life) = (self.now + self.delay(), self.candidates[candidate].life);
                self.at(
                    at,
                    What::Event {
                        candidate,
                        life,
                        event: Event::Released { master },
                    },
                );
            }
        }
    }
}
