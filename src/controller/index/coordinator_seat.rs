//! Holds a lock on the masters while this replica coordinates, to distinguish this cluster from a copy of its objects.
//!
//! Two clusters whose namespace `kube-system` has one UID, as after a restored backup of etcd, have one name on the masters.
//! Each has a Lease of its own, and so a coordinator of its own. `_coordinator/<cluster UID>/<scope>` is contended for by the
//! coordinator alone: a replica that is cut off from its API server sees its Lease expire, and leaves the lock. A replica that
//! coordinates, and sees another process renew the lock, has an API server other than that process.
//!
//! The cluster that came later is the copy: a replica that saw a coordinator of its own cluster hold the lock marks nothing.

use std::time::Duration;

use super::reporter::View;
use crate::lease::{BootInstant, ClusterId, LockName, identity::IdentityError};

/// The time for which another process holds the lock of the coordinator before it counts as one of another cluster. A former
/// coordinator sees its Lease expire after 10 s, and its lease on the masters after another 15 s.
const COPIED: Duration = Duration::from_secs(45);
/// The time after which a lock that only another process was seen to hold is contended for: its cluster may be between two
/// coordinators.
const ABANDONED: Duration = Duration::from_secs(60);

/// The coordinator of the replicas, by the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum KnownCoordinator {
    /// This replica, and it sees the masters.
    Here,
    /// Another replica.
    Elsewhere { identity: String },
    /// None, or it is not settled.
    Unsettled,
}

#[derive(Debug)]
pub(super) struct CoordinatorSeat {
    lock: LockName,
    uid: String,
    contends: bool,
    /// Whether a coordinator of this cluster was seen to hold the lock.
    was_ours: bool,
    /// The time since which another process holds the lock, while this replica coordinates.
    foreign_since: Option<BootInstant>,
    /// The time at which another process was last seen to hold it.
    foreign_at: Option<BootInstant>,
}

impl CoordinatorSeat {
    pub(super) fn new(cluster: &ClusterId, scope: &str) -> Result<Self, IdentityError> {
        Ok(Self {
            lock: LockName::internal("coordinator", &format!("{}/{scope}", cluster.uid()))?,
            uid: cluster.uid().to_owned(),
            contends: false,
            was_ours: false,
            foreign_since: None,
            foreign_at: None,
        })
    }

    pub(super) fn lock(&self) -> &LockName {
        &self.lock
    }

    /// Reports whether this replica contends for the lock.
    pub(super) const fn contends(&self) -> bool {
        self.contends
    }

    /// Records the holder of the lock. Reports whether the objects of this cluster are a copy of those of another one.
    pub(super) fn observe(&mut self, seen: &View, coordinator: &KnownCoordinator, now: BootInstant) -> bool {
        let here = *coordinator == KnownCoordinator::Here;
        match seen {
            View::Mine => (self.was_ours, self.foreign_since) = (true, None),
            View::Held { cluster, identity } if cluster.uid() == self.uid => match coordinator {
                KnownCoordinator::Elsewhere { identity: own } if own == identity => {
                    (self.was_ours, self.foreign_since) = (true, None);
                }
                KnownCoordinator::Here => {
                    self.foreign_since.get_or_insert(now);
                    self.foreign_at = Some(now);
                }
                KnownCoordinator::Elsewhere { .. } | KnownCoordinator::Unsettled => {
                    (self.foreign_since, self.foreign_at) = (None, Some(now));
                }
            },
            View::Held { .. } | View::Free => self.foreign_since = None,
        }
        let abandoned = self.foreign_at.is_none_or(|last| now >= last + ABANDONED);
        self.contends = here && (self.was_ours || abandoned);
        let since = self.foreign_since.filter(|_| !self.was_ours);
        since.is_some_and(|since| now.since(since) >= COPIED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn held(identity: &str) -> View {
        View::Held {
            cluster: "eu/u".parse().unwrap(),
            identity: identity.to_owned(),
        }
    }

    fn elsewhere(identity: &str) -> KnownCoordinator {
        KnownCoordinator::Elsewhere {
            identity: identity.to_owned(),
        }
    }

    fn seat() -> CoordinatorSeat {
        CoordinatorSeat::new(&"eu/u".parse().unwrap(), "all").unwrap()
    }

    #[test]
    fn coordinator_that_sees_another_process_hold_the_lock_is_that_of_a_copy() {
        let mut seat = seat();
        assert!(!seat.observe(&held("a1"), &KnownCoordinator::Unsettled, at(1)));
        for second in [10, 30, 54] {
            assert!(
                !seat.observe(&held("a1"), &KnownCoordinator::Here, at(second)),
                "{second}"
            );
        }
        assert!(seat.observe(&held("a1"), &KnownCoordinator::Here, at(55)));
        assert!(!seat.observe(&View::Free, &KnownCoordinator::Here, at(56)));
        assert!(!seat.contends(), "the original may be between two coordinators");
        seat.observe(&View::Free, &KnownCoordinator::Here, at(115));
        assert!(seat.contends());
    }

    /// The original changes its coordinator while a copy starts, and the copy takes the lock.
    #[test]
    fn original_is_no_copy_although_the_lock_passes_to_one() {
        let mut seat = seat();
        assert!(!seat.observe(&held("a1"), &elsewhere("a1"), at(1)));
        assert!(!seat.contends());
        assert!(!seat.observe(&View::Free, &KnownCoordinator::Here, at(2)));
        assert!(seat.contends(), "at once");
        for second in 3..200 {
            assert!(!seat.observe(&held("k1"), &KnownCoordinator::Here, at(second)));
        }
    }

    /// A former coordinator leaves the lock within the lengths of its two leases.
    #[test]
    fn former_coordinator_that_leaves_late_is_no_other_cluster() {
        let mut seat = seat();
        for second in 1..40 {
            assert!(!seat.observe(&held("a1"), &KnownCoordinator::Here, at(second)));
        }
        assert!(!seat.observe(&View::Mine, &KnownCoordinator::Here, at(41)));
        for second in 42..200 {
            assert!(!seat.observe(&held("a1"), &KnownCoordinator::Here, at(second)));
        }
    }
}
