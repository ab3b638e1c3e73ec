//! The states of a record, and their stored form.

use crate::{
    BootInstant, FencingToken,
    fence::{FREEZE_BEFORE, observation::Finding},
};

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

/// A pod that an administrator lets run without a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// That of the frozen pod; `None` where the pod was killed before, and starts afresh.
    pub lineage: Option<Lineage>,
    /// The greatest token that this node had seen then: another cluster under a greater one has come later, and was not known.
    pub seen: FencingToken,
}

/// What the table of the guardian holds of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The record is lost, or cannot be read.
    Unknown,
    Run(Run),
    /// The pod was killed, and is not known to have started afresh: it starts by a start permit only. `seen` is the greatest
    /// token that this node had seen.
    Killed {
        seen: FencingToken,
    },
    Released(Release),
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
    /// It runs without a permit. Left by a permit, or by evidence that is later than the release.
    Released(Release),
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
