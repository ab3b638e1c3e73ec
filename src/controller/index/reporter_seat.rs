//! Follows one of the locks that elect a reporter.

use std::time::Duration;

use super::reporter::View;
use crate::lease::{BootInstant, LockName};

/// The time for which a seat that another replica lost is left free for the coordinator.
const COORDINATOR_FIRST: Duration = Duration::from_millis(100);
/// The time for which a seat that this replica left is left free.
const LEFT: Duration = Duration::from_secs(2);

/// One of the locks that elect a reporter.
#[derive(Debug)]
pub(super) struct ReporterSeat {
    lock: LockName,
    state: SeatState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeatState {
    Mine {
        since: BootInstant,
    },
    /// Another replica reports.
    Taken,
    Free {
        since: BootInstant,
        /// Whether this replica had the seat.
        was_mine: bool,
    },
}

impl ReporterSeat {
    pub(super) fn new(lock: LockName, now: BootInstant) -> Self {
        Self {
            lock,
            state: SeatState::Free {
                since: now,
                was_mine: false,
            },
        }
    }

    pub(super) const fn lock(&self) -> &LockName {
        &self.lock
    }

    /// Records the state of the lock. Returns whether this replica became the reporter, or ceased to be it.
    pub(super) fn observe(&mut self, seen: &View, now: BootInstant) -> bool {
        let before = self.is_mine();
        self.state = match (seen, self.state) {
            (View::Mine, mine @ SeatState::Mine { .. }) => mine,
            (View::Mine, SeatState::Taken | SeatState::Free { .. }) => SeatState::Mine { since: now },
            (View::Held { .. }, _) => SeatState::Taken,
            (View::Free, free @ SeatState::Free { .. }) => free,
            (View::Free, before @ (SeatState::Taken | SeatState::Mine { .. })) => SeatState::Free {
                since: now,
                was_mine: matches!(before, SeatState::Mine { .. }),
            },
        };
        before != self.is_mine()
    }

    pub(super) const fn is_mine(&self) -> bool {
        matches!(self.state, SeatState::Mine { .. })
    }

    pub(super) fn absent_for(&self, now: BootInstant) -> Option<Duration> {
        match self.state {
            SeatState::Free { since, .. } => Some(now.since(since)),
            SeatState::Mine { .. } | SeatState::Taken => None,
        }
    }

    /// Returns how long ago this replica lost or left the seat; `None` if another one has had it since.
    pub(super) fn left_for(&self, now: BootInstant) -> Option<Duration> {
        match self.state {
            SeatState::Free {
                since,
                was_mine: true,
            } => Some(now.since(since)),
            SeatState::Free { was_mine: false, .. } | SeatState::Mine { .. } | SeatState::Taken => None,
        }
    }

    /// Reports whether this replica contends for the seat beside a coordinator whose Lease was last renewed at `renewed`.
    pub(super) fn is_contended_beside(
        &self,
        renewed: BootInstant,
        contended: bool,
        now: BootInstant,
    ) -> bool {
        match self.state {
            SeatState::Mine { since } => renewed <= since,
            SeatState::Taken => false,
            SeatState::Free { since, was_mine } => {
                contended || now.since(since) >= if was_mine { LEFT } else { COORDINATOR_FIRST }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cluster: &str, identity: &str) -> View {
        View::Held {
            cluster: cluster.parse().unwrap(),
            identity: identity.to_owned(),
        }
    }

    fn free(since: BootInstant) -> ReporterSeat {
        ReporterSeat::new(LockName::internal("reporter", "u").unwrap(), since)
    }

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn reporter_is_absent_from_when_its_lock_was_first_seen_free() {
        let mut seat = free(at(1_000));
        assert!(!seat.observe(&View::Free, at(3_000)));
        assert_eq!(seat.absent_for(at(4_000)), Some(Duration::from_secs(3)));
        assert!(!seat.observe(&held("eu/u", "other"), at(5_000)));
        assert_eq!(seat.absent_for(at(5_000)), None);
        assert!(seat.observe(&View::Mine, at(6_000)));
        assert!(seat.observe(&View::Free, at(7_000)));
        assert_eq!(seat.absent_for(at(9_000)), Some(Duration::from_secs(2)));
    }

    #[test]
    fn free_seat_is_taken_beside_a_coordinator_until_it_renews_its_lease() {
        let mut seat = free(at(0));
        seat.observe(&held("eu/u", "coordinator"), at(1_000));
        assert!(!seat.is_contended_beside(at(900), false, at(1_000)));
        seat.observe(&View::Free, at(3_000));
        assert!(!seat.is_contended_beside(at(900), false, at(3_099)));
        assert!(seat.is_contended_beside(at(900), false, at(3_100)));
        assert!(seat.is_contended_beside(at(3_050), true, at(3_051)));
        seat.observe(&View::Mine, at(3_600));
        assert!(seat.is_contended_beside(at(3_600), true, at(6_000)));
        assert!(!seat.is_contended_beside(at(5_900), true, at(6_000)));
        assert_eq!(seat.left_for(at(6_000)), None);
        seat.observe(&View::Free, at(6_100));
        assert_eq!(seat.left_for(at(6_200)), Some(Duration::from_millis(100)));
        assert!(
            !seat.is_contended_beside(at(5_900), false, at(8_099)),
            "it was left"
        );
        assert!(seat.is_contended_beside(at(5_900), false, at(8_100)));
    }
}
