//! The kinds of faults.

use redlock::lease::BootInstant;

/// One act, for the timeline.
pub type Mark = (BootInstant, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillHolder,
    KillSibling,
    Rollout,
    DrainAll,
    StopApiServer,
    CutFromMasters,
    CutStandby,
    CutHolder,
    CutFromApiServer,
    PauseMasters,
    EmptyMasters,
    RestartOperators,
    StepDown,
    /// Its overlaps cannot be prevented from outside the pod.
    KillAll,
    /// The same applies to its overlaps.
    CutFromAll,
    KillAgent,
    KillGuardian,
    PauseAgent,
    PauseGuardian,
    CutOperatorAndAgent,
    ForceDelete,
    CrashReplica,
    RolloutOperator,
    RolloutAgent,
    RolloutGuardian,
}

impl Fault {
    /// The faults under which no work may overlap.
    pub const CLOSED: [Self; 13] = [
        Self::KillHolder,
        Self::KillSibling,
        Self::Rollout,
        Self::DrainAll,
        Self::StopApiServer,
        Self::CutFromMasters,
        Self::CutStandby,
        Self::CutHolder,
        Self::CutFromApiServer,
        Self::PauseMasters,
        Self::EmptyMasters,
        Self::RestartOperators,
        Self::StepDown,
    ];
    pub const OPEN: [Self; 2] = [Self::KillAll, Self::CutFromAll];
    /// The faults of a node and its pods, which need node fencing.
    pub const OF_NODES: [Self; 6] = [
        Self::KillAgent,
        Self::KillGuardian,
        Self::PauseAgent,
        Self::PauseGuardian,
        Self::CutOperatorAndAgent,
        Self::ForceDelete,
    ];
    /// The faults under which fenced pods continue.
    pub const UNNOTICED: [Self; 4] = [
        Self::CrashReplica,
        Self::RolloutOperator,
        Self::RolloutAgent,
        Self::RolloutGuardian,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::KillHolder => "kill -9 of the replica that holds the lock",
            Self::KillSibling => "kill -9 of its sibling",
            Self::Rollout => "SIGTERM to the replica that holds it, with a ready sibling",
            Self::DrainAll => "SIGTERM to both replicas of the active cluster",
            Self::StopApiServer => "the active cluster's API server is killed and started again",
            Self::CutFromMasters => "the active cluster is cut off from the masters",
            Self::CutStandby => "the standby replica is cut off from the masters while its sibling holds",
            Self::CutHolder => "the replica that holds it is cut off from the masters, and not its sibling",
            Self::CutFromApiServer => "the active cluster's replicas are cut off from their API server",
            Self::PauseMasters => "three to five masters hang",
            Self::EmptyMasters => "all masters are killed and started again without memory",
            Self::RestartOperators => "all four replicas are restarted, in any order",
            Self::StepDown => "planned: state SteppedDown",
            Self::KillAll => "kill -9 of all replicas of the active cluster at once",
            Self::CutFromAll => "the active cluster is cut off from the masters and its API server",
            Self::KillAgent => "the active cluster is cut off from both, after kill -9 of its node agent",
            Self::KillGuardian => {
                "the active cluster is cut off from both, after kill -9 of its node guardian"
            }
            Self::PauseAgent => "the active cluster is cut off from both, after SIGSTOP to its node agent",
            Self::PauseGuardian => {
                "the active cluster is cut off from both, after SIGSTOP to its node guardian"
            }
            Self::CutOperatorAndAgent => {
                "the active cluster's replicas and node agent are cut off from both, and not its kubelet"
            }
            Self::ForceDelete => {
                "planned, with a pod that was deleted by force while its node is cut off from the API server"
            }
            Self::CrashReplica => "kill -9 of one of two replicas",
            Self::RolloutOperator => "a rollout of the operator",
            Self::RolloutAgent => "SIGTERM to the node agent, and a new one",
            Self::RolloutGuardian => "SIGTERM to the node guardian, and a new one",
        }
    }

    /// Reports whether the work must continue, untouched, in the cluster where it runs.
    pub const fn is_unnoticed(self) -> bool {
        matches!(
            self,
            Self::KillSibling
                | Self::Rollout
                | Self::CutStandby
                | Self::CutHolder
                | Self::StopApiServer
                | Self::CutFromApiServer
        )
    }
}
