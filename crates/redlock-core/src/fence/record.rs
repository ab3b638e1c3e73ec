//! One pod of a fenced lock on a node: it runs only by a permit.

mod presence;
mod rounds;

use super::{FREEZE_BEFORE, KILL_AFTER, PUBLISH_WAIT, REPEAT_EVERY, observation::Finding};
use crate::{BootInstant, FencingToken, planted::Plant};

/// Since which lease the pod runs, and the greatest token under which it was permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    pub first: FencingToken,
    pub token: FencingToken,
}

/// A pod that may run until this moment. It is what the table of the guardian holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub lineage: Lineage,
    pub until: BootInstant,
}

impl Run {
    /// When the agent and the guardian freeze it.
    #[must_use]
    pub fn freeze_at(&self) -> BootInstant {
        self.until - FREEZE_BEFORE
    }
}

/// What the table of the guardian holds of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The record is lost, or cannot be read.
    Unknown,
    Run(Run),
    /// The pod was killed, and is not known to have started afresh: it starts by a start permit only.
    Killed,
}

/// What a pod waited for before its record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The call to publish the volume.
    Publish { called: BootInstant },
    /// The pod was killed, and its cgroup is frozen and empty.
    Kill { since: BootInstant },
}

/// What a read of the API server shows of the object of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object exists, with the UID of the pod.
    Exists,
    /// No object has the UID of the pod: it was deleted, perhaps by force.
    Gone,
    /// The API server did not answer.
    Unknown,
}

/// Each state is left by the inputs named in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A call to publish the volume waits for a start permit. Left by the round that gives one, or at the end of the wait.
    Waiting { called: BootInstant, refusal: Refusal },
    /// A start permit was found. Left by a read of the API server that began after `since`, or at the end of the permit.
    Confirming {
        run: Run,
        origin: Origin,
        since: BootInstant,
    },
    /// Left when the guardian has acknowledged the record, or at the end of the permit.
    Storing { run: Run, origin: Origin },
    /// Left at the end of the permit, or by contrary evidence.
    Running(Run),
    /// Left by a permit of the same lineage, by another lineage or cluster, or after [`KILL_AFTER`]. `lineage` is unknown
    /// where the table was lost.
    Frozen {
        lineage: Option<Lineage>,
        since: BootInstant,
        repeat_at: BootInstant,
    },
    /// Left by a start permit once the cgroup is empty.
    Killed {
        since: BootInstant,
        repeat_at: BootInstant,
        populated: Option<bool>,
    },
    /// The call was refused. The kubelet calls again, for a new record.
    Refused,
}

/// Why a call to publish the volume failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No round that began after the call has ended.
    NoRound,
    /// What the last round showed instead of a permit.
    Finding(Finding),
    /// The holder forbids starts: it is stopping its targets.
    Closed,
    /// The API server shows no object of the pod.
    PodGone,
    /// The API server did not show whether the object of the pod exists.
    PodUnknown,
    /// The guardian did not acknowledge the record before the permit ended.
    NotStored,
    /// The record of the pod is lost: no permit is known to be of its lineage.
    Lost,
}

/// What happens to a record.
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
    /// The file `cgroup.events` of the pod.
    Cgroup { populated: bool, frozen: bool },
}

/// What the agent carries out, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write 1 to `cgroup.freeze`.
    Freeze,
    /// Write 0 to `cgroup.freeze`.
    Thaw,
    /// Write 1 to `cgroup.kill`.
    Kill,
    /// Read whether the object of the pod exists, by a request that begins now. The holder of the lease does not know a pod
    /// whose object was deleted before its lineage began, and would not wait for the end of that pod.
    ConfirmPod,
    /// Write the record into the table of the guardian.
    Store(Run),
    /// Write into the table that the pod is killed, and the permit under which it is about to start afresh, if there is
    /// one. It is stored before the kill: an agent that is started anew must not take the pod for one that is only frozen,
    /// and thaw what the kubelet has started since.
    StoreKilled(Option<Run>),
    AnswerPublish(Result<(), Refusal>),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Record {
    state: State,
    plant: Plant,
}

impl Record {
    /// The kubelet called to publish the volume of a pod that is not known.
    #[must_use]
    pub const fn new(called: BootInstant) -> Self {
        let (refusal, plant) = (Refusal::NoRound, Plant::Nothing);
        let state = State::Waiting { called, refusal };
        Self { state, plant }
    }

    /// An agent that was started anew finds a pod. What the table does not show is frozen: write the freeze at once, as
    /// [`Record::next_wake`] asks.
    #[must_use]
    pub fn restored(stored: Stored, now: BootInstant) -> Self {
        let frozen = |lineage| State::Frozen {
            lineage,
            since: now,
            repeat_at: now,
        };
        let state = match stored {
            Stored::Run(run) if now < run.freeze_at() => State::Running(run),
            Stored::Run(run) => frozen(Some(run.lineage)),
            Stored::Unknown => frozen(None),
            Stored::Killed => State::Killed {
                since: now,
                repeat_at: now,
                populated: None,
            },
        };
        let plant = Plant::Nothing;
        Self { state, plant }
    }

    /// A record in this state: the model of the tests enters every one that it can reach.
    #[cfg(feature = "planted")]
    #[must_use]
    pub const fn in_state(state: State) -> Self {
        let plant = Plant::Nothing;
        Self { state, plant }
    }

    #[cfg(feature = "planted")]
    pub fn plant(&mut self, plant: Plant) {
        self.plant = plant;
    }

    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Until when it may run; `None` where it does not run.
    #[must_use]
    pub const fn permitted_until(&self) -> Option<BootInstant> {
        match self.state {
            State::Running(run) => Some(run.until),
            _ => None,
        }
    }

    /// When [`Input::Timer`] is due.
    #[must_use]
    pub fn next_wake(&self) -> BootInstant {
        match &self.state {
            State::Waiting { called, .. } => *called + PUBLISH_WAIT,
            State::Confirming { run, .. } | State::Storing { run, .. } | State::Running(run) => {
                run.freeze_at()
            }
            State::Frozen { since, repeat_at, .. } => (*repeat_at).min(*since + KILL_AFTER),
            State::Killed { repeat_at, .. } => *repeat_at,
            State::Refused => BootInstant::NEVER,
        }
    }

    /// Takes one input. A permit that has ended is ended before anything else: on waking after a pause the first effect is
    /// the freeze.
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

    /// What the record waited for before the permit that has ended.
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

    /// The end is stored as well: an agent that is started anew must not take the permit for one that still holds.
    fn freeze(&mut self, run: Run, now: BootInstant, out: &mut Vec<Effect>) {
        let until = run.until.min(now);
        out.extend([Effect::Freeze, Effect::Store(Run { until, ..run })]);
        self.state = State::Frozen {
            lineage: Some(run.lineage),
            since: now,
            repeat_at: now + REPEAT_EVERY,
        };
    }

    /// The cgroup stays frozen: what the kubelet starts in it again does not run before the next permit.
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
            | State::Killed { .. } => out.push(Effect::AnswerPublish(Ok(()))),
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
            // The kubelet started a container meanwhile: the pod begins in an empty cgroup, or not at all.
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
            _ => {}
        }
    }
}
