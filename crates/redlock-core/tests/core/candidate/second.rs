//! A second lock of the same process: a machine of its own, on the engine of the first lock.

use std::sync::Arc;

use redlock_core::{
    Action, Authority, BootInstant, Event, Input, LeaseAttempt, LockKeys, Machine, Nonce, Request, RequestId,
    Round, Terms, planted::Plant,
};

use super::{Candidate, Out, requests::Wanted};
use crate::rate::Instant;

#[derive(Debug)]
pub(super) struct Second {
    machine: Machine,
    attempt: Option<Arc<LeaseAttempt>>,
    published: Option<Authority>,
    timer: Option<BootInstant>,
}

/// An event for the second lock of a process.
#[derive(Clone, Debug)]
pub(crate) enum SecondEvent {
    Timer(BootInstant),
    Happens(Event),
}

impl Candidate {
    pub(super) fn start_second(
        &mut self,
        at: Instant,
        terms: Terms,
        rng: &mut fastrand::Rng,
        out: &mut Vec<Out>,
    ) {
        if self.second_lock.is_none() {
            return;
        }
        let mut machine = Machine::new(terms, self.size.majority());
        machine.plant(self.planted.code);
        self.second = Some(Second {
            machine,
            attempt: None,
            published: None,
            timer: None,
        });
        self.feed_second(at, Event::TimerFired, rng, out);
    }

    /// Returns the authority over the second lock, as other tasks read it.
    pub(crate) fn second_authority(&self, at: Instant) -> Option<Authority> {
        self.second.as_ref()?.published?.at(self.clock.moment(at))
    }

    pub(crate) fn second_nonce(&self) -> Option<Nonce> {
        let attempt = self.second.as_ref()?.attempt.as_ref()?;
        Some(attempt.stem.nonce())
    }

    pub(crate) fn on_second(&mut self, at: Instant, event: SecondEvent, rng: &mut fastrand::Rng) -> Vec<Out> {
        let mut out = Vec::new();
        match event {
            SecondEvent::Timer(due) => self.fire_second(at, Some(due), rng, &mut out),
            SecondEvent::Happens(event) => self.feed_second(at, event, rng, &mut out),
        }
        self.settle(at, rng, &mut out);
        out
    }

    /// Fires the timer of the second lock: that for `due`, or one that is over.
    pub(super) fn fire_second(
        &mut self,
        at: Instant,
        due: Option<BootInstant>,
        rng: &mut fastrand::Rng,
        out: &mut Vec<Out>,
    ) {
        let now = self.clock.moment(at);
        let fires = |timer: &BootInstant| due.map_or(*timer <= now, |due| *timer == due);
        let fired = self
            .second
            .as_mut()
            .and_then(|second| second.timer.take_if(|timer| fires(timer)));
        if fired.is_some() {
            self.feed_second(at, Event::TimerFired, rng, out);
        }
    }

    pub(super) fn feed_second(
        &mut self,
        at: Instant,
        event: Event,
        rng: &mut fastrand::Rng,
        out: &mut Vec<Out>,
    ) {
        let now = self.clock.moment(at);
        let Some(second) = &mut self.second else { return };
        for action in second.machine.handle(now, rng.u64(..), event) {
            self.act_second(now, action, out);
        }
    }

    fn act_second(&mut self, now: BootInstant, action: Action, out: &mut Vec<Out>) {
        let Some(second) = &mut self.second else { return };
        match action {
            Action::StartRound { id, round } => self.start_second_round(now, id, &round, out),
            Action::SleepUntil(moment) => {
                second.timer = Some(moment);
                out.push(Out::SecondWakeAt(moment));
            }
            Action::PublishActive { authority, won } => {
                second.published = Some(authority);
                out.push(Out::SecondActive {
                    token: authority.token,
                    won: won.is_some(),
                });
            }
            Action::PublishStandby { .. } => second.published = None,
            Action::Stopped => self.second = None,
        }
    }

    fn start_second_round(&mut self, now: BootInstant, id: u64, round: &Round, out: &mut Vec<Out>) {
        let fresh = matches!(round, Round::Acquire { .. }).then(|| self.new_attempt());
        let heals = self.planted.code == Plant::HealAfterTheEnd;
        let Some(second) = &mut self.second else { return };
        if fresh.is_some() {
            second.attempt = fresh;
        }
        let held = second.published.and_then(|authority| authority.at(now));
        if matches!(round, Round::Renew { .. }) && held.is_none() && !heals {
            out.push(Out::WithoutAuthority);
        }
        let command = round.clone().command(second.attempt.clone());
        self.request_second(now, command, Some(Wanted::Second { id }));
    }

    pub(super) fn request_second(
        &mut self,
        now: BootInstant,
        command: redlock_core::Command,
        wanted: Option<Wanted>,
    ) {
        let Some(lock): Option<Arc<LockKeys>> = self.second_lock.clone() else {
            return;
        };
        self.next += 1;
        let id = RequestId(self.next);
        if let Some(wanted) = wanted {
            self.wanted.insert(id, wanted);
        }
        self.engine
            .handle(Input::Request(Request { id, lock, command }), now);
    }
}
