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
