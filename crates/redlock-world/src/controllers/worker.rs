//! The worker of one controller: decides when it reads the objects, and delays its writes.

use std::time::Duration;

use jiff::Timestamp;

use super::{ControllerWrite, ControllerWriter, object::later, write::ControllerPlan};

type Writes = Vec<(ControllerWriter, ControllerWrite)>;

#[derive(Debug, Default)]
enum Stage {
    /// It reads the objects after a change, or at the time.
    #[default]
    Idle,
    Stopped,
    /// It has work to do, and decides on it at this time.
    Reacting(Timestamp),
    /// A write was refused, and it decides again at this time.
    BackingOff(Timestamp),
    /// Its writes are on their way until this time.
    Writing(Timestamp, Writes),
}

/// The next action of a worker.
#[derive(Debug)]
pub(super) enum Turn {
    Decide,
    Write(Writes),
    /// Nothing is done before this time without a change; `None` without a limit.
    Wait(Option<Timestamp>),
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    stage: Stage,
    /// The revision of the objects after which nothing was left to do.
    seen: Option<u64>,
    wake: Option<Timestamp>,
}

impl Worker {
    pub(super) fn turn(&mut self, revision: Option<u64>, now: Timestamp) -> Turn {
        match std::mem::take(&mut self.stage) {
            Stage::Stopped => {
                self.stage = Stage::Stopped;
                Turn::Wait(None)
            }
            Stage::Reacting(at) if at > now => {
                self.stage = Stage::Reacting(at);
                Turn::Wait(Some(at))
            }
            Stage::BackingOff(at) if at > now => {
                self.stage = Stage::BackingOff(at);
                Turn::Wait(Some(at))
            }
            Stage::BackingOff(_) => Turn::Decide,
            Stage::Reacting(at) => {
                self.stage = Stage::Reacting(at);
                Turn::Decide
            }
            Stage::Writing(at, writes) if at > now => {
                self.stage = Stage::Writing(at, writes);
                Turn::Wait(Some(at))
            }
            Stage::Writing(_, writes) => Turn::Write(writes),
            Stage::Idle => {
                let is_known = revision.is_some() && revision == self.seen;
                if is_known && self.wake.is_none_or(|wake| wake > now) {
                    return Turn::Wait(self.wake);
                }
                Turn::Decide
            }
        }
    }

    /// Takes the writes of a decision. `delay` chooses the time to react (with true), or of the writes on their way.
    pub(super) fn decided(
        &mut self,
        plan: ControllerPlan,
        revision: Option<u64>,
        now: Timestamp,
        mut delay: impl FnMut(bool) -> Duration,
    ) -> Turn {
        if plan.writes.is_empty() {
            *self = Self {
                stage: Stage::Idle,
                seen: revision,
                wake: plan.wake,
            };
            return Turn::Wait(plan.wake);
        }
        // The objects are read again after the writes.
        (self.seen, self.wake) = (None, None);
        let reacted = matches!(self.stage, Stage::Reacting(_));
        let reaction = if reacted { Duration::ZERO } else { delay(true) };
        if !reaction.is_zero() {
            let at = later(now, reaction);
            self.stage = Stage::Reacting(at);
            return Turn::Wait(Some(at));
        }
        let latency = delay(false);
        self.stage = Stage::Idle;
        if latency.is_zero() {
            return Turn::Write(plan.writes);
        }
        let at = later(now, latency);
        self.stage = Stage::Writing(at, plan.writes);
        Turn::Wait(Some(at))
    }

    pub(super) fn back_off(&mut self, until: Timestamp) {
        match self.stage {
            Stage::Stopped => {}
            Stage::Idle | Stage::Reacting(_) | Stage::BackingOff(_) | Stage::Writing(..) => {
                self.stage = Stage::BackingOff(until);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        self.stage = Stage::Stopped;
    }

    pub(super) fn start(&mut self) {
        if matches!(self.stage, Stage::Stopped) {
            *self = Self::default();
        }
    }

    pub(super) fn refresh(&mut self) {
        self.seen = None;
    }
}
