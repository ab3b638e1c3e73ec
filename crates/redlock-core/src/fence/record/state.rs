//! The states of a record, and their stored form.

use crate::{
    BootInstant, FencingToken,
    fence::{FREEZE_BEFORE, observation::Finding},
};

/// The lease since which the pod runs, and the greatest token under which it was permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    pub first: FencingToken,
    pub token: FencingToken,
}

/// The permission of a pod to run until a certain time, as the table of the guardian stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub lineage: Lineage,
    pub until: BootInstant,
}

impl Run {
    /// Returns the time at which the agent and the guardian freeze the pod.
    #[must_use]
    pub fn freeze_at(&self) -> BootInstant {
        self.until - FREEZE_BEFORE
    }
}

/// An administrator's release of a pod, which runs without a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lineage of the frozen pod; `None` if the pod was killed before, and starts afresh.
    pub lineage: Option<Lineage>,
    /// The greatest token that this node had seen at the release. Another cluster under a greater token came
    /// later, and was not known.
    pub seen: FencingToken,
}

/// The entry of a pod in the table of the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The record is lost, or cannot be read.
    Unknown,
    Run(Run),
    /// The pod was killed, and is not known to have started afresh: it starts only by a start permit. `seen`
    /// is the greatest token that this node had seen.
    Killed {
        seen: FencingToken,
    },
    Released(Release),
}

/// The event after which a pod waits for a start permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The call to publish the volume.
    Publish { called: BootInstant },
    /// The pod was killed, and its cgroup is frozen and empty.
    Kill { since: BootInstant },
}

/// The result of a read of the object of a pod at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object exists, with the UID of the pod.
    Exists,
    /// No object has the UID of the pod: it was deleted, perhaps by force.
    Gone,
    /// The API server did not answer.
    Unknown,
}

/// The state of a record. Each variant names the inputs that end it.
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
    /// The pod runs without a permit. Left by a permit, or by evidence that is later than the release.
    Released(Release),
    /// The call was refused. The kubelet calls again, for a new record.
    Refused,
}

/// The reason why a call to publish the volume failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No round that began after the call has ended.
    NoRound,
    /// The finding of the last round, which gave no permit to use.
    Finding(Finding),
    /// The holder forbids starts: it is stopping its targets.
    Closed,
    /// The API server shows no object of the pod.
    PodGone,
    /// The API server did not show whether the object of the pod exists.
    PodUnknown,
    /// The guardian did not acknowledge the record before the permit ended.
    NotStored,
    /// The record of the pod is lost: no permit is known to belong to its lineage.
    Lost,
}
