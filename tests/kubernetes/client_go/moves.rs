//! Lists the causes that move the locks to the other cluster, and the faults during the move.

use std::path::Path;

use redlock_testkit::Mode;

use super::side::Side;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    HandOver,
    /// The cluster of the holder loses all masters.
    Cut,
    /// The operator of the holder is killed, and the locks are handed over before it is started again.
    Killed,
    /// The leaders end once the operator has taken the Leases: with ReleaseOnCancel each writes its release over the record.
    LeadersEnd,
    /// The operator is killed once it has taken the Leases, and started again.
    KilledInTake,
    /// The Leases are deleted by hand, on standby and once the operator of the holder has taken them.
    LeasesDeleted,
}

impl Move {
    pub const ALL: [Self; 6] = [
        Self::HandOver,
        Self::Cut,
        Self::Killed,
        Self::LeadersEnd,
        Self::KilledInTake,
        Self::LeasesDeleted,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::HandOver => "hand-over (`state: SteppedDown`)",
            Self::Cut => "the holder's cluster is cut off from the masters",
            Self::Killed => "kill -9 of the holder's operator, then hand-over, then it is started again",
            Self::LeadersEnd => {
                "hand-over, and the leader ends by SIGTERM once the operator has taken the Lease (ReleaseOnCancel)"
            }
            Self::KilledInTake => {
                "hand-over, and kill -9 of the operator once it has taken the Lease; it is started again"
            }
            Self::LeasesDeleted => "the Lease is deleted by hand on standby, and during the hand-over",
        }
    }

    /// Prepares the cluster on standby for the move.
    pub async fn prepare(self, standby: &Side) {
        if self == Self::LeasesDeleted {
            standby.delete_leases();
            standby.taken().await;
            standby.stands_by().await;
        }
    }

    pub async fn begin(self, from: &mut Side, folder: &Path) {
        let hand_over = ", state: SteppedDown, reason: test";
        match self {
            Self::HandOver => from.declare(hand_over),
            Self::Cut => from.set_masters(Mode::BlackHole),
            Self::Killed => {
                from.operator.as_mut().unwrap().child.kill();
                from.declare(hand_over);
                from.start_operator().await;
            }
            Self::LeadersEnd => {
                from.declare(hand_over);
                from.taken().await;
                from.restart_leaders(folder);
            }
            Self::KilledInTake => {
                from.declare(hand_over);
                from.taken().await;
                from.operator.as_mut().unwrap().child.kill();
                from.start_operator().await;
            }
            Self::LeasesDeleted => {
                from.declare(hand_over);
                from.taken().await;
                from.delete_leases();
            }
        }
    }

    pub fn end(self, from: &Side) {
        if self == Self::Cut {
            from.set_masters(Mode::Pass);
        } else {
            from.declare("");
        }
    }
}
