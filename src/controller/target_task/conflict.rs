//! Detects another writer that repeatedly undoes the state a lock requires: starts a stopped target, or stops a started
//! one. Pure.

use std::{collections::VecDeque, time::Duration};

use super::turns::Lane;
use crate::lease::BootInstant;

/// The number of times that this may happen within [`WINDOW`] before it counts as a conflict: a person who
/// tries a few times, or one rollout of a tool that applies a manifest with another number of replicas, is
/// not a conflict.
const LIMIT: usize = 5;
/// The time for which an occurrence counts. A conflict ends when no more than [`LIMIT`] occurrences count.
const WINDOW: Duration = Duration::from_secs(600);
/// The first pause of a conflict, doubled with each further occurrence. During a pause nothing is stopped or started:
/// it is short because the work must not run here, and not zero because of the load on the API server.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// The recent writes of another writer to one target.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// The times at which the other writer stopped a target that runs here.
    starts: ConflictBackoff,
    /// The times at which the other writer started a target that is stopped here.
    stops: ConflictBackoff,
    /// The last write of the other writer.
    last: String,
}

impl Conflicts {
    pub(super) fn add(&mut self, lane: Lane, write: String, now: BootInstant) {
        self.backoff(lane).add(now);
        self.last = write;
    }

    pub(super) fn is_conflict(&mut self, lane: Lane, now: BootInstant) -> bool {
        self.backoff(lane).is_conflict(now)
    }

    /// Reports whether the next stop or start still has to wait.
    pub(super) fn rests(&mut self, lane: Lane, now: BootInstant) -> bool {
        self.backoff(lane).rests_until(now).is_some()
    }

    fn backoff(&mut self, lane: Lane) -> &mut ConflictBackoff {
        match lane {
            Lane::Start => &mut self.starts,
            Lane::Stop => &mut self.stops,
        }
    }

    /// Returns the message about the conflict over the target of this name.
    pub(super) fn message(&self, lane: Lane, name: &str) -> String {
        let last = &self.last;
        match lane {
            Lane::Start => format!(
                "target {name}: {last} repeatedly while this cluster holds the lock; the operator starts the target \
                 again with growing delays; to keep the target stopped on purpose, annotate the lock with \
                 redlock.dev/paused, or set its state: SteppedDown"
            ),
            Lane::Stop => format!(
                "target {name}: {last} repeatedly while this cluster stands by; the operator stops the target again \
                 with growing delays"
            ),
        }
    }
}

/// The recent occurrences.
#[derive(Debug, Default)]
struct ConflictBackoff(VecDeque<BootInstant>);

impl ConflictBackoff {
    fn add(&mut self, now: BootInstant) {
        self.forget(now);
        self.0.push_back(now);
    }

    fn is_conflict(&mut self, now: BootInstant) -> bool {
        self.forget(now);
        self.0.len() > LIMIT
    }

    /// Returns the time until which the next stop or start waits.
    fn rests_until(&mut self, now: BootInstant) -> Option<BootInstant> {
        self.forget(now);
        let doublings = u32::try_from(self.0.len().checked_sub(LIMIT + 1)?).unwrap_or(u32::MAX);
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST);
        let until = *self.0.back()? + pause;
        (until > now).then_some(until)
    }

    fn forget(&mut self, now: BootInstant) {
        while self.0.front().is_some_and(|at| now.since(*at) > WINDOW) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_sixth_time_is_a_conflict_and_waits_longer_each_time() {
        let mut backoff = ConflictBackoff::default();
        for time in 0..5 {
            backoff.add(at(time));
            assert_eq!(
                (backoff.is_conflict(at(time)), backoff.rests_until(at(time))),
                (false, None)
            );
        }
        let mut now = 10;
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            backoff.add(at(now));
            assert!(backoff.is_conflict(at(now)));
            assert_eq!(backoff.rests_until(at(now)), Some(at(now + pause)));
            now += pause;
            assert_eq!(backoff.rests_until(at(now)), None);
        }
    }

    #[test]
    fn it_ends_by_itself() {
        let mut backoff = ConflictBackoff::default();
        (0..20).for_each(|_| backoff.add(at(0)));
        assert!(backoff.is_conflict(at(600)));
        assert!(!backoff.is_conflict(at(601)));
    }

    #[test]
    fn starts_and_stops_are_in_conflict_by_themselves() {
        let mut conflicts = Conflicts::default();
        (0..6).for_each(|time| conflicts.add(Lane::Start, format!("kubectl scaled it to {time}"), at(0)));
        assert!(conflicts.is_conflict(Lane::Start, at(0)) && conflicts.rests(Lane::Start, at(0)));
        assert!(!conflicts.is_conflict(Lane::Stop, at(0)) && !conflicts.rests(Lane::Stop, at(0)));
        assert!(
            !conflicts.rests(Lane::Start, at(1)),
            "it waits for a second first"
        );
        let text = conflicts.message(Lane::Start, "web");
        let wanted = "target web: kubectl scaled it to 5 repeatedly while this cluster holds the lock";
        assert!(text.starts_with(wanted), "{text}");
    }
}
