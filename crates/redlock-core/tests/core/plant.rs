//! Faults of the protocol itself, to prove that the checks see them. None of them is in the program: they are in the
//! models of a master and of the driver that only these tests have, and chosen at run time. Those that only an unlikely order of events can show are planted in the model (`tests/model`) alone.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    Nothing,
    NoDrift,
    NoConfirm,
    NoSeal,
    FloorWithoutWait,
    /// A delayed restart alone.
    FloorNotRestored,
    SlotsNotRestored,
    TieToOne,
    /// Masters that do not answer are taken for masters that lost their memory.
    FallbackWhenUnreachable,
    NoCleanUp,
    NoNotAfter,
    /// An attempt counts what arrives after its limit.
    NoCheckAfterTheReplies,
    VoteCountedTwice,
    VotesSummedOverRounds,
    HealAfterTheEnd,
    FailedRenewalDeletes,
    BreakDeletes,
    ReserveBeforeTheEnd,
    ReserveOnAMinority,
    /// Where a reserve was not heard of, the lease is deleted.
    ReserveUndone,
    UndoOfOthers,
    /// The local clock stops, and the masters are blamed: none has a vote, and their refusals are not heard.
    MastersBlamed,
    /// Timings that change during a renewal take effect once a renewal is won.
    TimingsTakeEffectLate,
    /// An attempt that is given up is released: its own cluster's reservation goes with it.
    AttemptReleased,
    /// Every other candidate reaches another sealed server under the name of the first master.
    TwoServersOfOneName,
    /// What an elector published last is believed for ever once its task has died.
    DeathHolds,
    /// A mark replaces the delay that was declared under the same token: one that comes late lowers it.
    DelayLowered,
}
