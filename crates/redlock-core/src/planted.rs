//! Faults of the protocol, planted into its code, to prove that the checks of the simulation detect them.
//!
//! Only the feature `planted` can choose one, and no build without debug assertions can have that feature: a released
//! program cannot break the protocol on purpose.

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!(
    "the feature `planted` breaks the lease protocol on purpose: it is for tests, and needs debug assertions"
);

/// A planted fault. The faults of the scripts and of the seal are in the models of the tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plant {
    #[default]
    Nothing,
    NoDrift,
    NoConfirm,
    NoCleanUp,
    /// An attempt counts replies that arrive after its limit.
    NoCheckAfterTheReplies,
    VoteCountedTwice,
    VotesSummedOverRounds,
    /// A lease is renewed once more after its local end.
    HealAfterTheEnd,
    FailedRenewalDeletes,
    ReserveBeforeTheEnd,
    ReserveOnAMinority,
    /// Where a reserve was not answered, the lease is deleted.
    ReserveUndone,
    /// The local clock stops, and the masters are blamed: no master has a vote, and their refusals do not
    /// count.
    MastersBlamed,
    /// Timings that change during a renewal take effect once a renewal is won.
    TimingsTakeEffectLate,
    /// An attempt that is given up is released: the reservation for its own cluster is deleted with it.
    AttemptReleased,
    /// The answers of a batch are given to its locks in reverse order.
    AnswersMixedUp,
    /// A master that has not answered by the deadline of a batch counts as one that granted.
    SilenceGrants,
    /// An error of the server counts as its consent.
    ErrorGrants,
    /// A release counts as run where its connection was lost.
    LostReleaseSettles,
    /// A renewal counts from the reply that won it, not from its beginning.
    RenewedAtTheReply,
    /// Script calls have no end: their `not_after` is never reached.
    CallsWithoutEnd,
    /// A holder continues although a majority of the masters is sealed for another quorum.
    ForeignMajorityIgnored,
    /// A counter that no other master reached counts.
    CountersBelieved,
    /// A clean end that one master shows counts.
    OneCleanCounts,
    /// Contrary evidence does not end a permit.
    ContraryIgnored,
    /// A frozen pod is thawed by the permit of another lineage.
    ThawOnOtherFirst,
    /// A pod starts by a round that began before the call to publish its volume.
    StartOnKeptPermit,
    /// A pod starts without a read that shows its object.
    StartWithoutObject,
    /// A pod starts although the holder forbids starts.
    ClosedIgnored,
    /// A lease for which a mark was sent counts as one that was never marked.
    MarkForgotten,
    /// The release of an unmarked lease deletes the reservation of its cluster.
    UnmarkedReleased,
    /// A marked lease is released and passed on before its stop is confirmed.
    ReleasedEarly,
}

impl Plant {
    /// Reports whether this fault is planted. It never is without the feature.
    pub(crate) fn is(self, plant: Self) -> bool {
        cfg!(feature = "planted") && self == plant
    }
}
