//! Another writer undoes what the lock asks for, again and again: starts what is stopped here, or stops what is started.
//! Pure.

use std::{collections::VecDeque, time::Duration};

use crate::lease::Moment;

/// So often may it happen within [`WINDOW`] before it is a conflict: a person who tries a few times, or one rollout of
/// a tool that applies a manifest with another number, is none.
const LIMIT: usize = 5;
/// A conflict is over when it has been quiet for so long that fewer are left of it.
const WINDOW: Duration = Duration::from_secs(600);
/// The first pause of a conflict, doubled with each further time. Nothing is stopped or started meanwhile: short, for the
/// sake of the work that must not run here; and not none, for the API server's.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// When it happened lately.
#[derive(Debug, Default)]
pub(super) struct Fights(VecDeque<Moment>);

impl Fights {
    pub(super) fn add(&mut self, now: Moment) {
        self.forget(now);
        self.0.push_back(now);
    }

    pub(super) fn is_conflict(&mut self, now: Moment) -> bool {
        self.forget(now);
        self.0.len() > LIMIT
    }

    /// Until when the next stop or start waits.
    pub(super) fn rests_until(&mut self, now: Moment) -> Option<Moment> {
        self.forget(now);
        let doublings = u32::try_from(self.0.len().checked_sub(LIMIT + 1)?).unwrap_or(u32::MAX);
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST);
        let until = *self.0.back()? + pause;
        (until > now).then_some(until)
    }

    fn forget(&mut self, now: Moment) {
        while self.0.front().is_some_and(|at| now.since(*at) > WINDOW) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_sixth_time_is_a_conflict_and_waits_longer_each_time() {
        let mut fights = Fights::default();
        for time in 0..5 {
            fights.add(at(time));
            assert_eq!(
                (fights.is_conflict(at(time)), fights.rests_until(at(time))),
                (false, None)
            );
        }
        let mut now = 10;
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            fights.add(at(now));
            assert!(fights.is_conflict(at(now)));
            assert_eq!(fights.rests_until(at(now)), Some(at(now + pause)));
            now += pause;
            assert_eq!(fights.rests_until(at(now)), None);
        }
    }

    #[test]
    fn it_ends_by_itself() {
        let mut fights = Fights::default();
        (0..20).for_each(|_| fights.add(at(0)));
        assert!(fights.is_conflict(at(600)));
        assert!(!fights.is_conflict(at(601)));
    }
}
