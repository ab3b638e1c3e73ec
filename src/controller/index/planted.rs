//! Mistakes in the decisions of the index, to prove that the simulation sees them. None is ever made but in a test.

use super::Index;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// Targets may be started before the finalizer keeps the object.
    StartsWithoutFinalizer,
    /// A lock that is being deleted is contended for.
    ContendsWhileDeleted,
    /// What a sibling has in hand is stopped.
    StopsDespiteSibling,
    StopsWithoutBound,
    /// A lock whose targets were not stopped is released at once.
    ReleasesUnstopped,
    FinalizerStays,
    StatusEachTick,
    /// The answer to a write brings an object back that is gone.
    AnswerBringsBack,
    /// A status names this replica as the holder after its lease.
    ClaimsWithoutAuthority,
    /// The answer about the finalizer of an object is taken for the next object of its name.
    TakesAnswerOfPredecessor,
    /// A url that the masters refused is not tried again.
    ReplacesUrlOnce,
    /// A url is used before the old server has lost its vote.
    ReplacesUnretiredUrl,
    /// A quorum that could not be opened is left as it is.
    OpensQuorumOnce,
    /// A lock is contended for although the object says that this cluster abstains.
    ContendsWhileAbstaining,
    /// Targets are stopped for a failover that could not be written into the object.
    DrainsWithoutAbstention,
    /// Targets are stopped to pass on a lease that has ended.
    DrainsEndedLease,
    /// The end of a drain is forgotten.
    KeepsDrain,
    /// A stop for a hand-over takes as long as the wall clock allows.
    DrainsByWallClock,
    /// A status that the rate limit put off is forgotten.
    DropsDelayedStatus,
    /// A status that met a conflict is forgotten.
    DropsConflict,
    /// A status that met a 404 is forgotten.
    DropsUnserved,
    /// An object counts as gone when its definition is not served.
    ForgetsUnserved,
    /// The target task of an object that is gone is left alone.
    TaskOutlivesLock,
    /// What is only observed is stopped as left over, again and again.
    StopsObserved,
    /// A target is switched for two locks.
    SharesTarget,
    /// At the end of the process, what runs is not stopped before its lock is released.
    ReleasesAtEnd,
    /// At the end of the process, what a sibling would take over is stopped.
    StopsDespiteSuccessor,
    /// The last status of a lock that was released reports a lease that runs out.
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
