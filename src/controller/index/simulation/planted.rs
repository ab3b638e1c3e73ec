//! Lists the planted mistakes, and the rules that find them.

use crate::controller::index::Planted;

/// Each planted mistake, and a part of the message of the rule that finds it.
pub(super) const ALL: [(Planted, &str); 33] = [
    (
        Planted::StartsWithoutFinalizer,
        "may be started without a finalizer",
    ),
    (
        Planted::ContendsWhileDeleted,
        "contended for while it is being deleted",
    ),
    (
        Planted::StopsDespiteSibling,
        "stopped, and a sibling has it in hand",
    ),
    (Planted::StopsDespiteCoordinator, "another replica coordinates"),
    (Planted::StopsWithoutBound, "stops until"),
    (
        Planted::ReleasesUnstopped,
        "released, and its targets were not stopped",
    ),
    (Planted::FinalizerStays, "kept by its finalizer"),
    (Planted::UnguardsBesideSilence, "and a sibling did not answer"),
    (Planted::UnguardsBesideHolder, "beside the holder"),
    (Planted::StatusEachTick, "no rest"),
    (Planted::AnswerBringsBack, "it is gone, and not forgotten"),
    (Planted::ClaimsWithoutAuthority, "its status names this replica"),
    (
        Planted::TakesAnswerOfPredecessor,
        "its finalizer is being written already",
    ),
    (Planted::ReplacesUrlOnce, ": uses "),
    (Planted::ReplacesUnretiredUrl, "the old server may still vote"),
    (Planted::OpensQuorumOnce, ": not open"),
    (
        Planted::ContendsWhileAbstaining,
        "contended for while this cluster abstains",
    ),
    (
        Planted::PassesToUnwilling,
        "passed to a cluster that is not known to be willing",
    ),
    (
        Planted::DrainsWithoutAbstention,
        "a failover that is not in its object",
    ),
    (Planted::DrainsEndedLease, "without its lease"),
    (Planted::KeepsDrain, "its drain has not ended"),
    (Planted::PassesUnconfirmed, "handed over, and its pods may run"),
    (Planted::DrainsByWallClock, "stops until"),
    (Planted::DropsDelayedStatus, "its status is about generation"),
    (Planted::DropsConflict, "its status is about generation"),
    (Planted::DropsUnserved, "its status is about generation"),
    (Planted::ForgetsUnserved, "it is there, and not known"),
    (Planted::TaskOutlivesLock, "its target task has not ended"),
    (Planted::SharesTarget, "switches a target of"),
    (
        Planted::ReleasesAtEnd,
        "released at the end while its targets run",
    ),
    (
        Planted::StopsDespiteSuccessor,
        "stopped at the end, and a sibling takes it over",
    ),
    (Planted::EndsBesideCutOffSibling, "ends, and no sibling reaches"),
    (Planted::ReportsLeaseAfterEnd, "its last status reports a lease"),
];
