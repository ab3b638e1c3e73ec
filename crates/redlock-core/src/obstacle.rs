//! Describes the obstacles of a standby, and computes when a majority can be free.

use std::time::Duration;

use super::{BootInstant, ClusterId, FencingToken, LeaseValue, Nonce, QuorumSize};

/// A key is still alive in its last millisecond.
pub(crate) const LAST_MILLISECOND: Duration = Duration::from_millis(1);

/// The most by which the ends of a lease differ between masters that a renewal reached, if their clocks are right.
const SPREAD: Duration = Duration::from_secs(1);

/// The obstacle that one master shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Obstacle {
    Lease(LeaseValue),
    /// A reservation: a cluster id, or `nobody`.
    Reserved(String),
    /// A lease in a text that this version cannot read: that of another holder, until it expires (P-14).
    Foreign(String),
}

impl Obstacle {
    /// Reports whether two masters show the same lease or reservation. The grant number is the master's own.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lease(a), Self::Lease(b)) => a.nonce == b.nonce,
            (a, b) => a == b,
        }
    }
}

/// The relation of an end to what the master shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum EndIs {
    Shown,
    /// The master shows more time than any key can have: its clock was set back since it set the key, or it misbehaves.
    /// No holder relies on the lease for longer than until this end.
    Bounded,
}

/// The state of a lock on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Sighting {
    /// `None` if the lock is free.
    pub obstacle: Option<Obstacle>,
    /// The latest time at which the obstacle ends: reply received + remaining time. `NEVER` without an expiry.
    pub ends: BootInstant,
    pub end_is: EndIs,
    /// Whether the lock is free and reserved for this cluster.
    pub reserved_for_us: bool,
}

impl Sighting {
    pub const FREE: Self = Self {
        obstacle: None,
        ends: BootInstant::from_nanos(0),
        end_is: EndIs::Shown,
        reserved_for_us: false,
    };
    pub const OURS: Self = Self {
        reserved_for_us: true,
        ..Self::FREE
    };

    #[must_use]
    pub const fn blocked(obstacle: Obstacle, ends: BootInstant) -> Self {
        Self {
            obstacle: Some(obstacle),
            ends,
            end_is: EndIs::Shown,
            reserved_for_us: false,
        }
    }

    /// Returns an obstacle whose end is not known: it counts until `latest`.
    #[must_use]
    pub const fn bounded(obstacle: Obstacle, latest: BootInstant) -> Self {
        Self {
            obstacle: Some(obstacle),
            ends: latest,
            end_is: EndIs::Bounded,
            reserved_for_us: false,
        }
    }
}

/// The sightings of one lock by the masters, in one round. A master without a sighting is unknown.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct View {
    size: QuorumSize,
    seen: Vec<(usize, Sighting)>,
}

impl View {
    #[must_use]
    pub const fn new(size: QuorumSize) -> Self {
        Self {
            size,
            seen: Vec::new(),
        }
    }

    /// Records the sighting of a master. A second one of the same master does not count.
    pub fn record(&mut self, master: usize, sighting: Sighting) {
        if master < self.size.masters() && self.seen.iter().all(|(m, _)| *m != master) {
            self.seen.push((master, sighting));
        }
    }

    pub fn known(&self) -> impl Iterator<Item = &Sighting> {
        self.seen.iter().map(|(_, sighting)| sighting)
    }

    #[must_use]
    pub fn unknown(&self) -> usize {
        self.size.masters() - self.known().count()
    }

    /// Reports whether a majority answered.
    #[must_use]
    pub fn decided(&self) -> bool {
        self.known().count() >= self.size.majority()
    }

    /// Reports whether a majority will have answered once `outstanding` more masters have.
    #[must_use]
    pub fn can_be_decided(&self, outstanding: usize) -> bool {
        self.known().count() + outstanding >= self.size.majority()
    }

    /// Returns the time at which a majority can be free: the M-th smallest end, where a free master counts as now and
    /// an unknown one as never (P-61). `None` while too few masters are known.
    #[must_use]
    pub fn free_at(&self) -> Option<BootInstant> {
        self.end_at(self.size.majority() - 1)
    }

    /// Returns the end at this place among the known ones, the nearest at 0.
    fn end_at(&self, place: usize) -> Option<BootInstant> {
        let mut ends: Vec<BootInstant> = self.known().map(|s| s.ends).collect();
        ends.sort_unstable();
        ends.get(place).copied()
    }

    /// Reports whether the time at which a majority can be free is only bounded: fewer than a majority show an end that
    /// a key can have.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let shown = self.known().filter(|s| s.end_is == EndIs::Shown).count();
        self.decided() && shown < self.size.majority()
    }

    /// Reports whether the time at which a majority can be free rests on an end that is much later than the one that
    /// another master shows for the same lease or reservation. The clock of the one with the later end may have been set back.
    #[must_use]
    pub fn has_late_end(&self) -> bool {
        let (Some((obstacle, _)), Some(free_at)) = (self.most(), self.free_at()) else {
            return false;
        };
        let same = |sighting: &&Sighting| sighting.obstacle.as_ref().is_some_and(|one| one.is(obstacle));
        let first = self.known().filter(same).map(|sighting| sighting.ends).min();
        first.is_some_and(|first| free_at.since(first) > SPREAD)
    }

    /// Reports whether the time at which a majority can be free rests on a late end, and the masters that are not known may
    /// bring it nearer.
    #[must_use]
    pub fn misses_end(&self) -> bool {
        let nearest = (self.size.majority() - 1)
            .checked_sub(self.unknown())
            .and_then(|place| self.end_at(place))
            .unwrap_or_default();
        let nearer = self
            .free_at()
            .is_some_and(|free_at| free_at.since(nearest) > SPREAD);
        self.unknown() > 0 && self.blocked() && nearer && (self.is_bounded() || self.has_late_end())
    }

    /// Reports whether a majority is free.
    #[must_use]
    pub fn free(&self) -> bool {
        self.known().filter(|s| s.obstacle.is_none()).count() >= self.size.majority()
    }

    fn most(&self) -> Option<(&Obstacle, usize)> {
        let obstacles = || self.known().filter_map(|s| s.obstacle.as_ref());
        obstacles()
            .map(|one| (one, obstacles().filter(|o| o.is(one)).count()))
            .max_by_key(|(_, n)| *n)
    }

    /// Reports whether a majority shows the same lease or reservation. If not, and no majority is free either,
    /// candidates split the masters between them: a clash, or the remains of one (P-65).
    #[must_use]
    pub fn blocked(&self) -> bool {
        self.most().is_some_and(|(_, n)| n >= self.size.majority())
    }

    /// Returns the holder: the lease that a majority shows (P-65).
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        let (obstacle, count) = self.most()?;
        let Obstacle::Lease(lease) = obstacle else {
            return None;
        };
        if count < self.size.majority() {
            return None;
        }
        let same = |s: &&Sighting| s.obstacle.as_ref().is_some_and(|o| o.is(obstacle));
        let grants = || {
            self.known().filter_map(|s| match &s.obstacle {
                Some(Obstacle::Lease(l)) if l.nonce == lease.nonce => Some(l.grant),
                _ => None,
            })
        };
        // A number that a majority granted needed no confirm. Otherwise the greatest number was confirmed.
        let shared = grants().find(|g| grants().filter(|other| other == g).count() >= self.size.majority());
        Some(Holder {
            cluster: lease.cluster.clone(),
            identity: lease.identity.to_string(),
            nonce: lease.nonce,
            token: FencingToken(shared.or_else(|| grants().max()).unwrap_or(lease.grant)),
            ends: self
                .known()
                .filter(same)
                .map(|s| s.ends)
                .max()
                .unwrap_or_default(),
        })
    }

    /// Reports whether a majority is free and reserved for this cluster.
    #[must_use]
    pub fn reserved_for_us(&self) -> bool {
        self.known().filter(|s| s.reserved_for_us).count() >= self.size.majority()
    }
}

/// The holder of a lock, as a majority shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub cluster: ClusterId,
    pub identity: String,
    /// Distinguishes one lease from the next of the same holder.
    pub nonce: Nonce,
    /// The token by the grant numbers seen. While masters are unknown, it may differ from the holder's own
    /// token.
    pub token: FencingToken,
    /// The time at which the lease ends if it is not renewed.
    pub ends: BootInstant,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HolderIdentity;

    fn lease(nonce: u128, grant: u64, ends: u64) -> Sighting {
        let value = LeaseValue {
            cluster: ClusterId::new("eu-1", "u").unwrap(),
            identity: HolderIdentity::parse("a").unwrap(),
            nonce: Nonce(nonce),
            grant,
        };
        Sighting::blocked(Obstacle::Lease(value), BootInstant::from_nanos(ends))
    }

    fn view(n: usize, seen: &[Option<Sighting>]) -> View {
        let mut view = View::new(QuorumSize::new(n).unwrap());
        for (master, sighting) in seen.iter().enumerate() {
            if let Some(sighting) = sighting {
                view.record(master, sighting.clone());
            }
        }
        view
    }

    #[test]
    fn free_at_is_the_mth_smallest_end() {
        let free = || Some(Sighting::FREE);
        for (n, seen, expected) in [
            (3, vec![free(), free(), Some(lease(1, 1, 9))], Some(0)),
            (
                3,
                vec![free(), Some(lease(1, 1, 9)), Some(lease(1, 1, 7))],
                Some(7),
            ),
            (3, vec![Some(lease(1, 1, 9)), None, None], None),
            (
                5,
                vec![free(), free(), Some(lease(1, 1, 5)), Some(lease(1, 1, 9)), None],
                Some(5),
            ),
        ] {
            assert_eq!(
                view(n, &seen).free_at(),
                expected.map(BootInstant::from_nanos),
                "{n} {seen:?}"
            );
        }
    }

    #[test]
    fn end_far_behind_that_of_another_master_is_late_unless_a_majority_shows_it() {
        let second = 1_000_000_000;
        for (seen, late, misses) in [
            (
                vec![Some(lease(1, 1, 58 * second)), Some(lease(1, 1, second)), None],
                true,
                true,
            ),
            (
                vec![
                    Some(lease(1, 1, 58 * second)),
                    Some(lease(1, 1, second)),
                    Some(lease(1, 1, second)),
                ],
                false,
                false,
            ),
            (
                vec![
                    Some(lease(1, 1, 58 * second)),
                    Some(lease(1, 1, second)),
                    Some(lease(1, 1, 58 * second)),
                ],
                true,
                false,
            ),
            (
                vec![Some(lease(1, 1, 2 * second)), Some(lease(1, 1, second)), None],
                false,
                false,
            ),
            (
                vec![Some(lease(1, 1, 58 * second)), Some(Sighting::FREE), None],
                false,
                false,
            ),
            (vec![Some(lease(1, 1, 58 * second)), None, None], false, false),
        ] {
            let view = view(3, &seen);
            assert_eq!(
                (view.has_late_end(), view.misses_end()),
                (late, misses),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn a_split_is_a_clash_and_blocks_no_candidate() {
        let split = [Some(lease(1, 1, 9)), Some(lease(2, 1, 9)), Some(Sighting::FREE)];
        assert!(!view(3, &split).blocked());
        assert!(!view(3, &[Some(lease(1, 1, 9)), Some(Sighting::FREE), None]).blocked());
        assert!(view(3, &[Some(lease(1, 1, 9)), Some(lease(1, 2, 9)), None]).blocked());
    }

    #[test]
    fn the_holder_is_the_one_that_a_majority_shows() {
        let v = view(
            3,
            &[Some(lease(1, 4, 9)), Some(lease(1, 7, 8)), Some(lease(2, 9, 9))],
        );
        let holder = v.holder().unwrap();
        assert_eq!(
            (holder.token, holder.ends),
            (FencingToken(7), BootInstant::from_nanos(9))
        );
        assert!(view(3, &[Some(lease(1, 4, 9)), None, None]).holder().is_none());
    }

    #[test]
    fn token_that_a_majority_granted_is_the_holders_although_one_master_granted_more() {
        let seen = [Some(lease(1, 4, 9)), Some(lease(1, 4, 9)), Some(lease(1, 9, 9))];
        assert_eq!(view(3, &seen).holder().unwrap().token, FencingToken(4));
    }
}
