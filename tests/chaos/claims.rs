//! Decides from the claims which process held which lock, and whether two held one at the same time. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock::lease::BootInstant;

/// One process held one lock under one token. This is a lower bound: the process held it at `from`, at `to` and in
/// between, so two claims that share an instant are two holders and never a rounding error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub lock: String,
    pub who: String,
    pub token: u64,
    pub from: BootInstant,
    /// Equals `from` if only the acquisition is known.
    pub to: BootInstant,
}

/// Two claims on one lock at the same time, and the duration of the overlap.
#[derive(Clone, Debug)]
pub struct Overlap {
    pub first: Claim,
    pub second: Claim,
    pub length: Duration,
}

/// A claim whose token is not above that of an earlier one.
#[derive(Clone, Debug)]
pub struct Regression {
    pub before: Claim,
    pub after: Claim,
}

/// Returns the claims of each lock in the order in which they began.
fn by_lock(claims: &[Claim]) -> BTreeMap<&str, Vec<&Claim>> {
    let mut locks: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        locks.entry(&claim.lock).or_default().push(claim);
    }
    for of_lock in locks.values_mut() {
        of_lock.sort_by_key(|claim| (claim.from, claim.to));
    }
    locks
}

pub fn overlaps(claims: &[Claim]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for of_lock in by_lock(claims).values() {
        for (index, first) in of_lock.iter().enumerate() {
            let later = of_lock[index + 1..].iter();
            let meets = later.take_while(|second| second.from < first.to);
            found.extend(meets.filter_map(|second| {
                let length = first.to.min(second.to).since(second.from);
                let overlap = Overlap {
                    first: (*first).clone(),
                    second: (*second).clone(),
                    length,
                };
                (!length.is_zero()).then_some(overlap)
            }));
        }
    }
    found
}

/// Returns the claims whose token is not above that of an earlier one. A process that was stopped after it won reports the
/// lease once it continues: a claim that is over when it begins gives no right.
pub fn regressions(claims: &[Claim]) -> Vec<Regression> {
    let mut found = Vec::new();
    for of_lock in by_lock(claims).values() {
        let mut greatest: Option<&Claim> = None;
        for claim in of_lock.iter().filter(|claim| claim.from < claim.to) {
            match greatest {
                Some(before) if claim.token <= before.token => found.push(Regression {
                    before: before.clone(),
                    after: (*claim).clone(),
                }),
                _ => greatest = Some(claim),
            }
        }
    }
    found
}

/// Returns the shortest time from the end of one holder to the beginning of the next: the resolution of the
/// observation.
pub fn shortest_between(claims: &[Claim]) -> Duration {
    let all = by_lock(claims);
    let pairs = all.values().flat_map(|of_lock| of_lock.windows(2));
    let between = pairs.map(|pair| pair[1].from.since(pair[0].to));
    between.min().unwrap_or_default()
}

/// Returns the longest time without a holder of the lock within the intervals `up`, which are in order.
pub fn longest_gap(claims: &[Claim], lock: &str, up: &[(BootInstant, BootInstant)]) -> Duration {
    let all = by_lock(claims);
    let of_lock = all.get(lock).map_or(&[][..], Vec::as_slice);
    let longest = up.iter().map(|(begin, end)| {
        let (mut free_from, mut longest) = (*begin, Duration::ZERO);
        for claim in of_lock {
            longest = longest.max(claim.from.min(*end).since(free_from));
            free_from = free_from.max(claim.to);
        }
        longest.max(end.since(free_from))
    });
    longest.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_nanos(milliseconds * 1_000_000)
    }

    fn claim(lock: &str, who: &str, token: u64, from: u64, to: u64) -> Claim {
        Claim {
            lock: lock.into(),
            who: who.into(),
            token,
            from: at(from),
            to: at(to),
        }
    }

    #[test]
    fn holders_that_follow_each_other_and_holders_of_two_locks_are_right() {
        let claims = [
            claim("l", "a", 1, 0, 10),
            claim("l", "b", 2, 10, 20),
            claim("l", "a", 3, 30, 40),
            claim("m", "c", 1, 5, 35),
        ];
        assert!(overlaps(&claims).is_empty() && regressions(&claims).is_empty());
    }

    #[test]
    fn a_millisecond_that_two_held_is_found_in_any_order() {
        let (one, other) = (claim("l", "a", 1, 0, 11), claim("l", "b", 2, 10, 20));
        for claims in [[one.clone(), other.clone()], [other, one]] {
            let [overlap] = &overlaps(&claims)[..] else {
                panic!("one overlap");
            };
            assert_eq!(overlap.length, Duration::from_millis(1));
            assert_eq!((&*overlap.first.who, &*overlap.second.who), ("a", "b"));
        }
    }

    #[test]
    fn a_claim_within_a_longer_one_is_found_behind_others() {
        let claims = [
            claim("l", "a", 1, 0, 100),
            claim("l", "b", 2, 20, 20),
            claim("l", "c", 3, 50, 60),
        ];
        let found = overlaps(&claims);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].length, Duration::from_millis(10));
    }

    #[test]
    fn a_token_must_be_above_all_before_it() {
        let fallen = |tokens: [u64; 3]| {
            let claims: Vec<Claim> = (0..3)
                .map(|n| claim("l", "a", tokens[usize::try_from(n).unwrap()], n * 10, n * 10 + 5))
                .collect();
            regressions(&claims).len()
        };
        assert_eq!(
            [[1, 2, 3], [1, 1, 2], [5, 4, 5], [5, 6, 4]].map(fallen),
            [0, 1, 2, 1]
        );
    }

    #[test]
    fn the_shortest_time_between_is_of_one_lock() {
        let claims = [
            claim("l", "a", 1, 0, 10),
            claim("m", "b", 1, 11, 20),
            claim("l", "c", 2, 14, 20),
        ];
        assert_eq!(shortest_between(&claims), Duration::from_millis(4));
    }

    #[test]
    fn a_gap_counts_where_a_majority_was_up() {
        let claims = [claim("l", "a", 1, 10, 20), claim("l", "b", 2, 50, 60)];
        let gap = |up: &[(u64, u64)]| {
            let up: Vec<_> = up.iter().map(|(begin, end)| (at(*begin), at(*end))).collect();
            longest_gap(&claims, "l", &up).as_millis()
        };
        assert_eq!(gap(&[(0, 100)]), 40, "after the last");
        assert_eq!(gap(&[(0, 65)]), 30, "between the two");
        assert_eq!(gap(&[(0, 30), (45, 62)]), 10, "each time for itself");
        assert_eq!(gap(&[]), 0);
    }
}
