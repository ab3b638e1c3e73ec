//! The bounds of the exploration, and the planted faults.

/// A fault of the protocol, to prove that the check detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    Nothing,
    /// A lease of the own cluster that does not belong to the mark counts.
    UnmarkedCounted,
    /// A lease gives a permit before its holder has marked it.
    PermitBeforeMark,
    /// A pod whose object is gone counts as a pod that stopped.
    ForceDeletedGone,
    /// Contrary evidence does not end a permit.
    ContraryIgnored,
    /// If no delay is known, a holder waits for one tick.
    MissingDelay,
    ThawOnOtherFirst,
    /// A mark that is older than the greatest `held` gives a permit.
    NewerHeldIgnored,
    /// Each master derives the first lease of the lineage from its own mark.
    FirstByEachMaster,
    /// A marked lease and the own reservation are released before the stop is confirmed.
    ReleasedEarly,
    MarkBeforeDelay,
    /// A renewal keeps the lock for its cluster even on masters that refused it.
    KeptWhereRefused,
    ClosedIgnored,
    /// A holder confirms a stop although its watch does not reach back to the first lease of the lineage.
    AdopterReleases,
    UnmarkedReleased,
    MarkForgotten,
    /// A reserve of the own cluster shortens the reservation.
    ReserveShortens,
    /// The wait of a seal covers leases, but not a reservation that is longer.
    SealWaitShort,
    /// Under one token, the delay that arrives last counts.
    DelayLowered,
}

/// The possible events, and their largest numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Attempts of each of the two candidates of A, and of that of B.
    pub(super) acquires: [u8; 3],
    pub(super) renewals: u8,
    /// Commands that some masters execute up to a tick after they were sent.
    pub(super) late: u8,
    /// Rounds of which all replies are lost.
    pub(super) losses: u8,
    /// Masters that lose their memory.
    pub(super) wipes: u8,
    /// Masters that misbehave: they forget lease and reservation, and keep their seal.
    pub(super) forgets: u8,
    pub(super) forced: u8,
    pub(super) crashes: u8,
    /// Calls of the kubelet for a new pod.
    pub(super) pods: u8,
    pub(super) restarts: u8,
    pub(super) breaks: u8,
    /// Whether holders stop and release.
    pub(super) ends: bool,
    /// Whether holders pass the lock on.
    pub(super) reserves: bool,
    /// Whether a command reaches all masters that execute it, or none.
    pub(super) whole: bool,
    /// Whether the holder of A also runs a pod without the volume, and raises its delay before.
    pub(super) unfenced: bool,
    /// Whether B does not fence.
    pub(super) plain: bool,
    /// Whether time passes only after all other possible steps.
    pub(super) benign: bool,
    /// Whether the agent reads all masters at least once per tick.
    pub(super) polls: bool,
    pub(super) lease: u8,
    /// The delay that a holder declares if all of its pods are fenced.
    pub(super) delay: u8,
}

/// The longest lease of the quorum, which the wait of a seal covers: the lease and the 5 s of the own reservation.
pub(super) const LONGEST: u8 = 3;
/// The delay that a holder declares if it runs a pod without the volume: the stop time of that pod.
pub(super) const LONG: u8 = 3;

impl Bounds {
    pub(super) const NONE: Self = Self {
        acquires: [0; 3],
        renewals: 0,
        late: 0,
        losses: 0,
        wipes: 0,
        forgets: 0,
        forced: 0,
        crashes: 0,
        pods: 1,
        restarts: 0,
        breaks: 0,
        ends: false,
        reserves: false,
        whole: false,
        unfenced: false,
        plain: false,
        benign: false,
        polls: false,
        lease: 2,
        delay: 0,
    };
}

const ONE_EACH: Bounds = Bounds {
    acquires: [1, 0, 1],
    ..Bounds::NONE
};

/// Holders release, and stop cleanly.
pub(super) const ENDS: Bounds = Bounds {
    ends: true,
    ..ONE_EACH
};
/// The same with a mark or a renewal whose replies are all lost.
pub(super) const LOST_REPLIES: Bounds = Bounds { losses: 1, ..ENDS };
/// A restarted holder adopts a pod whose object was deleted by force.
pub(super) const FORCED: Bounds = Bounds {
    acquires: [2, 0, 1],
    forced: 1,
    crashes: 1,
    whole: true,
    ..ENDS
};
/// The lock goes to B and comes back.
pub(super) const RETURN: Bounds = Bounds {
    acquires: [2, 0, 1],
    ..Bounds::NONE
};
/// B does not fence, and passes the lock back.
pub(super) const PLAIN: Bounds = Bounds {
    plain: true,
    reserves: true,
    ..ENDS
};
/// A pod without the volume: delays that are raised, and arrive late.
pub(super) const UNFENCED: Bounds = Bounds {
    unfenced: true,
    late: 1,
    pods: 0,
    ..ONE_EACH
};
/// All masters lose their memory.
pub(super) const TOTAL_LOSS: Bounds = Bounds {
    late: 0,
    wipes: 3,
    ..UNFENCED
};
/// Renewals that are late or reach a part of the masters.
pub(super) const RENEWALS: Bounds = Bounds {
    renewals: 1,
    late: 1,
    ..ONE_EACH
};
/// Renewals and reserves.
pub(super) const RESERVES: Bounds = Bounds {
    renewals: 1,
    reserves: true,
    whole: true,
    ..ENDS
};
/// A sibling wins by the reservation of the cluster, and leaves.
pub(super) const SIBLING: Bounds = Bounds {
    acquires: [1, 1, 1],
    renewals: 1,
    whole: true,
    ..ENDS
};
/// A master loses its memory while a reservation exists.
pub(super) const WIPE: Bounds = Bounds {
    renewals: 1,
    wipes: 1,
    ..ONE_EACH
};
/// One master misbehaves, and the last round did not reach another one. Then only evidence protects: the
/// agent polls, and B waits one tick.
pub(super) const MISBEHAVES: Bounds = Bounds {
    forgets: 1,
    polls: true,
    delay: 1,
    ..ONE_EACH
};
/// Two attempts of A, on one master each.
pub(super) const TWO_ATTEMPTS: Bounds = Bounds {
    acquires: [2, 1, 1],
    ..Bounds::NONE
};
/// The holder of A dies, and its sibling adopts.
pub(super) const BENIGN: Bounds = Bounds {
    acquires: [1, 1, 1],
    renewals: 6,
    crashes: 1,
    benign: true,
    ..Bounds::NONE
};
/// All candidates of A die.
pub(super) const DEATH: Bounds = Bounds {
    acquires: [1, 1, 1],
    crashes: 2,
    ..Bounds::NONE
};
/// The lock is broken, and the agent is restarted.
pub(super) const BREAK: Bounds = Bounds {
    renewals: 1,
    breaks: 1,
    restarts: 1,
    ..ONE_EACH
};
/// The lock goes to B and comes back by clean ends.
pub(super) const BACK: Bounds = Bounds {
    acquires: [2, 0, 1],
    pods: 2,
    benign: true,
    ..ENDS
};

/// Wider bounds, which take minutes each. `make model` explores them.
pub(super) const DEEP: [(&str, Bounds); 6] = [
    (
        "reserves, in parts",
        Bounds {
            whole: false,
            ..RESERVES
        },
    ),
    (
        "two wipes",
        Bounds {
            acquires: [1, 1, 1],
            renewals: 2,
            wipes: 2,
            ..Bounds::NONE
        },
    ),
    (
        "forced, in parts",
        Bounds {
            whole: false,
            ..FORCED
        },
    ),
    (
        "sibling, in parts",
        Bounds {
            whole: false,
            ..SIBLING
        },
    ),
    (
        "repeats",
        Bounds {
            renewals: 2,
            late: 1,
            ..SIBLING
        },
    ),
    (
        "renewals and a return",
        Bounds {
            acquires: [2, 0, 1],
            renewals: 2,
            late: 1,
            ..Bounds::NONE
        },
    ),
];
