//! Tracks how long other clusters wait after the end of a lease: the delay that a holder declares, and the
//! delay that a replica may rely on. Pure.

use std::time::Duration;

use crate::lease::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Delays {
    /// The token under which this replica wrote `held`, and the delay that it declared.
    marked: Option<(FencingToken, Duration)>,
    /// The delay declared by the previous holder, whose running targets this replica adopted.
    adopted: Duration,
    /// The shortest delay that a sibling may have declared since its lease was seen.
    sibling: Option<Duration>,
}

impl Delays {
    /// Records a new lease and the delay declared for the targets it adopts; `None` if it adopts none.
    pub(super) fn won(&mut self, adopted: Option<Duration>) {
        self.adopted = adopted.unwrap_or_default();
    }

    /// Returns the delay to declare. A delay below that of the adopted targets requires a clean end first:
    /// pods started under the longer delay may take that long to stop (P-84).
    pub(super) fn needed(&self, planned: Duration, removed: Duration) -> Duration {
        planned.max(removed).max(self.adopted)
    }

    pub(super) fn is_declared(&self, token: FencingToken, needed: Duration) -> bool {
        self.marked
            .is_some_and(|(marked, delay)| marked == token && delay >= needed)
    }

    /// Returns the delay that was declared under this token.
    pub(super) fn of(&self, token: FencingToken) -> Option<Duration> {
        self.marked
            .filter(|(marked, _)| *marked == token)
            .map(|(_, delay)| delay)
    }

    /// Returns the delay of the adopted targets; zero if no target was adopted.
    pub(super) fn adopted(&self) -> Duration {
        self.adopted
    }

    pub(super) fn declared(&mut self, token: FencingToken, delay: Duration) {
        self.marked = Some((token, delay));
    }

    pub(super) fn marked(&self) -> Option<FencingToken> {
        self.marked.map(|(token, _)| token)
    }

    /// Forgets the declared delays: everything has stopped.
    pub(super) fn clear(&mut self) {
        (self.marked, self.adopted) = (None, Duration::ZERO);
    }

    /// Records the planned delay, and whether a sibling has held the lock since this replica did.
    pub(super) fn see(&mut self, planned: Duration, sibling_held: bool) {
        self.sibling = sibling_held.then(|| self.sibling.map_or(planned, |least| least.min(planned)));
    }

    /// Returns the minimum time that other clusters wait after the end of the present or last lease of this
    /// cluster. `own` is the token of that lease if this replica holds or held it. Of several possible
    /// delays, the shortest counts.
    pub(super) fn bound(&self, own: Option<FencingToken>, planned: Duration) -> Duration {
        let sibling = self.sibling.unwrap_or(planned).min(planned);
        match self.marked {
            Some((token, delay)) if own == Some(token) && self.sibling.is_none() => delay,
            Some((_, delay)) => delay.min(sibling),
            None => sibling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FencingToken = FencingToken(1);
    const TWO: FencingToken = FencingToken(2);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delay_rises_with_the_plan_and_with_targets_that_still_stop() {
        let mut delays = Delays::default();
        assert!(!delays.is_declared(ONE, s(0)));
        delays.declared(ONE, s(8));
        assert!(delays.is_declared(ONE, delays.needed(s(8), s(0))));
        assert!(!delays.is_declared(ONE, delays.needed(s(9), s(0))));
        // The last target was removed from the spec: no delay is planned, but the target may still run.
        assert!(!delays.is_declared(ONE, delays.needed(s(0), s(35))));
        assert!(!delays.is_declared(TWO, s(8)), "a new lease");
    }

    #[test]
    fn adopter_declares_no_less_than_the_adopted_delay() {
        let mut delays = Delays::default();
        delays.won(Some(s(125)));
        assert_eq!(delays.needed(s(8), s(0)), s(125));
        delays.clear();
        assert_eq!(delays.needed(s(8), s(0)), s(8));
    }

    #[test]
    fn delay_that_was_declared_long_ago_is_no_bound() {
        let mut delays = Delays::default();
        delays.declared(ONE, s(125));
        delays.see(s(125), false);
        assert_eq!(delays.bound(Some(ONE), s(125)), s(125));
        // Lowered under the same lease: the masters still have the longer delay for its token.
        delays.see(s(8), false);
        assert_eq!(delays.bound(Some(ONE), s(8)), s(125));
        // A sibling has held the lock since, and declared the delay planned at that time.
        delays.see(s(8), true);
        assert_eq!(delays.bound(Some(ONE), s(8)), s(8));
    }

    #[test]
    fn delay_that_is_raised_under_a_siblings_lease_may_not_be_declared() {
        let mut delays = Delays::default();
        delays.see(s(8), true);
        delays.see(s(300), true);
        assert_eq!(delays.bound(None, s(300)), s(8));
        delays.see(s(300), false);
        assert_eq!(delays.bound(None, s(300)), s(300));
    }

    #[test]
    fn lease_without_a_mark_leaves_the_one_before() {
        let mut delays = Delays::default();
        delays.declared(ONE, s(8));
        assert_eq!(delays.bound(Some(TWO), s(35)), s(8));
    }
}
