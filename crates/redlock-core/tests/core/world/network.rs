//! The way between candidates and masters, and the sockets of a stopped master.

use std::time::Duration;

use redlock_core::{Event, Mark};

use super::{Request, What, World};
use crate::{
    candidate::Candidate,
    checks::deleted,
    master::{Answer, Op},
    rate::MS,
};

/// Beyond the deadline of a command.
const LATE: u64 = 500 * MS;

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

    /// The candidate marks its lease, with some delay that other clusters shall wait.
    pub(super) fn declare(&mut self, candidate: usize) {
        let delay = Duration::from_secs(self.delays.u64(1..4) * 20);
        let out = self.candidates[candidate].mark(self.now, Mark::Held { delay });
        self.carry(candidate, out);
    }

    pub(super) fn dispatch(&mut self, master: usize, request: Request) {
        let candidate = request.candidate;
        if self.down[master] {
            return self.at(
                self.now,
                What::Answers {
                    master,
                    request,
                    reply: None,
                },
            );
        }
        if self.cut[candidate][master] || self.rng.f64() < self.weather.loss {
            self.count("lost request");
            // Lost bytes are a lost connection.
            if self.rng.bool() {
                self.candidates[candidate].connections[master] += 1;
            }
            return;
        }
        if self.rng.f64() < self.weather.duplicate {
            self.count("duplicate");
            let at = self.now + self.delay() * 2;
            self.at(
                at,
                What::Arrives {
                    master,
                    request: request.clone(),
                },
            );
        }
        let delay = self.delay();
        let last = self
            .arrivals
            .entry((candidate, master, request.connection))
            .or_default();
        *last = (*last + 1).max(self.now + delay);
        let at = *last;
        let before = (candidate, master, 0)..(candidate, master, request.connection);
        if self.arrivals.range(before).any(|(_, last)| *last > at) {
            self.count("overtaken on a new connection");
        }
        self.at(at, What::Arrives { master, request });
    }

    pub(super) fn arrive(&mut self, master: usize, request: Request) {
        if self.down[master] {
            return;
        }
        if let Some(waiting) = &mut self.hung[master] {
            return waiting.push(request);
        }
        if self.masters[master].micros(self.now) > request.not_after {
            self.count("late ghost");
        }
        let server = match &mut self.twin {
            Some(twin) if master == 0 && self.candidates[request.candidate].reaches_twin() => twin,
            _ => &mut self.masters[master],
        };
        let before = server.clone();
        let reply = server.run(self.now, request.not_after, &request.op);
        let after = server.clone();
        let counted = (0..self.candidates.len()).filter(|c| !self.is_excused(*c));
        let counted: Vec<&Candidate> = counted.map(|c| &self.candidates[c]).collect();
        if deleted(&before, &after, self.now, &counted) {
            self.checks.fail(
                "S6",
                self.now,
                format!("master {master}: {:?} deleted a lease that is held", request.op),
            );
        }
        // Rates differ by a little, and the last look at the clock may be old.
        if self.now > request.deadline + LATE && after.differs(&before) {
            let how = format!("master {master}: {:?} came late and wrote", request.op);
            self.checks.fail("S5", self.now, how);
        }
        if let (
            Op::Mark {
                token,
                mark: Mark::Clean,
                ..
            },
            Answer::Done,
        ) = (&request.op, &reply.answer)
        {
            self.checks.clean(*token);
        }
        if reply.published {
            self.publish(master);
        }
        let candidate = request.candidate;
        if self.cut[candidate][master] || self.deaf[candidate][master] || self.rng.f64() < self.weather.loss {
            return self.count("lost reply");
        }
        let at = self.now + self.delay();
        if self.rng.f64() < self.weather.duplicate {
            let (request, reply, at) = (request.clone(), Some(reply.clone()), at + self.delay());
            self.at(
                at,
                What::Answers {
                    master,
                    request,
                    reply,
                },
            );
        }
        self.at(
            at,
            What::Answers {
                master,
                request,
                reply: Some(reply),
            },
        );
    }

    pub(super) fn publish(&mut self, master: usize) {
        for candidate in 0..self.candidates.len() {
            if !self.cut[candidate][master] && self.rng.f64() >= self.weather.loss {
                let (at, life) = (self.now + self.delay(), self.candidates[candidate].life);
                self.at(
                    at,
                    What::Tell {
                        candidate,
                        life,
                        event: Event::Released { master },
                    },
                );
            }
        }
    }

    /// A server that was stopped runs what waits in its sockets, in order on each connection and in any between.
    pub(crate) fn resume(&mut self, master: usize) {
        let mut waiting = self.hung[master].take().unwrap_or_default();
        while !waiting.is_empty() {
            let pick = self.rng.usize(..waiting.len());
            let of = |r: &Request| (r.candidate, r.connection);
            let connection = of(&waiting[pick]);
            let first = waiting.iter().position(|r| of(r) == connection).unwrap_or(pick);
            let request = waiting.remove(first);
            self.arrive(master, request);
        }
    }
}
