//! The work of a master: it runs requests, those in its sockets after a stop as well.

use redlock_core::{Mark, MasterFacts, Operation, Reply, Transmit, Unknown};

use super::{Answer, Answered, Call, Request, What, World};
use crate::{
    candidate::{Polled, SECOND},
    checks::deleted,
    master::{self, Master, Op},
    rate::{Instant, MS},
    scripts::{self, Named},
    strain::Service,
};

/// The time after the deadline of a command at which a write counts as late.
const LATE: u64 = 500 * MS;

impl World {
    pub(super) fn arrive(&mut self, master: usize, request: Request) {
        if self.down[master] || self.runs[master] != request.run {
            return;
        }
        if let Some(waiting) = &mut self.hung[master] {
            return waiting.push(request);
        }
        match self.service(master) {
            Service::AtOnce => self.serve(master, request, self.now),
            Service::EffectAt(at) => self.at(at, What::Served { master, request }),
            Service::AnswerAt(at) => self.serve(master, request, at),
        }
    }

    /// Runs a request. Its answer leaves the master at `answers`.
    pub(super) fn serve(&mut self, master: usize, request: Request, answers: Instant) {
        if self.down[master] || self.runs[master] != request.run {
            return;
        }
        let Request {
            candidate,
            life,
            connection,
            run,
            sent_at,
            call,
        } = request;
        let answer = match call {
            Call::Poll(number) => {
                let polled = Polled {
                    time: self.masters[master].micros(self.now),
                    facts: self.facts(candidate, master),
                };
                Answer::Poll(number, Box::new(polled))
            }
            Call::Script {
                transmit,
                deadline,
                text,
            } if !self.knows_script(&transmit, text) => Answer::NoScript { transmit, deadline },
            Call::Script {
                transmit, deadline, ..
            } => {
                let result = self.run_script(candidate, &transmit, deadline);
                self.check_mark(master);
                Answer::Script {
                    id: transmit.id,
                    script: transmit.payload.script().name,
                    result,
                }
            }
        };
        if self.cut[candidate][master] || self.deaf[candidate][master] || self.rng.f64() < self.weather.loss {
            return self.count("lost reply");
        }
        let at = answers + self.delay();
        let at = self.in_order((candidate, master, connection), at);
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
            replication_id: format!("b{:039}", server.promotions),
            replication_at_seal: format!("b{:039}|0", server.promotions),
            probe: server.probe.clone(),
            evicted: u64::from(server.evicted),
            ..facts
        }
    }

    /// Returns the text of a fingerprint, as a master shows it.
    fn fingerprint(&self, named: Named) -> String {
        self.fingerprints[named as usize].to_string()
    }

    /// Runs one script call: all members at one instant, each by itself.
    fn run_script(
        &mut self,
        candidate: usize,
        transmit: &Transmit,
        deadline: Instant,
    ) -> Result<Reply, Unknown> {
        let (master, now) = (transmit.id.master, self.now);
        if self.masters[master].micros(now) > transmit.not_after {
            self.count("late ghost");
        }
        let server = &self.masters[master];
        if server.sealed && self.stamps[master] != Some(self.candidates[candidate].names) {
            return Ok(scripts::foreign(server.micros(now)));
        }
        let twin = master == 0 && self.twin.is_some() && self.candidates[candidate].reaches_twin();
        let mut replies = Vec::with_capacity(transmit.members.len());
        let mut sealed = true;
        if transmit.members.len() > 1 && transmit.payload.operation != Operation::Claim {
            self.count("batch of two locks");
        }
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
            let of_second = transmit.payload.items[*member].0.name.as_str() == SECOND;
            let reply = match of_second {
                true => server.run_second(now, transmit.not_after, &op),
                false => server.run(now, transmit.not_after, &op),
            };
            self.check_run(master, twin, (&before, &op), deadline);
            if let (
                Op::Mark {
                    token,
                    mark: Mark::Clean,
                    ..
                },
                master::Answer::Done | master::Answer::NotDone,
            ) = (&op, &reply.answer)
            {
                self.checks.clean(*token);
            }
            match (reply.published, of_second) {
                (true, true) => self.publish_second(master),
                (true, false) => self.publish(master),
                (false, _) => {}
            }
            replies.push(reply);
            // An error ends the script.
            if matches!(replies.last(), Some(reply) if matches!(reply.answer, master::Answer::OutOfMemory)) {
                self.count("refused write");
                break;
            }
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
