//! What the elector and the courier do for the machine: carry out its actions, and undo what was lost.

use std::time::Duration;

use redlock::lease::{
    Action, Attempt, Event, LeaseValue, Loss, Moment, Nonce, Outcome, Round, Tally, View, Won, timing,
};

use super::{
    clock::MS,
    faults::Bug,
    flight::{Change, Flight, Progress, is_lost, vote},
    message::{Answer, Ask, Reply, Request},
    world::{ACQUIRE_LIMIT, COMMAND_TIMEOUT, Happening, LONGEST, World},
};

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

impl World {
    pub fn event(&mut self, candidate: usize, event: Event) {
        let entropy = self.rng.u64(..);
        let c = &mut self.candidates[candidate];
        let actions = c.machine.handle(c.clock.read(self.now), entropy, event);
        for action in actions {
            match action {
                Action::StartRound { id, round } => self.start(candidate, id, round),
                Action::SleepUntil(moment) => self.sleep_until(candidate, moment),
                Action::Stopped => self.candidates[candidate].alive = false,
                Action::PublishStandby { ended: Some(_), .. }
                    if self.bug == Some(Bug::RenewalAfterTheEnd) =>
                {
                    let (token, lease_duration) = (self.checks.last_token, LONGEST);
                    self.start(
                        candidate,
                        0,
                        Round::Renew {
                            lease_duration,
                            token,
                        },
                    );
                }
                Action::PublishActive { .. } | Action::PublishStandby { .. } => {}
            }
        }
    }

    fn sleep_until(&mut self, candidate: usize, moment: Moment) {
        let c = &mut self.candidates[candidate];
        c.timer += 1;
        let (life, timer, time) = (c.life, c.timer, c.clock.when(moment.as_nanos()));
        self.at(
            time,
            Happening::Timer {
                candidate,
                life,
                timer,
            },
        );
    }

    fn start(&mut self, candidate: usize, id: u64, round: Round) {
        let nonce = self.rng.u128(..);
        let c = &mut self.candidates[candidate];
        let now = c.clock.read(self.now);
        let floor = if self.floors { c.floor } else { 0 };
        let tally = Tally::new(self.size);
        let mut duration = Duration::ZERO;
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap();
        let (ask, progress) = match round {
            Round::Acquire { lease_duration } => {
                duration = lease_duration;
                c.lease.nonce = Nonce(nonce);
                let attempt = Attempt::new(self.size, now, lease_duration, ACQUIRE_LIMIT);
                let millis = millis(lease_duration);
                (Ask::Grant { millis, floor }, Progress::Granting(attempt))
            }
            Round::Renew {
                lease_duration,
                token,
            } => {
                duration = lease_duration;
                self.check_renewal(candidate);
                let (token, millis) = (token.0, millis(lease_duration));
                (
                    Ask::Renew { token, millis },
                    Progress::Renewing { started: now, tally },
                )
            }
            Round::Observe => {
                let view = View::new(self.size);
                (Ask::Observe, Progress::Looking { view, answered: 0 })
            }
            Round::Release => {
                let reserve = false;
                (
                    Ask::Release { announce: true },
                    Progress::Telling { tally, reserve },
                )
            }
            Round::Reserve { cluster } => {
                let reserve = true;
                (Ask::Reserve { to: cluster }, Progress::Telling { tally, reserve })
            }
        };
        let lease = self.candidates[candidate].lease.clone();
        let everybody = (0..self.size.masters()).collect();
        self.fly(candidate, Some(id), lease, duration, progress, everybody, |_| {
            ask.clone()
        });
    }

    /// Sends one request each to some masters.
    #[allow(clippy::too_many_arguments)]
    fn fly(
        &mut self,
        candidate: usize,
        round: Option<u64>,
        lease: LeaseValue,
        duration: Duration,
        progress: Progress,
        to: Vec<usize>,
        ask: impl Fn(usize) -> Ask,
    ) {
        let flight = self.rng.u64(..);
        let c = &self.candidates[candidate];
        let (life, now) = (c.life, c.clock.read(self.now));
        let left = match &progress {
            Progress::Granting(attempt) | Progress::Confirming(attempt) => attempt.limit().left(now),
            _ => COMMAND_TIMEOUT,
        };
        let deadline = COMMAND_TIMEOUT.min(left);
        for master in &to {
            let c = &self.candidates[candidate];
            let (read, when) = c.offsets[*master];
            let passed = u64::try_from((now.since(when) + deadline).as_micros()).unwrap();
            let request = Request {
                from: candidate,
                life,
                connection: c.connections[*master],
                flight,
                ask: ask(*master),
                lease: lease.clone(),
                not_after: read + passed,
            };
            self.send(candidate, *master, request);
        }
        let c = &mut self.candidates[candidate];
        c.flights.insert(
            flight,
            Flight {
                round,
                lease,
                duration,
                progress,
                missing: to,
            },
        );
        let time = c.clock.when(now.as_nanos() + nanos(deadline));
        self.at(
            time,
            Happening::Deadline {
                candidate,
                life,
                flight,
            },
        );
    }

    fn send(&mut self, candidate: usize, master: usize, request: Request) {
        if self.network.cut(candidate, master) || self.network.loses(&mut self.rng) {
            return;
        }
        let arrival = self.now + self.network.delay(&mut self.rng);
        let sent = &mut self.candidates[candidate].sent[master];
        let arrival = arrival.max(*sent + 1);
        *sent = arrival;
        if self.network.repeats(&mut self.rng) {
            let again = arrival + self.network.delay(&mut self.rng);
            let request = request.clone();
            self.at(again, Happening::Arrival { master, request });
        }
        self.at(arrival, Happening::Arrival { master, request });
    }

    pub fn on_reply(&mut self, candidate: usize, flight: u64, reply: Reply) {
        let c = &mut self.candidates[candidate];
        let now = c.clock.read(self.now);
        if reply.time > c.offsets[reply.master].0 {
            c.offsets[reply.master] = (reply.time, now);
        }
        c.floor = c.floor.max(reply.counter);
        let Some(under_way) = c.flights.get_mut(&flight) else {
            return;
        };
        if !under_way.missing.contains(&reply.master) {
            return;
        }
        under_way.missing.retain(|m| *m != reply.master);
        if self.bug == Some(Bug::MasterVotesTwice) {
            let other = (reply.master + 1) % self.size.masters();
            self.answered(candidate, flight, other, reply.answer.clone());
        }
        self.answered(candidate, flight, reply.master, reply.answer);
    }

    pub fn on_deadline(&mut self, candidate: usize, flight: u64) {
        let missing = match self.candidates[candidate].flights.get_mut(&flight) {
            Some(flight) => std::mem::take(&mut flight.missing),
            None => return,
        };
        for master in missing {
            self.answered(candidate, flight, master, Answer::Unknown);
        }
        self.candidates[candidate].flights.remove(&flight);
    }

    fn answered(&mut self, candidate: usize, id: u64, master: usize, answer: Answer) {
        let size = self.size;
        let c = &mut self.candidates[candidate];
        let now = c.clock.read(self.now);
        let Some(flight) = c.flights.get_mut(&id) else {
            return;
        };
        if matches!(answer, Answer::Unknown) && matches!(flight.progress, Progress::Telling { .. }) {
            // Not known to have run.
            let lease = flight.lease.clone();
            self.undo_again(candidate, lease, master);
        }
        let c = &mut self.candidates[candidate];
        let Some(flight) = c.flights.get_mut(&id) else {
            return;
        };
        let change = flight.answered(size, master, answer, now);
        let (round, lease, duration) = (flight.round, flight.lease.clone(), flight.duration);
        match change {
            Change::Wait => {}
            Change::Finished(outcome) => self.finish(candidate, round, lease, duration, outcome),
            Change::Confirm {
                attempt,
                token,
                granted,
            } if self.bug == Some(Bug::NoConfirm) => {
                let started = attempt.limit() - ACQUIRE_LIMIT;
                let won = Won {
                    token: redlock::lease::FencingToken(token),
                    valid_until: started + duration - timing::drift(duration),
                    started,
                    marks: redlock::lease::Marks::default(),
                };
                let _ = granted;
                self.finish(candidate, round, lease, duration, Outcome::Won(won));
            }
            Change::Confirm {
                attempt,
                token,
                granted,
            } => {
                let to = granted.iter().map(|(m, _)| *m).collect();
                let number = |m: usize| granted.iter().find(|(g, _)| *g == m).map_or(0, |(_, n)| *n);
                let ask = |m| Ask::Confirm {
                    number: number(m),
                    token,
                };
                let progress = Progress::Confirming(attempt);
                self.fly(candidate, round, lease, duration, progress, to, ask);
            }
        }
    }

    fn finish(
        &mut self,
        candidate: usize,
        round: Option<u64>,
        lease: LeaseValue,
        duration: Duration,
        mut outcome: Outcome,
    ) {
        let Some(id) = round else { return };
        if self.bug == Some(Bug::NoDrift) {
            match &mut outcome {
                Outcome::Won(won) => won.valid_until = won.started + duration,
                Outcome::Renewed { started } => *started = *started + timing::drift(duration),
                _ => {}
            }
        }
        let undecided = matches!(outcome, Outcome::RenewalUndecided);
        if is_lost(&outcome) || (undecided && self.bug == Some(Bug::FailedRenewalDeletes)) {
            self.undo(candidate, lease, (0..self.size.masters()).collect());
        }
        if let Outcome::Won(won) = &outcome {
            self.check_token(candidate, won.token);
        }
        let loss = matches!(outcome, Outcome::NotWon(Loss::Refused(_)));
        self.checks.clashes += u64::from(loss);
        self.event(candidate, Event::RoundFinished { id, outcome });
    }

    fn undo(&mut self, candidate: usize, lease: LeaseValue, to: Vec<usize>) {
        let mut tally = Tally::new(self.size);
        for other in (0..self.size.masters()).filter(|m| !to.contains(m)) {
            tally.record(other, vote(&Answer::Unknown));
        }
        if to.len() > 1 {
            // On a connection that broke since, the undo may run before the grant.
            for master in &to {
                self.undo_again(candidate, lease.clone(), *master);
            }
        }
        let progress = Progress::Telling {
            tally,
            reserve: false,
        };
        let ask = |_| Ask::Release { announce: false };
        self.fly(candidate, None, lease, Duration::ZERO, progress, to, ask);
    }

    /// After the last `not_after` of any grant or renewal of that lease.
    fn undo_again(&mut self, candidate: usize, lease: LeaseValue, master: usize) {
        let wait = nanos(COMMAND_TIMEOUT) * 102 / 100 + 5 * MS;
        let life = self.candidates[candidate].life;
        self.later(
            wait,
            Happening::Repeat {
                candidate,
                life,
                lease,
                master,
            },
        );
    }

    pub fn repeat(&mut self, candidate: usize, lease: LeaseValue, master: usize) {
        self.undo(candidate, lease, vec![master]);
    }
}
