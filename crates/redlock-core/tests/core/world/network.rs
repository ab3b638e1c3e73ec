//! The network between candidates and masters, and the sockets of a stopped master.

use std::time::Duration;

use redlock_core::{Event, Mark, MasterFacts, Reply, Transmit};

use super::{Answer, Answered, Call, Request, What, World};
use crate::{
    candidate::Polled,
    checks::deleted,
    master::{self, Master, Op},
    rate::{Instant, MS},
    scripts::{self, Named},
};

/// The time for which a candidate waits for a connection.
const PATIENCE: u64 = 1_000 * MS;

/// The time after the deadline of a command at which a write counts as late.
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
        let life = self.candidates[candidate].life;
        let at = self.now + self.delay();
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

    pub(super) fn dispatch(&mut self, candidate: usize, (master, connection): (usize, u32), call: Call) {
        let run = self.opened[candidate][master];
        if self.down[master] || self.runs[master] != run {
            return self.reset(candidate, master);
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

    pub(super) fn arrive(&mut self, master: usize, request: Request) {
        if self.down[master] || self.runs[master] != request.run {
            return;
        }
        if let Some(waiting) = &mut self.hung[master] {
            return waiting.push(request);
        }
        let Request {
            candidate,
            life,
            connection,
            run,
            sent_at,
            ..
        } = request;
        let answer = match &request.call {
            Call::Poll(number) => {
                let polled = Polled {
                    time: self.masters[master].micros(self.now),
                    facts: self.facts(candidate, master),
                };
                Answer::Poll(*number, Box::new(polled))
            }
            Call::Script { transmit, deadline } => {
                let reply = self.run_script(candidate, transmit, *deadline);
                self.check_mark(master);
                Answer::Script(transmit.id, reply)
            }
        };
        if self.cut[candidate][master] || self.deaf[candidate][master] || self.rng.f64() < self.weather.loss {
            return self.count("lost reply");
        }
        let at = self.now + self.delay();
        let answered = Answered {
            candidate,
            life,
            connection,
            master,
            run,
            sent_at,
            answer,
        };
        if self.rng.f64() < self.weather.duplicate {
            let (twice, at) = (Box::new(answered.clone()), at + self.delay());
            self.at(at, What::Answers(twice));
        }
        self.at(at, What::Answers(Box::new(answered)));
    }

    /// Returns the facts of the server that this candidate reaches under the name of the master.
    pub(crate) fn facts(&self, candidate: usize, master: usize) -> MasterFacts {
        if let (Some(twin), 0, true) = (&self.twin, master, self.candidates[candidate].reaches_twin()) {
            let fingerprint = Some(self.fingerprint(Named::Quorum));
            return scripts::facts("twin".into(), twin.sealed, fingerprint, twin.registers.counter);
        }
        self.facts_of(master)
    }

    pub(super) fn facts_of(&self, master: usize) -> MasterFacts {
        let (server, run) = (&self.masters[master], self.runs[master]);
        let facts = scripts::facts(
            format!("{master}.{run}"),
            server.sealed,
            self.stamps[master].map(|named| self.fingerprint(named)),
            server.registers.counter,
        );
        MasterFacts {
            probe: server.probe.clone(),
            ..facts
        }
    }

    /// Returns the text of a fingerprint, as a master shows it.
    fn fingerprint(&self, named: Named) -> String {
        self.fingerprints[named as usize].to_string()
    }

    /// Runs one script call: all members at one instant, each by itself.
    fn run_script(&mut self, candidate: usize, transmit: &Transmit, deadline: Instant) -> Reply {
        let (master, now) = (transmit.id.master, self.now);
        if self.masters[master].micros(now) > transmit.not_after {
            self.count("late ghost");
        }
        let server = &self.masters[master];
        if server.sealed && self.stamps[master] != Some(self.candidates[candidate].names) {
            return scripts::foreign(server.micros(now));
        }
        let twin = master == 0 && self.twin.is_some() && self.candidates[candidate].reaches_twin();
        let mut replies = Vec::with_capacity(transmit.members.len());
        let mut sealed = true;
        for member in &transmit.members {
            let by = &self.candidates[candidate];
            let floor = by.floor(transmit.payload.floor);
            let op = scripts::op(transmit, *member, |attempt| by.value(attempt), floor);
            let server = match &mut self.twin {
                Some(twin_server) if twin => twin_server,
                _ => &mut self.masters[master],
            };
            let before = server.clone();
            sealed = server.sealed;
            let reply = server.run(now, transmit.not_after, &op);
            self.check_run(master, twin, (&before, &op), deadline);
            if let (
                Op::Mark {
                    token,
                    mark: Mark::Clean,
                    ..
                },
                master::Answer::Done,
            ) = (&op, &reply.answer)
            {
                self.checks.clean(*token);
            }
            if reply.published {
                self.publish(master);
            }
            replies.push(reply);
        }
        scripts::reply(&replies, sealed)
    }

    fn check_run(&mut self, master: usize, twin: bool, (before, op): (&Master, &Op), deadline: Instant) {
        let server = match &self.twin {
            Some(twin_server) if twin => twin_server,
            _ => &self.masters[master],
        };
        let counted = (0..self.candidates.len()).filter(|c| !self.is_excused(*c));
        let deletes = deleted(before, server, self.now, counted.map(|c| &self.candidates[c]));
        // Rates differ by a little, and the last poll of the clock may be old.
        let late = self.now > deadline + LATE && server.differs(before);
        if deletes {
            let how = format!("master {master}: {op:?} deleted a lease that is held");
            self.checks.fail("S6", self.now, how);
        }
        if late {
            let how = format!("master {master}: {op:?} came late and wrote");
            self.checks.fail("S5", self.now, how);
        }
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
            Answer::Script(id, reply) => by.on_reply(self.now, (id, connection), reply, &mut self.rng),
        };
        self.carry(candidate, out);
        // The clock of a server that is gone is not a witness.
        if taken && run == self.runs[master] {
            self.record_reply(candidate, master, sent_at);
        }
    }

    pub(super) fn publish(&mut self, master: usize) {
        for candidate in 0..self.candidates.len() {
            let connected = self.candidates[candidate].connection(master).is_some()
                && self.opened[candidate][master] == self.runs[master];
            if connected && !self.cut[candidate][master] && self.rng.f64() >= self.weather.loss {
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

    /// Resumes a stopped server: it runs the requests in its sockets, in order on each connection and in any
    /// order across connections.
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
