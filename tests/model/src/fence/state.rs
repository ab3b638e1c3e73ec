//! The whole state: masters, leases, one pod of cluster A, and the used part of the bounds.
//!
//! Times are ticks from now, so that states that differ only in the time of day are one. Zero is over.

pub(super) const MASTERS: usize = 3;
pub(super) const MAJORITY: u32 = 2;
pub(super) const ALL: u8 = 0b111;
/// Number of leases that are ever requested.
pub(super) const LEASES: usize = 4;
/// The `first` of a mark if the merged masters had different values.
pub(super) const SPLIT: u8 = u8::MAX;
/// The lease of a master without a lease.
pub(super) const NO_LEASE: u8 = u8::MAX;

/// Two clusters; A has two candidates and the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Cluster {
    #[default]
    A,
    B,
}

/// Returns the cluster of a candidate: 0 and 1 belong to A, 2 to B.
pub(super) const fn cluster_of(candidate: u8) -> Cluster {
    if candidate == 2 { Cluster::B } else { Cluster::A }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reserved {
    #[default]
    Free,
    For(Cluster),
    /// The lock was broken.
    ForNone,
}

/// The mark of one token; token 0 stands for no mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mark {
    pub(super) token: u8,
    pub(super) first: u8,
    pub(super) cluster: Cluster,
    /// The lease to which the mark belongs.
    pub(super) lease: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Seal {
    Sealed,
    /// The master lost its memory, and may be sealed again after these ticks.
    Waits(u8),
}

/// The registers that a seal restores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Registers {
    pub(super) counter: u8,
    pub(super) held: u8,
    pub(super) held_floor: u8,
    pub(super) clean: u8,
    pub(super) closed: u8,
    /// Token and ticks.
    pub(super) delay: (u8, u8),
    pub(super) mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Master {
    pub(super) seal: Seal,
    pub(super) registers: Registers,
    pub(super) lease: u8,
    pub(super) lease_left: u8,
    pub(super) reserved: Reserved,
    pub(super) reserved_left: u8,
}

impl Master {
    pub(super) const NEW: Self = Self {
        seal: Seal::Sealed,
        registers: Registers {
            counter: 0,
            held: 0,
            held_floor: 0,
            clean: 0,
            closed: 0,
            delay: (0, 0),
            mark: Mark {
                token: 0,
                first: 0,
                cluster: Cluster::A,
                lease: 0,
            },
        },
        lease: NO_LEASE,
        lease_left: 0,
        reserved: Reserved::Free,
        reserved_left: 0,
    };

    pub(super) fn is_sealed(&self) -> bool {
        self.seal == Seal::Sealed
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    #[default]
    Unborn,
    Granting,
    Won,
    Over,
}

/// The progress of the stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stop {
    #[default]
    Runs,
    Closed,
    Confirmed,
}

/// The command that ended the lease, while it may still reach a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum End {
    #[default]
    Nothing,
    Undo,
    Release,
    Reserve(Cluster),
}

/// A command that some masters have not executed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Flight {
    pub(super) to: u8,
    /// Whether the command was sent one tick ago.
    pub(super) late: bool,
}

/// One lease, from its first grant to its last command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lease {
    pub(super) phase: Phase,
    pub(super) candidate: u8,
    pub(super) token: u8,
    pub(super) first: u8,
    /// Whether its lineage began while pods of an earlier one may run, and for how long they may.
    pub(super) beside: bool,
    pub(super) earlier_left: u8,
    /// Masters that granted, or acknowledged the mark.
    pub(super) acks: u8,
    /// Whether a mark was sent.
    pub(super) marked: bool,
    /// Whether a majority has the mark, so that targets may start.
    pub(super) may_start: bool,
    /// Whether the holder has requested the longer delay and a majority has it.
    pub(super) raised: bool,
    pub(super) raise_acks: u8,
    /// The end of the lease as the holder believes it, and the end of the wait before the mark.
    pub(super) valid: u8,
    pub(super) delay: u8,
    pub(super) stop: Stop,
    pub(super) crashed: bool,
    pub(super) grant: Flight,
    pub(super) renew: Flight,
    pub(super) renew_acks: u8,
    pub(super) mark: Flight,
    pub(super) raise: Flight,
    pub(super) end: End,
    pub(super) ends: Flight,
    /// Masters where the end is repeated, and for how long.
    pub(super) again: u8,
    pub(super) again_left: u8,
}

impl Lease {
    pub(super) fn cluster(&self) -> Cluster {
        cluster_of(self.candidate)
    }

    pub(super) fn holds(&self) -> bool {
        self.phase == Phase::Won && self.valid > 0
    }

    pub(super) fn may_start(&self) -> bool {
        self.holds() && self.may_start
    }

    /// Reports whether a command of the lease may still reach a master.
    fn flies(&self) -> bool {
        (self.grant.to | self.renew.to | self.mark.to | self.raise.to | self.ends.to | self.again) != 0
    }
}

/// The one pod of cluster A.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PodState {
    #[default]
    Absent,
    /// The call of the kubelet waits.
    Waiting,
    Running {
        first: u8,
        token: u8,
        until: u8,
    },
    Frozen {
        first: u8,
        token: u8,
        since: u8,
    },
    Killed {
        empty: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pod {
    pub(super) state: PodState,
    /// Whether the object of the pod was deleted by force.
    pub(super) forced: bool,
    /// Whether a holder of B may have started targets since the containers of the pod started.
    pub(super) outdated: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Used {
    pub(super) acquires: [u8; 3],
    pub(super) renewals: u8,
    pub(super) wipes: u8,
    pub(super) forgets: u8,
    pub(super) forced: u8,
    pub(super) crashes: u8,
    pub(super) pods: u8,
    pub(super) restarts: u8,
    pub(super) breaks: u8,
    pub(super) late: u8,
    pub(super) losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Broken {
    /// S8: a pod of A runs while B may start targets.
    Overlap,
    /// A pod that started before B may have started targets runs again.
    Lineage,
    /// A pod without the volume runs while B may start targets: the takeover delay was too short.
    Delay,
    /// Masters have different marks under one token.
    MarkTwice,
    /// In a benign schedule: a pod of a cluster that holds the lock was frozen or killed.
    Frozen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct State {
    pub(super) masters: [Master; MASTERS],
    pub(super) leases: [Lease; LEASES],
    pub(super) pod: Pod,
    /// The greatest token that gave the agent a permit.
    pub(super) permitted: u8,
    /// For the candidates of A: the greatest token that was won before its process began, and whether it saw
    /// that a pod was deleted by force.
    pub(super) began: [u8; 2],
    pub(super) saw_forced: [bool; 2],
    /// The time for which a pod without the volume may still run.
    pub(super) unfenced: u8,
    /// The greatest token of all.
    pub(super) ever: u8,
    pub(super) used: Used,
    pub(super) broken: Option<Broken>,
}

impl State {
    pub(super) const NEW: Self = Self {
        masters: [Master::NEW; MASTERS],
        leases: [const { NO }; LEASES],
        pod: Pod {
            state: PodState::Absent,
            forced: false,
            outdated: false,
        },
        permitted: 0,
        began: [0; 2],
        saw_forced: [false; 2],
        unfenced: 0,
        ever: 0,
        used: Used {
            acquires: [0; 3],
            renewals: 0,
            wipes: 0,
            forgets: 0,
            forced: 0,
            crashes: 0,
            pods: 0,
            restarts: 0,
            breaks: 0,
            late: 0,
            losses: 0,
        },
        broken: None,
    };

    pub(super) fn starter(&self) -> bool {
        self.leases
            .iter()
            .any(|lease| lease.cluster() == Cluster::B && lease.may_start())
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.pod.state, PodState::Running { .. })
    }

    /// Judges the state, after each step.
    pub(super) fn judge(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let starts = self.starter();
        if starts && matches!(self.pod.state, PodState::Running { .. } | PodState::Frozen { .. }) {
            self.pod.outdated = true;
        }
        self.broken = match () {
            () if starts && self.runs() => Some(Broken::Overlap),
            () if self.pod.outdated && self.runs() => Some(Broken::Lineage),
            () if starts && self.unfenced > 0 => Some(Broken::Delay),
            () if self.has_two_marks() => Some(Broken::MarkTwice),
            () => None,
        };
    }

    fn has_two_marks(&self) -> bool {
        let marks = || self.masters.iter().map(|master| master.registers.mark);
        let differs = |one: Mark, other: Mark| one.token == other.token && one != other;
        marks().any(|one| one.token > 0 && marks().any(|other| differs(one, other)))
    }

    /// Resets fields without influence, so that states that behave alike are one.
    pub(super) fn tidy(&mut self) {
        let referenced = |masters: &[Master; MASTERS], id: u8| masters.iter().any(|m| m.lease == id);
        for id in 0..LEASES {
            let lease = &mut self.leases[id];
            if lease.phase == Phase::Over {
                (lease.valid, lease.delay, lease.may_start) = (0, 0, false);
                lease.earlier_left = 0;
                (lease.acks, lease.raise_acks, lease.renew_acks) = (0, 0, 0);
                if !lease.flies() && !referenced(&self.masters, id as u8) {
                    *lease = Lease {
                        phase: Phase::Over,
                        candidate: lease.candidate,
                        token: lease.token,
                        first: if lease.beside { lease.first } else { 0 },
                        beside: lease.beside,
                        crashed: lease.crashed,
                        ..NO
                    };
                }
            }
        }
        if self.pod.state == PodState::Absent {
            self.pod = Pod::default();
        }
        for master in &mut self.masters {
            if master.lease_left == 0 {
                master.lease = NO_LEASE;
            }
            if master.reserved_left == 0 {
                master.reserved = Reserved::Free;
            }
        }
    }
}

const NO: Lease = Lease {
    phase: Phase::Unborn,
    candidate: 0,
    token: 0,
    first: 0,
    beside: false,
    earlier_left: 0,
    acks: 0,
    marked: false,
    may_start: false,
    raised: false,
    raise_acks: 0,
    valid: 0,
    delay: 0,
    stop: Stop::Runs,
    crashed: false,
    grant: Flight { to: 0, late: false },
    renew: Flight { to: 0, late: false },
    renew_acks: 0,
    mark: Flight { to: 0, late: false },
    raise: Flight { to: 0, late: false },
    end: End::Nothing,
    ends: Flight { to: 0, late: false },
    again: 0,
    again_left: 0,
};
