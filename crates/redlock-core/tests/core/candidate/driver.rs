//! Carries events to the machine, its actions to the engine, and the outputs of the engine to the world.

use redlock_core::{Action, BootInstant, Event, Output};

use super::{Candidate, Out, Sent};
use crate::rate::Instant;

impl Candidate {
    pub(super) fn feed(&mut self, at: Instant, event: Event, rng: &mut fastrand::Rng, out: &mut Vec<Out>) {
        let now = self.clock.moment(at);
        let Some(machine) = &mut self.machine else { return };
        if let Event::SpecChanged(terms) = &event {
            self.changed = now;
            self.given = Some(terms.clone());
        }
        self.leaving |= matches!(event, Event::Shutdown(_));
        for action in machine.handle(now, rng.u64(..), event) {
            self.act(now, action, out);
        }
        self.stops_in_time(now, out);
    }

    /// Carries out the outputs of the engine, until none is left.
    pub(super) fn settle(&mut self, at: Instant, rng: &mut fastrand::Rng, out: &mut Vec<Out>) {
        let now = self.clock.moment(at);
        while let Some(output) = self.engine.poll(now) {
            match output {
                Output::Transmit(transmit) => {
                    self.calls.push(Sent {
                        id: transmit.id,
                        connection: transmit.connection.0,
                        deadline: transmit.deadline,
                    });
                    out.push(Out::Transmit(Box::new(transmit)));
                }
                Output::Completed {
                    request,
                    won,
                    completion,
                    ..
                } => self.on_completed(at, request, (won, completion), rng, out),
                Output::Poll { master } => self.poke(now, master, out),
                Output::VotersChanged | Output::MasterChanged { .. } => self.on_voters(at, rng, out),
                Output::LocalClockStepped => {
                    self.feed(at, Event::ClockStepped, rng, out);
                    self.feed_second(at, Event::ClockStepped, rng, out);
                }
                Output::SealedForAnother => {
                    self.feed(at, Event::SealedForAnother, rng, out);
                    self.feed_second(at, Event::SealedForAnother, rng, out);
                }
                Output::MasterStepped { .. } | Output::Exchanged { .. } => {}
            }
        }
        if let Some(due) = self.engine.next_timeout()
            && self.timeout.is_none_or(|timeout| due < timeout)
        {
            self.timeout = Some(due);
            out.push(Out::TimeoutAt(due));
        }
    }

    pub(super) fn voters(&self, now: BootInstant) -> usize {
        let all = 0..self.size.masters();
        all.filter(|master| self.engine.votes(*master, now)).count()
    }

    fn on_voters(&mut self, at: Instant, rng: &mut fastrand::Rng, out: &mut Vec<Out>) {
        let voting = self.voters(self.clock.moment(at)) >= self.size.majority();
        let back = voting && !self.voting;
        self.voting = voting;
        if back {
            self.feed(at, Event::QuorumBack, rng, out);
            self.feed_second(at, Event::QuorumBack, rng, out);
        }
    }

    /// Checks that under a held lease the local end leaves enough time to stop the work: the stop begins at once, or
    /// within the slack, when the terms ask for more time than is left.
    fn stops_in_time(&self, now: BootInstant, out: &mut Vec<Out>) {
        let held = self.published.and_then(|authority| authority.at(now));
        let (Some(authority), Some(terms), true) = (held, &self.given, self.alive()) else {
            return;
        };
        let timings = terms.timings;
        let latest = authority.valid_until - timings.stop - timings.slack();
        let latest = latest.max(self.changed + timings.slack());
        if now > latest || self.timer.is_none_or(|timer| timer > latest) {
            let how = format!(
                "{} holds on until {:?}, and has {timings:?}",
                self.index, self.timer
            );
            out.push(Out::NoTimeToStop(how));
        }
    }

    fn act(&mut self, now: BootInstant, action: Action, out: &mut Vec<Out>) {
        match action {
            Action::StartRound { id, round } => self.start_round(now, id, round, out),
            Action::SleepUntil(moment) => {
                self.timer = Some(moment);
                out.push(Out::WakeAt(moment));
            }
            Action::PublishActive { authority, won } => {
                self.published = Some(authority);
                out.push(Out::Active {
                    token: authority.token,
                    won: won.map(|(won, _)| (won.marks, now.since(won.started))),
                    succession: won.and_then(|(won, _)| won.succession),
                });
            }
            Action::PublishStandby { .. } => {
                self.ended = self.published.or(self.ended);
                self.published = None;
            }
            Action::Stopped => self.machine = None,
        }
    }
}
