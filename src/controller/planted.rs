//! Plants a mistake in all operators of a simulated world, to prove that the world finds it. Only tests plant one.

/// A mistake outside of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorldMistake {
    /// A replica contends for a lock that its sibling gives up; the sibling releases the lock before the departure is
    /// recorded; and the next holder does not read the object.
    DepartsUnrecorded,
    /// A standby remembers targets that were removed from the spec, and stops them once it wins.
    RemembersRemoved,
    /// The finalizer is added with the first start only, after the takeover delay.
    GuardsLate,
    /// The finalizer of removed targets goes once their objects are switched, although their pods run.
    UnguardsUnconfirmed,
    /// A lock keeps its claim on a target that was removed from it, until it is judged again.
    KeepsFormerClaims,
    /// A holder that is cut off from the API server waits for a sibling that contends for each of its locks.
    WaitsForContender,
    /// A paused lock that is deleted is let go, although its targets run.
    LeavesPaused,
    /// A replica that does not coordinate stops targets that the coordinator is responsible for.
    StopsUnelected,
    /// The last replica of a cluster leaves the targets of a lock running whose holder is lost.
    LeavesTargetsOfLostHolder,
    /// The last replica does not report that it stops the targets.
    StopsSilently,
    /// The last replica stops targets that continue to run without a majority of the masters.
    StopsContinuingWork,
    /// Targets that continue to run without a majority of the masters are stopped by a replica that starts meanwhile.
    StopsUnconfirmed,
    /// A replica that is cut off from the API server keeps its locks.
    KeepsLocksCutOff,
    /// A lock is passed to any cluster that is alive, whether or not it takes part in the lock.
    PassesToAnyCluster,
    /// Only targets that were started count as unready.
    CountsStartedTargets,
    /// A target whose pod template is not known is started, with an assumed stop time.
    DeclaresAssumedTime,
    /// A lock is held in a cluster that can switch none of its targets.
    HoldsUnswitchable,
    /// A replica reports only once the Lease of the coordinator has ended.
    ReportsLate,
    /// Every replica reports on a quorum without a majority.
    ReportsEverywhere,
    /// The status of a lock that names no usable quorum shows a standby, although the last valid spec is in force.
    HidesLockInForce,
    /// The token of a former quorum is reported as one that no master issued.
    ComparesTokensOfQuorums,
    /// A status that another replica has written, or a backup, counts until a majority votes.
    TrustsRestoredStatus,
    /// The requests of all namespaces wait in one queue.
    QueuesByArrival,
    /// Every holder with the UID of this cluster counts as a sibling.
    TrustsCopies,
    /// The pods of a missing target are known only to a replica that has read the target before. It is planted in `targets`.
    #[cfg(test)]
    ForgetsOrphans,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<WorldMistake>> = const { std::cell::Cell::new(None) };
}

/// Plants a mistake in all operators of this thread.
#[cfg(test)]
pub(super) fn plant(mistake: Option<WorldMistake>) {
    crate::targets::plant_forgotten_orphans(mistake == Some(WorldMistake::ForgetsOrphans));
    PLANTED.set(mistake);
}

#[cfg(test)]
pub(super) fn plants(mistake: WorldMistake) -> bool {
    PLANTED.get() == Some(mistake)
}

#[cfg(not(test))]
pub(super) const fn plants(_: WorldMistake) -> bool {
    false
}
