//! How long other clusters wait after the end of a lease: what a holder declares, and what a replica may rely upon. Pure.

use std::time::Duration;

use crate::lease::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Delays {
    /// The token under which this replica wrote `held`, and the delay that it declared with it.
    marked: Option<(FencingToken, Duration)>,
    /// What the holder before had declared, whose targets this replica took over as they run.
    adopted: Duration,
    /// The least that a sibling may have declared since its lease was seen.
    sibling: Option<Duration>,
}

impl Delays {
    /// A lease was won: under it runs what was declared to need so long, unless the lease before ended cleanly.
    pub(super) fn won(&mut self, adopted: Option<Duration>) {
        self.adopted = adopted.unwrap_or_default();
    }

    /// What has to be declared. A lower delay than that of what was adopted needs a clean end first: pods that began under
    /// it may take as long as it says.
    pub(super) fn needed(&self, planned: Duration, removed: Duration) -> Duration {
        planned.max(removed).max(self.adopted)
    }

    pub(super) fn is_declared(&self, token: FencingToken, needed: Duration) -> bool {
        self.marked
            .is_some_and(|(marked, delay)| marked == token && delay >= needed)
    }

    pub(super) fn declared(&mut self, token: FencingToken, delay: Duration) {
        self.marked = Some((token, delay));
    }

    pub(super) fn marked(&self) -> Option<FencingToken> {
        self.marked.map(|(token, _)| token)
    }

    /// Everything has stopped.
    pub(super) fn clear(&mut self) {
        (self.marked, self.adopted) = (None, Duration::ZERO);
    }

    /// What is planned now, and whether a sibling has held the lock since this replica did.
    pub(super) fn see(&mut self, planned: Duration, sibling_held: bool) {
        self.sibling = sibling_held.then(|| self.sibling.map_or(planned, |least| least.min(planned)));
    }

    /// How long other clusters wait at least after the end of the lease that this cluster has or had, whose token is `own`
    /// where it was this replica's. Where several may count, it is the shortest.
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
    fn delay_rises_with_the_plan_and_with_what_is_still_stopping() {
        let mut delays = Delays::default();
        assert!(!delays.is_declared(ONE, s(0)));
        delays.declared(ONE, s(8));
        assert!(delays.is_declared(ONE, delays.needed(s(8), s(0))));
        assert!(!delays.is_declared(ONE, delays.needed(s(9), s(0))));
        // The last target was taken out of the spec: nothing is planned, and it may run still.
        assert!(!delays.is_declared(ONE, delays.needed(s(0), s(35))));
        assert!(!delays.is_declared(TWO, s(8)), "a new lease");
    }

    #[test]
    fn adopter_declares_no_less_than_what_it_adopted() {
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
        // Lowered while the lease goes on: under its token the masters have the longer one.
        delays.see(s(8), false);
        assert_eq!(delays.bound(Some(ONE), s(8)), s(125));
        // A sibling held it since, and declared what was planned then.
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
