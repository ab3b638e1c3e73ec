//! Decides how the operator takes a Lease and when a stop is confirmed. Pure: `now` is an argument.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::record::{Record, stop_after};
use crate::{api::plan::LEASE_STOP, lease::BootInstant, targets::read::Read};

/// The knowledge of this replica about the operator's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    /// The record has not been seen to be the operator's.
    #[default]
    Open,
    /// The operator's record, since the answer that showed it first. A record with another `acquired` is another hold:
    /// a candidate held the Lease in between.
    Held {
        acquired: Option<Timestamp>,
        since: BootInstant,
    },
    /// The Lease is missing, since the answer that showed it first. Only a target that leaves the lock waits without a
    /// record: a leader that runs creates its Lease again.
    Absent { since: BootInstant },
}

/// What a stop does about a Lease that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingLease {
    /// The operator creates it, so that no candidate leads.
    Create,
    /// The operator creates nothing that would stay after the lock.
    Await,
}

/// The next move of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Replace the record, or create it. `again`: the operator held the Lease before, and another writer took it.
    Take { again: bool },
    /// A leader may still run until this instant.
    Wait(BootInstant),
    /// No leader runs any more.
    Stopped,
}

impl Hold {
    /// Decides while the Lease is missing and the target leaves the lock. A leader that runs creates it again within `wait`.
    pub(super) fn absent(&mut self, wait: Duration, read: Read) -> Move {
        let since = match *self {
            Self::Absent { since } => since,
            Self::Open | Self::Held { .. } => read.answered,
        };
        *self = Self::Absent { since };
        let until = since + wait;
        if read.asked >= until {
            Move::Stopped
        } else {
            Move::Wait(until)
        }
    }

    /// Decides on a record that was read. `own` is the holder identity of the operator in this cluster,
    /// `stop` the declared stop time, `doubt` whether an unanswered write may still free the Lease.
    pub(super) fn next(
        &mut self,
        found: Option<&Record>,
        own: &str,
        stop: Option<Duration>,
        read: Read,
        doubt: bool,
    ) -> Move {
        let again = matches!(self, Self::Held { .. });
        let Some(found) = found.filter(|found| found.holder == own && !doubt) else {
            *self = Self::Open;
            return Move::Take {
                again: again && !doubt,
            };
        };
        let since = match *self {
            Self::Held { acquired, since } if acquired == found.acquired => since,
            Self::Held { .. } | Self::Absent { .. } | Self::Open => read.answered,
        };
        *self = Self::Held {
            acquired: found.acquired,
            since,
        };
        let until = since + wait(found, stop);
        // The record is the operator's at a moment after the wait, so no candidate took the Lease in between.
        if read.asked >= until {
            Move::Stopped
        } else {
            Move::Wait(until)
        }
    }

    /// Records the answer to a write that took the Lease.
    pub(super) fn taken(&mut self, written: &Record, answered: BootInstant) {
        *self = Self::Held {
            acquired: written.acquired,
            since: answered,
        };
    }
}

/// Returns the time for which a leader may continue to run after its record was replaced. A declared stop
/// time is used unchanged.
pub(super) fn wait(found: &Record, stop: Option<Duration>) -> Duration {
    stop.unwrap_or_else(|| needed(found).max(LEASE_STOP))
}

/// Returns the time after which no leader of a missing Lease runs. `last` is the last record that was read.
pub(super) fn wait_without_record(last: Option<&Record>, stop: Option<Duration>) -> Duration {
    last.map_or_else(|| stop.unwrap_or(LEASE_STOP), |last| wait(last, stop))
}

/// Returns the stop time that the duration of the last candidate requires.
pub(super) fn needed(found: &Record) -> Duration {
    let (duration, _) = found.last_candidate();
    duration.map_or(LEASE_STOP, stop_after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: &str = "redlock.dev/eu";

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn read(seconds: u64) -> Read {
        Read {
            asked: at(seconds),
            answered: at(seconds),
        }
    }

    fn record(holder: &str, acquired: i64) -> Record {
        Record {
            holder: holder.to_owned(),
            acquired: Some(Timestamp::from_second(acquired).unwrap()),
            former_duration: Some(Duration::from_secs(15)),
            ..Record::default()
        }
    }

    #[test]
    fn stop_is_confirmed_after_the_wait_by_a_read_of_the_same_record() {
        let mut hold = Hold::default();
        assert_eq!(
            hold.next(Some(&record("web-0_x", 1)), OWN, None, read(0), false),
            Move::Take { again: false }
        );
        let own = record(OWN, 5);
        hold.taken(&own, at(2));
        assert_eq!(
            hold.next(Some(&own), OWN, None, read(29), false),
            Move::Wait(at(30))
        );
        let early = Read {
            asked: at(29),
            answered: at(31),
        };
        assert_eq!(
            hold.next(Some(&own), OWN, None, early, false),
            Move::Wait(at(30)),
            "asked too early"
        );
        assert_eq!(hold.next(Some(&own), OWN, None, read(30), false), Move::Stopped);
    }

    #[test]
    fn lease_that_stays_missing_is_not_created_for_a_lock_that_ends() {
        let mut hold = Hold::default();
        assert_eq!(hold.absent(LEASE_STOP, read(2)), Move::Wait(at(30)));
        assert_eq!(hold.absent(LEASE_STOP, read(29)), Move::Wait(at(30)));
        assert_eq!(hold.absent(LEASE_STOP, read(30)), Move::Stopped);
        // A leader creates it again.
        let leads = record("web-0_x", 1);
        assert_eq!(
            hold.next(Some(&leads), OWN, None, read(31), false),
            Move::Take { again: false }
        );
        hold.taken(&record(OWN, 31), at(31));
        assert_eq!(hold.absent(Duration::from_secs(5), read(32)), Move::Wait(at(37)));
    }

    #[test]
    fn missing_or_free_lease_is_taken_and_waited_for_as_well() {
        for found in [None, Some(record("", 1))] {
            let mut hold = Hold::default();
            let next = hold.next(found.as_ref(), OWN, None, read(0), false);
            assert_eq!(next, Move::Take { again: false });
            hold.taken(&record(OWN, 1), at(0));
            assert_eq!(
                hold.next(Some(&record(OWN, 1)), OWN, None, read(1), false),
                Move::Wait(at(28))
            );
        }
    }

    #[test]
    fn another_holder_in_between_begins_the_wait_anew() {
        let mut hold = Hold::default();
        hold.taken(&record(OWN, 5), at(0));
        assert_eq!(
            hold.next(Some(&record("web-1_x", 9)), OWN, None, read(20), false),
            Move::Take { again: true }
        );
        // A sibling took it back before this replica could.
        assert_eq!(
            hold.next(Some(&record(OWN, 10)), OWN, None, read(21), false),
            Move::Wait(at(49))
        );
    }

    #[test]
    fn new_replica_counts_from_its_first_read() {
        let mut hold = Hold::default();
        assert_eq!(
            hold.next(Some(&record(OWN, 5)), OWN, None, read(100), false),
            Move::Wait(at(128))
        );
    }

    #[test]
    fn record_of_another_clusters_operator_is_replaced() {
        let mut hold = Hold::default();
        let other = record("redlock.dev/us", 5);
        assert_eq!(
            hold.next(Some(&other), OWN, None, read(0), false),
            Move::Take { again: false }
        );
    }

    #[test]
    fn unanswered_free_makes_the_operator_take_its_own_record_again() {
        let mut hold = Hold::default();
        hold.taken(&record(OWN, 5), at(0));
        assert_eq!(
            hold.next(Some(&record(OWN, 5)), OWN, None, read(100), true),
            Move::Take { again: false }
        );
    }

    #[test]
    fn longer_duration_of_a_candidate_makes_the_wait_longer_unless_one_is_declared() {
        let mut long = record(OWN, 5);
        long.former_duration = Some(Duration::from_secs(60));
        assert_eq!(wait(&long, None), Duration::from_secs(112));
        assert_eq!(
            wait(&long, Some(Duration::from_secs(12))),
            Duration::from_secs(12)
        );
        long.former_duration = Some(Duration::from_secs(3));
        assert_eq!(wait(&long, None), LEASE_STOP);
        long.former_duration = None;
        assert_eq!(wait(&long, None), LEASE_STOP);
    }

    proptest! {
        /// Regardless of how candidates, siblings and reads interleave, a stop is confirmed only if every
        /// record of a candidate was replaced at least the wait before.
        #[test]
        fn no_stop_is_confirmed_within_the_wait_after_a_candidate(
            steps in proptest::collection::vec((0u8..5, 1u64..20), 1..60)
        ) {
            let mut hold = Hold::default();
            let (mut now, mut stamp, mut last_candidate) = (0, 0, None);
            let mut stored = record("", 0);
            for (what, pause) in steps {
                now += pause;
                if stored.holder != OWN {
                    last_candidate = Some(now);
                }
                match what {
                    0 => {
                        stamp += 1;
                        stored = record("web-0_x", stamp);
                    }
                    1 if !stored.is_operators() => {
                        stamp += 1;
                        stored = record(OWN, stamp);
                    }
                    _ => match hold.next(Some(&stored), OWN, None, read(now), false) {
                        Move::Take { .. } => {
                            stamp += 1;
                            stored = record(OWN, stamp);
                            hold.taken(&stored, at(now));
                        }
                        Move::Wait(_) => {}
                        Move::Stopped => {
                            let since = last_candidate.map_or(u64::MAX, |last| now - last);
                            prop_assert!(since >= 28 && stored.holder == OWN, "{since} s after a candidate");
                        }
                    },
                }
                if stored.holder != OWN {
                    last_candidate = Some(now);
                }
            }
        }
    }
}
