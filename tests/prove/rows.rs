//! Lists the faults. Each fault is a row of the table.

use crate::common::cgroups;
use crate::work::Work;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    NetworkCut,
    WrapperFrozen,
    ChildFrozen,
    WrapperKilled,
    GuardianKilled,
    BothKilled,
    MastersDown,
    TermIgnored,
    DaemonInGroup,
    DaemonLeft,
    Starved,
    StarvedFrozen,
    AllFrozen,
    GroupLeft,
    GroupContained,
    GroupContainedFrozen,
}

/// The promise of `redlock run` for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing is written after the lease.
    Kept,
    /// No wrapper can keep this promise; the token can.
    ByToken,
}

impl Row {
    const ALL: [Self; 16] = [
        Self::NetworkCut,
        Self::WrapperFrozen,
        Self::ChildFrozen,
        Self::WrapperKilled,
        Self::GuardianKilled,
        Self::BothKilled,
        Self::MastersDown,
        Self::TermIgnored,
        Self::DaemonInGroup,
        Self::DaemonLeft,
        Self::Starved,
        Self::StarvedFrozen,
        Self::AllFrozen,
        Self::GroupLeft,
        Self::GroupContained,
        Self::GroupContainedFrozen,
    ];

    /// Returns the rows that can be played on this machine.
    pub fn all() -> Vec<Self> {
        let contains = cgroups::own_or_report("the rows with --contain").is_some();
        let playable = |row: &Self| contains || row.work() != Work::WithContainedDeserter;
        Self::ALL.into_iter().filter(playable).collect()
    }

    /// Returns the name of the row in `REDLOCK_ROWS`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::NetworkCut => "network-cut",
            Self::WrapperFrozen => "wrapper-frozen",
            Self::ChildFrozen => "child-frozen",
            Self::WrapperKilled => "wrapper-killed",
            Self::GuardianKilled => "guardian-killed",
            Self::BothKilled => "both-killed",
            Self::MastersDown => "masters-down",
            Self::TermIgnored => "term-ignored",
            Self::DaemonInGroup => "daemon-in-group",
            Self::DaemonLeft => "daemon-left",
            Self::Starved => "starved",
            Self::StarvedFrozen => "starved-frozen",
            Self::AllFrozen => "all-frozen",
            Self::GroupLeft => "group-left",
            Self::GroupContained => "group-contained",
            Self::GroupContainedFrozen => "group-contained-frozen",
        }
    }

    pub fn parse(key: &str) -> Self {
        let found = Self::ALL.into_iter().find(|row| row.key() == key);
        let keys = Self::ALL.map(Self::key).join(",");
        found.unwrap_or_else(|| panic!("REDLOCK_ROWS: there is no row {key:?}; the rows are {keys}"))
    }

    pub const fn what(self) -> &'static str {
        match self {
            Self::NetworkCut => "network cut: a proxy swallows all bytes",
            Self::WrapperFrozen => "wrapper frozen (SIGSTOP), and woken after the next holder's first write",
            Self::ChildFrozen => "child frozen, then network cut; child woken at `valid_until`",
            Self::WrapperKilled => "wrapper killed (SIGKILL)",
            Self::GuardianKilled => "guardian killed; wrapper frozen once there is another",
            Self::BothKilled => "wrapper and guardian killed together",
            Self::MastersDown => "all masters killed; new ones after the lease",
            Self::TermIgnored => "child ignores SIGTERM; network cut",
            Self::DaemonInGroup => "a daemon in the child's group ignores SIGTERM; network cut",
            Self::DaemonLeft => "child ends and leaves such a daemon",
            Self::Starved => "16 to 64 busy processes take the CPU; child ignores SIGTERM; network cut",
            Self::StarvedFrozen => "16 to 64 busy processes take the CPU; wrapper frozen",
            Self::AllFrozen => "wrapper, guardian and child frozen together, and woken under the next holder",
            Self::GroupLeft => "a process leaves the group (setsid), without `--contain`; network cut",
            Self::GroupContained => {
                "`--contain`: a process leaves the group (setsid) and ignores SIGTERM; network cut"
            }
            Self::GroupContainedFrozen => {
                "`--contain`: a process leaves the group (setsid) and ignores SIGTERM; wrapper frozen"
            }
        }
    }

    pub const fn promise(self) -> Promise {
        match self {
            Self::AllFrozen | Self::GroupLeft => Promise::ByToken,
            _ => Promise::Kept,
        }
    }

    pub const fn work(self) -> Work {
        match self {
            Self::TermIgnored | Self::Starved => Work::IgnoresTerm,
            Self::DaemonInGroup => Work::WithDaemon,
            Self::DaemonLeft => Work::LeavesDaemon,
            Self::GroupLeft => Work::WithDeserter,
            Self::GroupContained | Self::GroupContainedFrozen => Work::WithContainedDeserter,
            _ => Work::Plain,
        }
    }

    /// Reports whether the row ends with a release, so that there is no end of a lease to compare with.
    pub const fn releases(self) -> bool {
        matches!(self, Self::DaemonLeft)
    }

    /// Reports whether the row takes the whole machine.
    pub const fn alone(self) -> bool {
        matches!(self, Self::Starved | Self::StarvedFrozen)
    }
}
