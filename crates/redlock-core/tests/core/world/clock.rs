//! Stops the clock of a candidate together with its process: a virtual machine is paused.

use std::{cmp::Reverse, time::Duration};

use redlock_core::{BootInstant, FencingToken, Marks};

use super::{What, World};
use crate::{
    candidate::Candidate,
    rate::{Instant, MS},
};

/// Replies are compared with samples of the last second. The program does not promise to use a master that answered
/// longer ago as a witness.
const WITNESS: Instant = 1_000 * MS;

/// A stop of a clock. Beliefs from before it are wrong by its length until a majority is heard again.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    /// The token under which the candidate believed when the clock stopped, or that an earlier attempt brings later.
    token: Option<FencingToken>,
    at: BootInstant,
    ended: Instant,
    length: Instant,
    /// The masters that the candidate had heard just before. Those in `answered` have answered a later request.
    witnesses: Vec<bool>,
    answered: Vec<bool>,
    excused: bool,
}

impl World {
    pub(crate) fn check(&mut self, at: Instant) {
        let counted = self.candidates.iter().zip(&self.stopped);
        // Without a publication there is no belief.
        let counted = counted
            .filter(|(candidate, stopped)| {
                candidate.token().is_some() && !excused(candidate, stopped.as_ref(), at)
            })
            .map(|(candidate, _)| candidate);
        self.checks
            .until(at, &counted, (&self.masters, self.twin.as_ref()));
    }

    pub(crate) fn is_excused(&self, candidate: usize) -> bool {
        excused(
            &self.candidates[candidate],
            self.stopped[candidate].as_ref(),
            self.now,
        )
    }

    /// Stops a candidate and its clock for this time.
    pub(crate) fn stop_clock(&mut self, candidate: usize, nanos: u64) {
        self.count("local clock stops");
        let believes = self.candidates[candidate].authority(self.now).is_some();
        if believes {
            self.count("local clock stops under a lease");
        }
        let clock = &mut self.candidates[candidate].clock;
        let at = clock.moment(self.now);
        clock.offset -= clock.gained(nanos);
        let ended = self.now + nanos;
        self.paused[candidate] = ended;
        let recent = self.last_reply[candidate]
            .iter()
            .map(|last| *last > 0 && last + WITNESS > self.now);
        // A step of the local clock shortly before discards the samples of masters that did not answer since.
        let known = |master| self.candidates[candidate].knows_clock_of(master);
        let witnesses = recent
            .enumerate()
            .map(|(master, recent)| recent && known(master))
            .collect();
        self.stopped[candidate] = Some(Stopped {
            token: self.candidates[candidate].token().filter(|_| believes),
            at,
            ended,
            length: nanos,
            witnesses,
            answered: vec![false; self.masters.len()],
            excused: true,
        });
        self.put_off_timers(candidate, nanos);
    }

    /// Delays the timers of the candidate, which stand still, too.
    fn put_off_timers(&mut self, candidate: usize, nanos: u64) {
        let events = &self.events;
        let own = |id: &usize| {
            matches!(
                &events[*id],
                Some(What::Timer { candidate: c, .. } | What::Timeout { candidate: c, .. } | What::Keep { candidate: c, .. })
                    if *c == candidate
            )
        };
        let queue = std::mem::take(&mut self.queue);
        self.queue = queue
            .into_iter()
            .map(|Reverse((at, tie, id))| Reverse((at + if own(&id) { nanos } else { 0 }, tie, id)))
            .collect();
    }

    /// Excludes a master as a witness: its clock is not the one that was heard before.
    pub(super) fn no_witness(&mut self, candidate: usize, master: usize) {
        self.last_reply[candidate][master] = 0;
        if let Some(stopped) = &mut self.stopped[candidate] {
            stopped.witnesses[master] = false;
            stopped.answered[master] = false;
        }
    }

    /// Records a reply to a request that was sent at `sent`.
    pub(super) fn record_reply(&mut self, candidate: usize, master: usize, sent: Instant) {
        // A request from before the end of a stop may show a time during it, so it is no base for the next
        // stop.
        if self.stopped[candidate]
            .as_ref()
            .is_none_or(|stopped| sent >= stopped.ended)
        {
            self.last_reply[candidate][master] = self.now;
        }
        let excused = self.is_excused(candidate);
        // An elector that died under a clock that stood still hears no reply: its authority ends by that clock.
        let Some(stopped) = self.stopped[candidate]
            .as_mut()
            .filter(|_| self.candidates[candidate].alive())
        else {
            return;
        };
        // The round trip of a reply that was read late hides a step that is shorter.
        let shows = sent >= stopped.ended && self.now - sent < stopped.length / 2;
        stopped.answered[master] |= stopped.witnesses[master] && shows;
        if stopped.answered.iter().filter(|answered| **answered).count() < self.size.majority() {
            return;
        }
        stopped.excused = false;
        if excused && self.candidates[candidate].authority(self.now).is_some() {
            let how = format!("{candidate} believes after its clock stood still, and heard a majority since");
            self.checks.fail("clock", self.now, how);
        }
    }

    /// Reports whether a published lease was requested before the clock stopped.
    pub(super) fn begun_before_the_stop(
        &mut self,
        candidate: usize,
        token: FencingToken,
        won: Option<(Marks, Duration)>,
    ) -> bool {
        let now = self.candidates[candidate].clock.moment(self.now);
        let Some(stopped) = &mut self.stopped[candidate] else {
            return false;
        };
        if won.is_some_and(|(_, took)| now - took <= stopped.at) {
            stopped.token = Some(token);
        }
        stopped.excused && stopped.token == Some(token)
    }

    /// Reports whether the clock stood still recently.
    pub(super) fn clock_stood_still(&self, candidate: usize) -> bool {
        let recent = |stopped: &Stopped| self.now < stopped.ended + 2 * super::nanos(super::LONGEST);
        self.stopped[candidate].as_ref().is_some_and(recent)
    }
}

/// Reports whether the beliefs of a candidate are excused. While its clock stands still, the process does not
/// run, and the model has already set the clock back.
fn excused(candidate: &Candidate, stopped: Option<&Stopped>, at: Instant) -> bool {
    stopped.is_some_and(|stopped| {
        let believed = stopped.excused && stopped.token.is_some() && stopped.token == candidate.token();
        believed || at < stopped.ended
    })
}
