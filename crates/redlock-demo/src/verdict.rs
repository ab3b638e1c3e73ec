//! Decides whether the observations keep the two promises: one holder at a time, and tokens that only grow.
//!
//! Pure. The tests plant violations that must be found.

use std::fmt;
use std::time::Duration;

use super::claims::Claim;
use super::tenure::Tenure;

/// Two claims on one lock at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub lock: String,
    /// The replica and token of the claim that began first.
    pub first: (String, u64),
    pub second: (String, u64),
    pub length: Duration,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} with token {} and {} with token {} both held it, for {:.3} ms",
            self.lock,
            self.first.0,
            self.first.1,
            self.second.0,
            self.second.1,
            self.length.as_secs_f64() * 1e3
        )
    }
}

/// A holder whose token is not greater than that of the holder before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenFell {
    pub lock: String,
    pub before: u64,
    pub after: u64,
    pub seen_by: &'static str,
}

impl fmt::Display for TokenFell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lock,
            before,
            after,
            seen_by,
        } = self;
        write!(f, "{lock}: token {after} came after token {before}, by {seen_by}")
    }
}

/// Returns every pair of claims on one lock that share an instant. An earlier life of a replica counts as another
/// replica.
pub(super) fn overlaps(claims: &[Claim]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (index, one) in claims.iter().enumerate() {
        for other in claims[index + 1..].iter().filter(|other| other.lock == one.lock) {
            let (from, to) = (one.began.max(other.began), one.end().min(other.end()));
            if from < to {
                let (first, second) = if one.began <= other.began {
                    (one, other)
                } else {
                    (other, one)
                };
                found.push(Overlap {
                    lock: one.lock.clone(),
                    first: (first.who.name.clone(), first.token),
                    second: (second.who.name.clone(), second.token),
                    length: to.since(from),
                });
            }
        }
    }
    found
}

/// Returns every successive pair of holders whose tokens do not grow, as the replicas claim.
pub(super) fn fallen_claims(claims: &[Claim]) -> Vec<TokenFell> {
    let held = claims
        .iter()
        .map(|c| (c.lock.as_str(), c.began.as_nanos(), c.token));
    fallen(held.collect(), "the replicas")
}

/// Returns the same according to the masters, in the order in which a majority showed the leases.
pub(super) fn fallen_tenures<'a>(lock: &'a str, tenures: &'a [Tenure]) -> Vec<TokenFell> {
    let held = tenures
        .iter()
        .filter_map(|t| Some((lock, t.seen?.as_nanos(), t.token())));
    fallen(held.collect(), "the masters")
}

fn fallen(mut held: Vec<(&str, u64, u64)>, seen_by: &'static str) -> Vec<TokenFell> {
    held.sort_by_key(|(lock, began, _)| (*lock, *began));
    held.windows(2)
        .filter(|pair| pair[0].0 == pair[1].0 && pair[0].2 >= pair[1].2)
        .map(|pair| TokenFell {
            lock: pair[0].0.to_owned(),
            before: pair[0].2,
            after: pair[1].2,
            seen_by,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Claims, Incarnation};
    use crate::tenure::Account;
    use redlock_core::BootInstant;
    use redlock_testkit::observer::LeaseText;

    /// Lock, replica, token, from and to; times in milliseconds.
    fn claims(held: &[(&str, &str, u64, u64, u64)]) -> Claims {
        let at = |ms: u64| BootInstant::from_nanos(ms * 1_000_000);
        let mut claims = Claims::default();
        for (number, (lock, name, token, from, to)) in (1..).zip(held) {
            let who = Incarnation {
                name: (*name).to_owned(),
                pid: number,
            };
            claims.acquired(&who, lock, *token, at(*from), at(*to));
        }
        claims
    }

    #[test]
    fn successive_holders_do_not_overlap() {
        let held = claims(&[("l", "a", 1, 0, 10), ("l", "b", 2, 10, 20), ("l", "a", 3, 25, 30)]);
        assert_eq!(overlaps(held.all()), []);
        assert_eq!(fallen_claims(held.all()), []);
    }

    #[test]
    fn holders_of_two_locks_do_not_overlap() {
        assert_eq!(
            overlaps(claims(&[("l", "a", 1, 0, 10), ("m", "b", 2, 0, 10)]).all()),
            []
        );
    }

    #[test]
    fn a_planted_overlap_of_a_millisecond_is_found_in_any_order() {
        for held in [
            [("l", "a", 1, 0, 11), ("l", "b", 2, 10, 20)],
            [("l", "b", 2, 10, 20), ("l", "a", 1, 0, 11)],
        ] {
            let found = overlaps(claims(&held).all());
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].length, Duration::from_millis(1));
            assert_eq!(
                (found[0].first.1, found[0].second.1),
                (1, 2),
                "the earlier one first"
            );
        }
    }

    #[test]
    fn a_planted_overlap_inside_of_another_claim_is_found() {
        assert_eq!(
            overlaps(claims(&[("l", "a", 1, 0, 100), ("l", "b", 2, 40, 50)]).all()).len(),
            1
        );
    }

    #[test]
    fn a_replica_overlaps_with_its_own_earlier_life() {
        assert_eq!(
            overlaps(claims(&[("l", "a", 1, 0, 10), ("l", "a", 2, 5, 15)]).all()).len(),
            1
        );
    }

    #[test]
    fn a_planted_token_that_falls_or_repeats_is_found() {
        for (first, second) in [(5, 4), (5, 5)] {
            let held = claims(&[("l", "a", first, 0, 10), ("l", "b", second, 20, 30)]);
            let found = fallen_claims(held.all());
            assert_eq!(found.len(), 1, "{first} then {second}");
            assert_eq!((found[0].before, found[0].after), (first, second));
        }
    }

    #[test]
    fn a_planted_token_that_falls_on_the_masters_is_found() {
        let mut account = Account::new(3);
        let lease = |nonce: &str, grant| LeaseText {
            identity: "a".into(),
            nonce: nonce.into(),
            grant,
        };
        for (nonce, grant, at) in [("n1", 9, 0), ("n2", 8, 100)] {
            for master in 0..3 {
                account.saw(
                    master,
                    Some(lease(nonce, grant)),
                    BootInstant::from_nanos(at + 50),
                    BootInstant::from_nanos(at),
                );
            }
        }
        assert_eq!(fallen_tenures("l", account.tenures()).len(), 1);
    }
}
