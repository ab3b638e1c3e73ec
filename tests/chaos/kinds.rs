//! Lists all kinds of faults, by name.

/// The object of a fault, which decides the faults that exclude each other: each has a lane of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The network between one process and some masters.
    Network,
    /// An operator.
    Operator,
    /// A `redlock run`, or a process that it started.
    Run,
    Master,
    /// Three of the five masters at once. If they lose their memory, the candidates are killed, too.
    Majority,
    /// Single keys, while no other fault is active, because such a master misbehaves.
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Delay,
    LoseRequests,
    LoseReplies,
    BlackHole,
    Reset,
    StopOperator,
    KillOperator,
    FreezeOperator,
    StopRun,
    KillWrapper,
    FreezeWrapper,
    KillGuardian,
    KillCommand,
    FreezeCommand,
    FreezeMaster,
    MasterDown,
    RestartEmpty,
    RestartAof,
    FlushAll,
    DeleteMeta,
    ScriptFlush,
    EvictionPolicy,
    TakeRight,
    UserOff,
    ClientPause,
    FreezeMajority,
    EmptyMajority,
    DeleteLease,
}

impl Kind {
    pub const ALL: [Self; 28] = [
        Self::Delay,
        Self::LoseRequests,
        Self::LoseReplies,
        Self::BlackHole,
        Self::Reset,
        Self::StopOperator,
        Self::KillOperator,
        Self::FreezeOperator,
        Self::StopRun,
        Self::KillWrapper,
        Self::FreezeWrapper,
        Self::KillGuardian,
        Self::KillCommand,
        Self::FreezeCommand,
        Self::FreezeMaster,
        Self::MasterDown,
        Self::RestartEmpty,
        Self::RestartAof,
        Self::FlushAll,
        Self::DeleteMeta,
        Self::ScriptFlush,
        Self::EvictionPolicy,
        Self::TakeRight,
        Self::UserOff,
        Self::ClientPause,
        Self::FreezeMajority,
        Self::EmptyMajority,
        Self::DeleteLease,
    ];

    pub fn all_of(of: Of) -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| kind.of() == of).collect()
    }

    pub const fn of(self) -> Of {
        match self {
            Self::Delay | Self::LoseRequests | Self::LoseReplies | Self::BlackHole | Self::Reset => {
                Of::Network
            }
            Self::StopOperator | Self::KillOperator | Self::FreezeOperator => Of::Operator,
            Self::StopRun
            | Self::KillWrapper
            | Self::FreezeWrapper
            | Self::KillGuardian
            | Self::KillCommand
            | Self::FreezeCommand => Of::Run,
            Self::FreezeMajority | Self::EmptyMajority => Of::Majority,
            Self::DeleteLease => Of::Keys,
            _ => Of::Master,
        }
    }

    pub const fn what(self) -> &'static str {
        match self {
            Self::Delay => "network: delay",
            Self::LoseRequests => "network: requests lost",
            Self::LoseReplies => "network: replies lost",
            Self::BlackHole => "network: black hole",
            Self::Reset => "network: reset",
            Self::StopOperator => "operator: SIGTERM",
            Self::KillOperator => "operator: kill -9",
            Self::FreezeOperator => "operator: SIGSTOP past its lease",
            Self::StopRun => "run: SIGTERM",
            Self::KillWrapper => "run: kill -9 of the wrapper",
            Self::FreezeWrapper => "run: SIGSTOP of the wrapper past its lease",
            Self::KillGuardian => "run: kill -9 of the guardian",
            Self::KillCommand => "run: kill -9 of the command",
            Self::FreezeCommand => "run: SIGSTOP of the command past its lease",
            Self::FreezeMaster => "master: SIGSTOP",
            Self::MasterDown => "master: down for a while",
            Self::RestartEmpty => "master: restarted empty",
            Self::RestartAof => "master: restarted with its AOF",
            Self::FlushAll => "master: FLUSHALL",
            Self::DeleteMeta => "master: DEL of seal and registers",
            Self::ScriptFlush => "master: SCRIPT FLUSH",
            Self::EvictionPolicy => "master: maxmemory-policy changed",
            Self::TakeRight => "master: ACL, a right taken away",
            Self::UserOff => "master: ACL, user off and disconnected",
            Self::ClientPause => "master: CLIENT PAUSE",
            Self::FreezeMajority => "three masters: SIGSTOP at once",
            Self::EmptyMajority => "three masters: FLUSHALL, candidates anew",
            Self::DeleteLease => "one or two masters: DEL of a live lease",
        }
    }

    /// Reports whether the fault takes the seal: the master has no vote until it is sealed again.
    pub const fn takes_the_seal(self) -> bool {
        matches!(
            self,
            Self::MasterDown | Self::RestartEmpty | Self::RestartAof | Self::FlushAll | Self::DeleteMeta
        )
    }
}
