//! The record of one pod of a fenced lock on a node. The pod runs only by a permit, or by a release by hand.

mod presence;
mod release;
mod rounds;
mod state;

use super::{KILL_AFTER, PUBLISH_WAIT, REPEAT_EVERY, observation::Finding};
use crate::{BootInstant, FencingToken, planted::Plant};

pub use self::state::{Lineage, Origin, Presence, Refusal, Release, Run, State, Stored};

/// An event for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The time of [`Record::next_wake`] has come.
    Timer,
    /// The kubelet called again.
    Published,
    /// A round of its lock ended.
    Round(Finding),
    /// The answer to [`Effect::ConfirmPod`], of a read that began at `asked`.
    Pod { presence: Presence, asked: BootInstant },
    /// The guardian has acknowledged the record that was stored last.
    Stored,
    /// An administrator releases the pod.
    Release,
    /// The content of the file `cgroup.events` of the pod.
    Cgroup { populated: bool, frozen: bool },
}

/// An action for the agent, which carries out effects in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write 1 to `cgroup.freeze`.
    Freeze,
    /// Write 0 to `cgroup.freeze`.
    Thaw,
    /// Write 1 to `cgroup.kill`.
    Kill,
    /// Read whether the object of the pod exists, by a request that begins now. The holder of the lease does not know a pod
    /// whose object was deleted before its lineage began, and would not wait for the end of that pod (P-118).
    ConfirmPod,
    /// Write the record into the table of the guardian.
    Store(Run),
    /// Write into the table that the pod is killed, and the permit under which it is about to start afresh,
    /// if there is one. The entry is stored before the kill: a restarted agent must not mistake the pod for
    /// one that is only frozen, and thaw processes that the kubelet has started since (P-106).
    StoreKilled(Option<Run>),
    /// Write into the table that the pod runs without a permit. The guardian reads an entry again before each freeze.
    StoreReleased(Release),
    AnswerPublish(Result<(), Refusal>),
}

/// The record of one pod. See the module.
#[derive(Clone, Debug)]
pub struct Record {
    state: State,
    /// The greatest token that a round has shown.
    seen: FencingToken,
    plant: Plant,
}

impl Record {
    /// Creates the record of an unknown pod when the kubelet calls to publish its volume.
    #[must_use]
    pub const fn new(called: BootInstant) -> Self {
        let refusal = Refusal::NoRound;
        Self::of(State::Waiting { called, refusal }, FencingToken(0))
    }

    const fn of(state: State, seen: FencingToken) -> Self {
        let plant = Plant::Nothing;
        Self { state, seen, plant }
    }

    /// Creates the record of a pod that a restarted agent finds. A pod that the table does not show is
    /// frozen: the agent writes the freeze at once, as [`Record::next_wake`] asks (P-106).
    #[must_use]
    pub fn restored(stored: Stored, now: BootInstant) -> Self {
        let frozen = |lineage| State::Frozen {
            lineage,
            since: now,
            repeat_at: now,
        };
        let seen = match stored {
            Stored::Run(run) => run.lineage.token,
            Stored::Killed { seen } => seen,
            Stored::Released(release) => release.seen,
            Stored::Unknown => FencingToken(0),
        };
        let state = match stored {
            Stored::Run(run) if now < run.freeze_at() => State::Running(run),
            Stored::Run(run) => frozen(Some(run.lineage)),
            Stored::Unknown => frozen(None),
            Stored::Killed { .. } => State::Killed {
                since: now,
                repeat_at: now,
                populated: None,
            },
            Stored::Released(release) => State::Released(release),
        };
        Self::of(state, seen)
    }

    /// Returns a record in this state. The model of the tests enters every state that it can reach.
    #[cfg(feature = "planted")]
    #[must_use]
    pub const fn in_state(state: State) -> Self {
        Self::of(state, FencingToken(0))
    }

    #[cfg(feature = "planted")]
    pub fn plant(&mut self, plant: Plant) {
        self.plant = plant;
    }

    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the greatest token that a round has shown. The token is stored with a kill: a mark that was
    /// known before a release does not end the release.
    #[must_use]
    pub const fn seen(&self) -> FencingToken {
        self.seen
    }

    /// Returns the end of the permit by which the pod runs; `None` if it does not run by a permit.
    #[must_use]
    pub const fn permitted_until(&self) -> Option<BootInstant> {
        match self.state {
            State::Running(run) => Some(run.until),
            _ => None,
        }
    }

    /// Returns the time at which [`Input::Timer`] is due.
    #[must_use]
    pub fn next_wake(&self) -> BootInstant {
        match &self.state {
            State::Waiting { called, .. } => *called + PUBLISH_WAIT,
            State::Confirming { run, .. } | State::Storing { run, .. } | State::Running(run) => {
                run.freeze_at()
            }
            State::Frozen { since, repeat_at, .. } => (*repeat_at).min(*since + KILL_AFTER),
            State::Killed { repeat_at, .. } => *repeat_at,
            State::Released(_) | State::Refused => BootInstant::NEVER,
        }
    }

    /// Handles one input. A permit that has expired is ended before anything else, so the first effect after
    /// a pause is the freeze.
    #[must_use]
    pub fn handle(&mut self, input: Input, now: BootInstant) -> Vec<Effect> {
        let mut out = Vec::new();
        self.expire(now, &mut out);
        match input {
            Input::Timer => {}
            Input::Published => self.on_published(now, &mut out),
            Input::Round(finding) => self.on_round(finding, now, &mut out),
            Input::Pod { presence, asked } => self.on_pod(presence, asked, now, &mut out),
            Input::Stored => self.on_stored(&mut out),
            Input::Release => self.on_release(&mut out),
            Input::Cgroup { populated, frozen } => self.on_cgroup(populated, frozen, now, &mut out),
        }
        out
    }

    fn expire(&mut self, now: BootInstant, out: &mut Vec<Effect>) {
        match &mut self.state {
            State::Waiting { called, refusal } if now >= *called + PUBLISH_WAIT => {
                out.push(Effect::AnswerPublish(Err(refusal.clone())));
                self.state = State::Refused;
            }
            State::Confirming { run, origin, .. } if now >= run.freeze_at() => {
                let origin = *origin;
                self.back_to(origin, Refusal::PodUnknown, now, out);
                self.expire(now, out);
            }
            State::Storing { run, origin } if now >= run.freeze_at() => {
                let origin = *origin;
                self.back_to(origin, Refusal::NotStored, now, out);
                self.expire(now, out);
            }
            State::Running(run) if now >= run.freeze_at() => {
                let run = *run;
                self.freeze(run, now, out);
            }
            State::Frozen { since, .. } if now >= *since + KILL_AFTER => self.kill(now, out),
            State::Frozen { repeat_at, .. } if now >= *repeat_at => {
                *repeat_at = now + REPEAT_EVERY;
                out.push(Effect::Freeze);
            }
            State::Killed {
                repeat_at, populated, ..
            } if now >= *repeat_at => {
                *repeat_at = now + REPEAT_EVERY;
                out.push(Effect::Freeze);
                if *populated != Some(false) {
                    out.push(Effect::Kill);
                }
            }
            _ => {}
        }
    }

    /// Returns the record to the state before the start permit, which cannot be used.
    fn back_to(&mut self, origin: Origin, refusal: Refusal, now: BootInstant, out: &mut Vec<Effect>) {
        self.state = match origin {
            Origin::Publish { called } => State::Waiting { called, refusal },
            Origin::Kill { since } => {
                out.push(Effect::StoreKilled(None));
                State::Killed {
                    since,
                    repeat_at: now,
                    populated: None,
                }
            }
        };
    }

    /// Freezes the pod. The end is stored as well: a restarted agent must not take the permit for a valid
    /// one.
    fn freeze(&mut self, run: Run, now: BootInstant, out: &mut Vec<Effect>) {
        let until = run.until.min(now);
        out.extend([Effect::Freeze, Effect::Store(Run { until, ..run })]);
        self.state = State::Frozen {
            lineage: Some(run.lineage),
            since: now,
            repeat_at: now + REPEAT_EVERY,
        };
    }

    /// Kills the pod. Its cgroup stays frozen: a process that the kubelet starts in it waits for the next
    /// permit (P-105).
    fn kill(&mut self, now: BootInstant, out: &mut Vec<Effect>) {
        out.extend([Effect::Freeze, Effect::StoreKilled(None), Effect::Kill]);
        self.state = State::Killed {
            since: now,
            repeat_at: now + REPEAT_EVERY,
            populated: None,
        };
    }

    fn on_published(&mut self, now: BootInstant, out: &mut Vec<Effect>) {
        match &mut self.state {
            // The round must have begun after this call, too.
            State::Waiting { called, .. } => *called = now,
            State::Confirming {
                origin: Origin::Publish { .. },
                ..
            }
            | State::Storing {
                origin: Origin::Publish { .. },
                ..
            } => {
                let refusal = Refusal::NoRound;
                self.state = State::Waiting { called: now, refusal };
            }
            State::Refused => {}
            // Whether the pod ever had a permit is unknown.
            State::Frozen { lineage: None, .. } => out.push(Effect::AnswerPublish(Err(Refusal::Lost))),
            // The freezer governs known pods.
            State::Confirming { .. }
            | State::Storing { .. }
            | State::Running(_)
            | State::Frozen { .. }
            | State::Killed { .. }
            | State::Released(_) => out.push(Effect::AnswerPublish(Ok(()))),
        }
    }

    fn on_stored(&mut self, out: &mut Vec<Effect>) {
        let State::Storing { run, origin } = self.state else {
            return;
        };
        match origin {
            Origin::Publish { .. } => out.push(Effect::AnswerPublish(Ok(()))),
            Origin::Kill { .. } => out.extend([Effect::Store(run), Effect::Thaw]),
        }
        self.state = State::Running(run);
    }

    fn on_cgroup(&mut self, found: bool, frozen: bool, now: BootInstant, out: &mut Vec<Effect>) {
        match &mut self.state {
            State::Killed { populated, .. } => *populated = Some(found),
            // The kubelet started a container meanwhile, but the pod starts only in an empty cgroup (P-105).
            State::Confirming {
                origin: Origin::Kill { since },
                ..
            }
            | State::Storing {
                origin: Origin::Kill { since },
                ..
            } if found => {
                out.push(Effect::StoreKilled(None));
                self.state = State::Killed {
                    since: *since,
                    repeat_at: now,
                    populated: Some(true),
                };
            }
            // The guardian froze it by an earlier record.
            State::Running(run) if frozen && now < run.freeze_at() => {
                out.extend([Effect::Store(*run), Effect::Thaw]);
            }
            State::Released(release) if frozen => {
                out.extend([Effect::StoreReleased(*release), Effect::Thaw]);
            }
            _ => {}
        }
    }
}
