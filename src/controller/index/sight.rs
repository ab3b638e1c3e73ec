//! Tracks this replica's view of the masters of a quorum.

use crate::{
    controller::{events::EventReason, status::Health},
    lease::BootInstant,
};

#[derive(Debug, Default)]
pub(super) struct Sight {
    health: Option<Health>,
    /// The time since which this replica has seen no majority of the masters.
    blind_since: Option<BootInstant>,
    /// The time at which no majority last accepted writes after one had; reset when its return is
    /// reported.
    lost: Option<BootInstant>,
}

/// The changes found by one observation.
#[derive(Clone, Debug, Default)]
pub(super) struct SightChange {
    pub(super) anything: bool,
    /// Whether a majority was lost or regained: the statuses of locks depend on nothing else.
    pub(super) crossed: bool,
    /// The event about a majority that no longer votes, or no longer accepts writes.
    pub(super) lost: Option<(EventReason, String)>,
    /// Masters that lost their memory.
    pub(super) quarantined: Vec<String>,
}

impl Sight {
    /// Records since when there has been no majority. `health` is `None` while the quorum is not open.
    pub(super) fn note(&mut self, health: Option<&Health>, now: BootInstant) {
        if health.is_some_and(Health::has_majority) {
            self.blind_since = None;
        } else {
            self.blind_since.get_or_insert(now);
        }
    }

    /// Records the present health of the masters.
    pub(super) fn take(&mut self, health: Health, now: BootInstant) -> SightChange {
        let before = self.health.as_ref();
        let had = before.map(Health::has_majority);
        let known =
            |master: &str| before.is_some_and(|before| before.quarantined().any(|other| other == master));
        let quarantined = health.quarantined().filter(|master| !known(master));
        let reason = match health.votes_by_majority() {
            true => EventReason::WritesRefused,
            false => EventReason::QuorumLost,
        };
        let change = SightChange {
            anything: before != Some(&health),
            crossed: had != Some(health.has_majority()),
            lost: health
                .no_majority()
                .filter(|_| had == Some(true))
                .map(|why| (reason, why)),
            quarantined: quarantined.map(str::to_owned).collect(),
        };
        if change.lost.is_some() || (!health.has_majority() && self.lost.is_some()) {
            self.lost = Some(now);
        }
        self.health = Some(health);
        change
    }

    /// Returns when no majority last accepted writes, if one does now and its return was not reported yet.
    pub(super) fn regained(&mut self) -> Option<BootInstant> {
        if self.has_majority() {
            self.lost.take()
        } else {
            None
        }
    }

    pub(super) fn health(&self) -> Option<&Health> {
        self.health.as_ref()
    }

    pub(super) fn has_majority(&self) -> bool {
        self.health.as_ref().is_some_and(Health::has_majority)
    }

    pub(super) const fn blind_since(&self) -> Option<BootInstant> {
        self.blind_since
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn votes_of_single_masters_do_not_touch_locks() {
        let mut sight = Sight::default();
        for (voting, crossed) in [
            (5, true),
            (4, false),
            (3, false),
            (5, false),
            (2, true),
            (0, false),
            (1, false),
            (3, true),
        ] {
            let change = sight.take(Health::sample(voting, 5), BootInstant::default());
            assert_eq!(change.crossed, crossed, "{voting}");
        }
    }

    #[test]
    fn the_text_for_locks_is_the_same_for_every_minority() {
        let texts: BTreeSet<_> = (0..3)
            .map(|voting| Health::sample(voting, 5).no_majority_of("q").unwrap().message)
            .collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert_eq!(Health::sample(3, 5).no_majority_of("q"), None);
    }
}
