//! Faults of the scripts, of the seal and of the process around the elector, planted in their models to prove
//! that the checks find them. Those of the machine and the engine are in `redlock_core::planted`. Those that
//! only an unlikely order of events can show are planted in the model of `tests/model` alone.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plant {
    #[default]
    Nothing,
    NoSeal,
    /// A seal stays valid while the same process is a replica of a copy and is promoted again.
    SealOutlivesPromotion,
    FloorWithoutWait,
    /// The seal is a delayed restart alone.
    FloorNotRestored,
    SlotsNotRestored,
    TieToOne,
    /// The registers of a lease that ended are removed although only one master shows the clean end.
    ForgetsByOne,
    /// They are removed together with those of a later lease.
    ForgetsLater,
    /// Masters that do not answer count as masters that lost their memory.
    FallbackWhenUnreachable,
    NoNotAfter,
    BreakDeletes,
    UndoOfOthers,
    /// A process seals for a fingerprint that no master ever carried, after the wait of that fingerprint.
    UnseenSealed,
    /// A key that a step of the master's clock has made longer than the longest lease keeps its end.
    NeverShortened,
    /// Every other candidate reaches another sealed server under the name of the first master.
    TwoServersOfOneName,
    /// The authority that an elector published last is believed for ever once its task has died.
    DeathHolds,
    /// A mark replaces the delay that was declared under the same token, so a late one lowers it.
    DelayLowered,
    /// A master whose memory is full serves all commands.
    MemoryNeverFull,
    /// Answers of one connection overtake each other.
    AnswersOvertake,
    /// An agent counts a lease of its cluster that is not that of the mark.
    UnmarkedCounted,
    /// A reserve of a fenced lock shortens an own reservation.
    ReserveShortens,
    /// An own reservation is longer than the longest lease, which the wait of a seal covers.
    KeptBeyondLongest,
    /// The holder counts a pod whose object is gone as a pod that stopped.
    ForceDeletedGone,
    /// A holder confirms a stop although it did not watch the pods since their lineage began.
    AdopterReleases,
    /// A holder assumes that no pod of its cluster runs if the mark of its cluster is older than `held`.
    EarlierPodsForgotten,
    /// A lease of the own cluster gives permits before its holder has marked it.
    PermitBeforeMark,
    /// Each master computes the first lease of the lineage by its own mark.
    FirstByEachMaster,
}
