//! Defines mistakes in the decisions of the index, to prove that the simulation finds them. Only tests plant them.

use super::Index;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// Targets may be started before the finalizer keeps the object.
    StartsWithoutFinalizer,
    /// A lock that is being deleted is contended for.
    ContendsWhileDeleted,
    /// Targets for which a sibling is responsible are stopped.
    StopsDespiteSibling,
    /// A departure is carried out although another replica coordinates.
    StopsDespiteCoordinator,
    StopsWithoutBound,
    /// A lock whose targets were not stopped is released at once.
    ReleasesUnstopped,
    FinalizerStays,
    /// The finalizer is removed although a sibling did not answer.
    UnguardsBesideSilence,
    /// A sibling of the holder removes the finalizer of removed targets that the holder still stops.
    UnguardsBesideHolder,
    StatusEachTick,
    /// The answer to a write restores an object that is gone.
    AnswerBringsBack,
    /// A status names this replica as the holder after its lease.
    ClaimsWithoutAuthority,
    /// The answer about the finalizer of an object is applied to the next object of the same name.
    TakesAnswerOfPredecessor,
    /// A URL that the masters refused is not retried.
    ReplacesUrlOnce,
    /// A URL is used before the old server has lost its vote.
    ReplacesUnretiredUrl,
    /// A quorum that could not be opened is not retried.
    OpensQuorumOnce,
    /// A lock is contended for although the object contains an abstention of this cluster.
    ContendsWhileAbstaining,
    /// A lock is passed on, or left, to a cluster that is alive and not known to be willing.
    PassesToUnwilling,
    /// Targets are stopped for a failover that could not be written into the object.
    DrainsWithoutAbstention,
    /// Targets are stopped to hand over a lease that has ended.
    DrainsEndedLease,
    /// The end of a drain is forgotten.
    KeepsDrain,
    /// The lease of a fenced lock is passed on although it is not known whether its pods are gone.
    PassesUnconfirmed,
    /// A stop for a hand-over takes as long as the wall clock allows.
    DrainsByWallClock,
    /// A status that the rate limit deferred is forgotten.
    DropsDelayedStatus,
    /// A status that met a conflict is forgotten.
    DropsConflict,
    /// A status that met a 404 is forgotten.
    DropsUnserved,
    /// An object counts as gone when its definition is not served.
    ForgetsUnserved,
    /// The target task of an object that is gone keeps running.
    TaskOutlivesLock,
    /// A target is switched for two locks.
    SharesTarget,
    /// At the end of the process, targets are not stopped before their lock is released.
    ReleasesAtEnd,
    /// At the end of the process, targets that a sibling would take over are stopped.
    StopsDespiteSuccessor,
    /// A replica that is cut off from the API server ends although no sibling reaches it.
    EndsBesideCutOffSibling,
    /// The last status of a released lock reports a lease that is running out.
    ReportsLeaseAfterEnd,
}

impl Index {
    #[cfg(test)]
    pub(super) fn plants(&self, mistake: Planted) -> bool {
        self.planted == Some(mistake)
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    pub(super) const fn plants(&self, _: Planted) -> bool {
        false
    }
}
