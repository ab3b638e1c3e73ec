//! Keeps the ends of the leases by which attempts without a state machine were refused.

use std::collections::HashMap;

use crate::{BootInstant, LockName, View, obstacle::LAST_MILLISECOND};

/// The number of locks from which on those that are over are removed before another one is added.
const MANY: usize = 1_024;

/// The results of the attempts for one lock.
#[derive(Debug, Default)]
struct SeenLock {
    /// The number of attempts that have not ended.
    under_way: usize,
    /// Whether a release was received during these attempts: masters may have refused them before they ran it.
    released: bool,
    /// The lease or reservation that a majority showed last, and its end.
    refused: Option<(View, BootInstant)>,
}

/// The ends of the leases of other holders, as this process observed them last. Masters that show no lease do not move
/// them earlier, so masters that forgot a lease do not let a candidate in before its end; a release does (P-62).
#[derive(Debug, Default)]
pub struct ObservedEnds {
    locks: HashMap<LockName, SeenLock>,
}

impl ObservedEnds {
    /// Begins an attempt, which [`Self::finish`] ends.
    ///
    /// # Errors
    /// Returns the view of a lease whose observed end has not passed: no attempt may be made.
    pub fn begin(&mut self, lock: &LockName, now: BootInstant) -> Result<(), View> {
        if self.locks.len() >= MANY {
            self.locks.retain(|_, seen| {
                seen.under_way > 0 || seen.refused.as_ref().is_some_and(|(_, end)| now < *end)
            });
        }
        let seen = self.locks.entry(lock.clone()).or_default();
        if let Some((view, _)) = seen.refused.as_ref().filter(|(_, end)| now < *end) {
            return Err(view.clone());
        }
        seen.refused = None;
        seen.released &= seen.under_way > 0;
        seen.under_way += 1;
        Ok(())
    }

    /// Handles the release of a lock.
    pub fn release(&mut self, lock: &LockName) {
        if let Some(seen) = self.locks.get_mut(lock) {
            seen.released = true;
            seen.refused = None;
        }
    }

    /// Ends an attempt; `refused` is the view that a refused one had.
    pub fn finish(&mut self, lock: &LockName, refused: Option<View>) {
        let Some(seen) = self.locks.get_mut(lock) else {
            return;
        };
        seen.under_way = seen.under_way.saturating_sub(1);
        if !seen.released
            && let Some(view) = refused
            && let Some(end) = blocked_until(&view)
        {
            seen.refused = Some((view, end));
        }
        if seen.under_way == 0 && seen.refused.is_none() {
            self.locks.remove(lock);
        }
    }
}

/// Returns the end of the lease or reservation that a majority shows, if it is known: a key without an expiry must not block
/// once it is deleted. An end that is only bounded, or that a master which did not answer may bring nearer, gives way to masters
/// that are free.
fn blocked_until(view: &View) -> Option<BootInstant> {
    let end = view.free_at().filter(|end| *end != BootInstant::NEVER)?;
    (view.blocked() && !view.is_bounded() && !view.misses_end()).then(|| end + LAST_MILLISECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Obstacle, QuorumSize, Sighting};

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    fn lock() -> LockName {
        LockName::any("l").unwrap()
    }

    /// Returns the view of an attempt that two masters refused, with a reservation until this time.
    fn refused(sighting: fn(Obstacle, BootInstant) -> Sighting, end: BootInstant) -> Option<View> {
        let mut view = View::new(QuorumSize::new(3).unwrap());
        for master in 0..2 {
            view.record(master, sighting(Obstacle::Reserved("nobody".into()), end));
        }
        Some(view)
    }

    /// Two of three masters refuse an attempt, one of them for much longer: its clock was set back.
    #[test]
    fn end_that_a_missing_master_may_bring_nearer_is_not_kept() {
        let mut view = View::new(QuorumSize::new(3).unwrap());
        for (master, end) in [(0, 58_000), (1, 1_300)] {
            let lease = Obstacle::Reserved("nobody".into());
            view.record(master, Sighting::blocked(lease, at(end)));
        }
        let mut ends = ObservedEnds::default();
        assert!(ends.begin(&lock(), at(0)).is_ok());
        ends.finish(&lock(), Some(view));
        assert!(ends.begin(&lock(), at(1_400)).is_ok());
    }

    fn after_a_refusal(end: u64) -> ObservedEnds {
        let mut ends = ObservedEnds::default();
        assert!(ends.begin(&lock(), at(0)).is_ok());
        ends.finish(&lock(), refused(Sighting::blocked, at(end)));
        ends
    }

    #[test]
    fn no_attempt_begins_before_the_observed_end() {
        let mut ends = after_a_refusal(100);
        for now in [1, 100] {
            let view = ends.begin(&lock(), at(now)).unwrap_err();
            assert_eq!(view.free_at(), Some(at(100)));
        }
        assert!(ends.begin(&LockName::any("m").unwrap(), at(1)).is_ok());
        assert!(ends.begin(&lock(), at(101)).is_ok());
    }

    #[test]
    fn a_release_ends_the_wait() {
        let mut ends = after_a_refusal(100);
        ends.release(&lock());
        assert!(ends.begin(&lock(), at(1)).is_ok());
        // The release of the next lease, which this attempt is refused by.
        ends.release(&lock());
        ends.finish(&lock(), refused(Sighting::blocked, at(200)));
        assert!(ends.begin(&lock(), at(2)).is_ok(), "released during the attempt");
        ends.finish(&lock(), refused(Sighting::blocked, at(200)));
        assert!(ends.begin(&lock(), at(3)).is_err(), "the earlier release is over");
    }

    #[test]
    fn an_end_that_no_key_can_have_is_not_waited_for() {
        for view in [
            None,
            refused(Sighting::blocked, BootInstant::NEVER),
            refused(Sighting::bounded, at(100)),
        ] {
            let mut ends = ObservedEnds::default();
            assert!(ends.begin(&lock(), at(0)).is_ok());
            ends.finish(&lock(), view);
            assert!(ends.begin(&lock(), at(1)).is_ok());
            assert_eq!(ends.locks.len(), 1);
        }
    }

    #[test]
    fn locks_that_are_over_are_forgotten() {
        let mut ends = after_a_refusal(100);
        for number in 0..2 * MANY {
            let other = LockName::any(&format!("l{number}")).unwrap();
            assert!(ends.begin(&other, at(1)).is_ok());
            ends.finish(&other, refused(Sighting::blocked, at(2 + number as u64)));
        }
        assert!(ends.begin(&LockName::any("m").unwrap(), at(MANY as u64)).is_ok());
        assert!(ends.locks.len() <= MANY + 10, "{}", ends.locks.len());
    }
}
