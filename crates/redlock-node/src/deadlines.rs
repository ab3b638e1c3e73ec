//! Determines when each pod is frozen: the pure part of the guardian, and of the freezing thread of the
//! agent.

use std::{collections::BTreeMap, time::Duration};

use redlock_core::{
    BootInstant,
    fence::{FREEZE_BEFORE, REPEAT_EVERY},
};

/// The interval of the attempts after a freeze that could not be written.
pub const RETRY_FAILED: Duration = Duration::from_millis(100);

/// The end of the permit of each pod, and the time of its next freeze.
#[derive(Clone, Debug, Default)]
pub struct Deadlines(BTreeMap<String, Deadline>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Deadline {
    until: BootInstant,
    /// The time at which this end became known.
    since: BootInstant,
    last: LastFreeze,
}

/// The last attempt to write a freeze by one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastFreeze {
    None,
    Written {
        at: BootInstant,
    },
    /// The next attempt is at `again`. `written` is true if an earlier attempt succeeded.
    Failed {
        again: BootInstant,
        written: bool,
    },
}

impl Deadline {
    fn next(&self) -> BootInstant {
        match self.last {
            LastFreeze::None => self.until - FREEZE_BEFORE,
            LastFreeze::Written { at } => at + REPEAT_EVERY,
            LastFreeze::Failed { again, .. } => again,
        }
    }

    const fn was_written(&self) -> bool {
        match self.last {
            LastFreeze::None => false,
            LastFreeze::Written { .. } => true,
            LastFreeze::Failed { written, .. } => written,
        }
    }
}

impl Deadlines {
    /// Records that the pod may run until `until`, which is known since `now`. A different end is that of a
    /// later record: a freeze that is repeated for the former end stops.
    pub fn set(&mut self, uid: &str, until: BootInstant, now: BootInstant) {
        if self.0.get(uid).is_none_or(|known| known.until != until) {
            let deadline = Deadline {
                until,
                since: now,
                last: LastFreeze::None,
            };
            self.0.insert(uid.to_owned(), deadline);
        }
    }

    /// Returns the end that was set last.
    #[must_use]
    pub fn until(&self, uid: &str) -> Option<BootInstant> {
        self.0.get(uid).map(|deadline| deadline.until)
    }

    /// Removes a pod that is no longer guarded.
    pub fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Returns the pods to freeze at `now`, for the first time or again.
    #[must_use]
    pub fn due(&self, now: BootInstant) -> Vec<String> {
        let due = self.0.iter().filter(|(_, deadline)| deadline.next() <= now);
        due.map(|(uid, _)| uid.clone()).collect()
    }

    /// Reports whether the pod must be frozen at `now` by its last record.
    #[must_use]
    pub fn is_due(&self, uid: &str, now: BootInstant) -> bool {
        self.0.get(uid).is_some_and(|deadline| deadline.next() <= now)
    }

    /// Reports whether the pod may run at `now`: more time is left than a freeze needs.
    #[must_use]
    pub fn permits(&self, uid: &str, now: BootInstant) -> bool {
        self.0
            .get(uid)
            .is_some_and(|deadline| now < deadline.until - FREEZE_BEFORE)
    }

    /// Records that the freeze was written at `now`. Returns, for the first freeze by this end, the time at
    /// which it was due.
    pub fn froze(&mut self, uid: &str, now: BootInstant) -> Option<BootInstant> {
        let deadline = self.0.get_mut(uid)?;
        let first = (!deadline.was_written()).then(|| (deadline.until - FREEZE_BEFORE).max(deadline.since));
        deadline.last = LastFreeze::Written { at: now };
        first
    }

    /// Records that the freeze could not be written, and that the next attempt is at `again`.
    pub fn failed(&mut self, uid: &str, again: BootInstant) {
        if let Some(deadline) = self.0.get_mut(uid) {
            let written = deadline.was_written();
            deadline.last = LastFreeze::Failed { again, written };
        }
    }

    /// Returns the time at which the next freeze is due.
    #[must_use]
    pub fn next(&self) -> BootInstant {
        let next = self.0.values().map(Deadline::next);
        next.min().unwrap_or(BootInstant::NEVER)
    }

    pub fn pods(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos((1_000_000 + ms) * 1_000_000)
    }

    fn one(until: u64) -> Deadlines {
        let mut deadlines = Deadlines::default();
        deadlines.set("a", at(until), at(0));
        deadlines
    }

    #[test]
    fn a_pod_is_frozen_500_ms_before_its_permit_ends_and_each_second_after() {
        let mut deadlines = one(10_000);
        assert_eq!(deadlines.next(), at(9_500));
        assert!(deadlines.due(at(9_499)).is_empty());
        assert_eq!(deadlines.due(at(9_500)), ["a"]);
        assert_eq!(deadlines.froze("a", at(9_501)), Some(at(9_500)));
        assert_eq!(deadlines.next(), at(10_501));
        assert!(deadlines.due(at(10_500)).is_empty());
        assert_eq!(deadlines.due(at(10_501)), ["a"]);
        assert_eq!(deadlines.froze("a", at(10_502)), None);
    }

    #[test]
    fn a_freeze_that_failed_is_not_taken_for_a_freeze_and_is_tried_again_soon() {
        let mut deadlines = one(10_000);
        deadlines.failed("a", at(9_500) + RETRY_FAILED);
        assert_eq!(deadlines.next(), at(9_600));
        assert!(!deadlines.permits("a", at(9_501)));
        // The latency is the time since the freeze was due.
        assert_eq!(deadlines.froze("a", at(9_601)), Some(at(9_500)));
        assert_eq!(deadlines.next(), at(10_601));
        deadlines.failed("a", at(10_601) + RETRY_FAILED);
        assert_eq!(deadlines.next(), at(10_701));
        assert_eq!(deadlines.froze("a", at(10_701)), None);
    }

    #[test]
    fn a_later_record_ends_the_freeze_of_an_earlier_one() {
        let mut deadlines = one(10_000);
        deadlines.froze("a", at(9_500));
        // The same record again.
        deadlines.set("a", at(10_000), at(9_510));
        assert_eq!(deadlines.due(at(10_500)), ["a"]);
        deadlines.set("a", at(20_000), at(9_520));
        assert!(deadlines.due(at(10_500)).is_empty());
        assert!(deadlines.permits("a", at(19_499)) && !deadlines.permits("a", at(19_500)));
        assert_eq!(deadlines.next(), at(19_500));
    }

    #[test]
    fn an_earlier_end_takes_effect_at_once() {
        let mut deadlines = one(10_000);
        deadlines.set("a", at(900), at(350));
        assert_eq!(deadlines.due(at(400)), ["a"]);
        // A pod of which nothing is known.
        deadlines.set("b", BootInstant::default(), at(400));
        assert_eq!(deadlines.due(at(0)), ["b"]);
        assert_eq!(deadlines.next(), BootInstant::default());
        deadlines.remove("a");
        deadlines.froze("b", at(600));
        assert_eq!(deadlines.next(), at(600) + Duration::from_secs(1));
        deadlines.remove("b");
        assert_eq!(deadlines.next(), BootInstant::NEVER);
        assert!(!deadlines.permits("a", at(0)));
    }
}
