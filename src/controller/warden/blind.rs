//! What the siblings say, where this replica has no majority of the masters.

use std::time::Duration;

use super::{Warden, goal::Siblings};
use crate::{
    clock,
    controller::said::Word,
    elector::Standing,
    lease::{FencingToken, Holder, Moment},
};

/// A round of questions takes half a second at most, and one follows the other.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// What no newer round confirms is not said any more, but for the end of a lease.
const FRESH: Duration = Duration::from_secs(2);

/// What this replica does not know by itself.
#[derive(Debug, Default)]
pub(super) struct Blind {
    /// Since when it has no majority.
    since: Option<Moment>,
    /// The first change of a target that no round was asked after. Who holds the lock may have made it.
    changed: Option<Moment>,
    /// Another cluster was said to hold the lock, and none of this cluster since.
    pub(super) passed_on: bool,
}

impl Blind {
    /// Something about a target changed.
    pub(super) fn note_change(&mut self) {
        self.changed.get_or_insert_with(clock::now);
    }
}

impl Warden {
    /// With the token of the lease that a sibling says this cluster has.
    pub(super) fn siblings(&mut self, standing: &Standing, now: Moment) -> (Siblings, Option<FencingToken>) {
        let masters = self.post.masters.as_ref();
        if masters.is_some_and(|masters| masters.voters() >= masters.size().majority()) {
            (self.blind.since, self.blind.changed) = (None, None);
            return (Siblings::Unasked, None);
        }
        let since = *self.blind.since.get_or_insert(now);
        let round = self.post.said.borrow_and_update().clone();
        let fresh = round.sent.filter(|sent| now < *sent + FRESH);
        let answered = fresh.filter(|sent| *sent >= since);
        if answered.is_some_and(|sent| self.blind.changed.is_some_and(|changed| changed <= sent)) {
            self.blind.changed = None;
        }
        let awaited = self.blind.changed.unwrap_or(since).max(since) + PATIENCE;
        let current = answered.is_some() && self.blind.changed.is_none();
        let decided = |siblings| {
            if current || now >= awaited {
                siblings
            } else {
                Siblings::Awaited(awaited)
            }
        };
        match round.word(&self.post.plan.quorum, &self.post.plan.lock_name) {
            Some(Word::Held(until, token))
                if now < until && !self.is_later_elsewhere(standing, token, now) =>
            {
                self.blind.passed_on = false;
                (Siblings::Held(until), Some(token))
            }
            Some(Word::Free) if let Some(sent) = fresh => (Siblings::Free(sent), None),
            Some(Word::Elsewhere(_)) if fresh.is_some() => {
                self.blind.passed_on = true;
                (decided(Siblings::Elsewhere), None)
            }
            _ => (decided(Siblings::Silent), None),
        }
    }

    /// This replica saw a later lease of another cluster than its sibling did.
    fn is_later_elsewhere(&self, standing: &Standing, token: FencingToken, now: Moment) -> bool {
        let elsewhere =
            |holder: &Holder| holder.cluster.uid() != self.post.cluster.uid() && holder.token > token;
        standing.holder_at(now).is_some_and(elsewhere)
    }
}
