//! Bounds the registers of one master by those of the others, and by the clocks of the masters.
//!
//! Pure. Of the f+1 masters with the greatest values, at least one is right, if at most f are not. So the (f+1)-th greatest
//! counter was reached, and the (f+1)-th greatest clock is not ahead of every right one.

use std::time::Duration;

use crate::{reply::LAST_TOKEN, timing::millis_down};

/// Counters begin at the milliseconds since 1970 and grow more slowly than these. The margin covers clocks that are wrong by
/// a time zone.
const CLOCK_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The lead of a counter where counters are ahead of the clocks: after a step of all clocks, or with more than a thousand
/// grants a second. It is more than another master misses in an hour of such grants, and too little to exhaust the numbers
/// by the grants of one master.
const LEAD: u64 = 1 << 24;
/// A slot begins at most this long after it is claimed: an hour, and the margin of clocks.
const SLOT_MARGIN: Duration = Duration::from_secs(25 * 60 * 60);
/// The time by which the floor of grants may be ahead of what a majority reached, less than [`CLOCK_MARGIN`]: one master must
/// not move the counters of the others to the limit.
const FLOOR_MARGIN: Duration = Duration::from_secs(12 * 60 * 60);

/// The counter and the clock of a sealed master, as it last showed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownCounter {
    pub counter: u64,
    /// The time since 1970 now.
    pub clock: Duration,
}

/// The greatest plausible values of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterLimits {
    /// For the counter, and for every register that holds a token.
    pub token: u64,
    /// For slots and their floor, in seconds since 1970.
    pub slot: u64,
}

/// The bounds that the counters and clocks of the sealed masters give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterBounds {
    pub registers: RegisterLimits,
    /// The greatest floor of grants, which only keeps the counters together.
    pub floor: u64,
}

/// Returns the greatest token that may have been granted at this time since 1970.
pub(crate) fn greatest_token(clock: Duration) -> u64 {
    millis_down(clock + CLOCK_MARGIN)
}

impl CounterBounds {
    /// Returns the bounds by what the sealed masters show, and by the time since 1970 of the own wall clock, if it is known;
    /// `None` if fewer than a majority show anything (P-7). The later clock counts: clocks of masters may have stepped
    /// back.
    #[must_use]
    pub fn of(shown: &[ShownCounter], majority: usize, own_clock: Option<Duration>) -> Option<Self> {
        let reached = nth_greatest(shown.iter().map(|shown| shown.counter), majority)?;
        let clock = nth_greatest(shown.iter().map(|shown| shown.clock), majority)?;
        let clock = clock.max(own_clock.unwrap_or_default());
        let by_clock = greatest_token(clock);
        let token = if reached <= by_clock {
            by_clock
        } else {
            reached.saturating_add(LEAD)
        };
        Some(Self {
            registers: RegisterLimits {
                token: token.min(LAST_TOKEN),
                slot: (clock + SLOT_MARGIN).as_secs(),
            },
            floor: reached.max(millis_down(clock + FLOOR_MARGIN)).min(LAST_TOKEN),
        })
    }
}

impl RegisterLimits {
    /// Returns the limits after a total loss, in which too few masters are sealed: by the clock of this process, and by the
    /// greatest counter that it knows.
    #[must_use]
    pub fn after_loss(unix_time: Duration, known: u64) -> Self {
        Self {
            token: greatest_token(unix_time).max(known).min(LAST_TOKEN),
            slot: (unix_time + SLOT_MARGIN).as_secs(),
        }
    }
}

/// Returns the value that `n` of the values reach.
pub fn nth_greatest<T: Ord + Copy>(values: impl Iterator<Item = T>, n: usize) -> Option<T> {
    let mut all: Vec<T> = values.collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.get(n.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;
    const DAY: u64 = 86_400_000;

    fn bounds(shown: &[(u64, u64)]) -> Option<CounterBounds> {
        let shown: Vec<ShownCounter> = shown
            .iter()
            .map(|&(counter, seconds)| ShownCounter {
                counter,
                clock: Duration::from_secs(seconds),
            })
            .collect();
        CounterBounds::of(&shown, 2, None)
    }

    fn token(shown: &[(u64, u64)]) -> Option<u64> {
        bounds(shown).map(|bounds| bounds.registers.token)
    }

    #[test]
    fn one_master_moves_no_limit() {
        let right = (NOW * 1_000, NOW);
        let honest = bounds(&[right, right, right]).unwrap();
        let RegisterLimits { token: limit, slot } = honest.registers;
        assert_eq!((limit, slot), (NOW * 1_000 + DAY, NOW + 90_000));
        assert_eq!(honest.floor, NOW * 1_000 + DAY / 2);
        for forged in [
            (LAST_TOKEN - 12, NOW),
            (LAST_TOKEN, NOW * 9),
            (0, NOW * 9),
            (0, 0),
        ] {
            assert_eq!(bounds(&[forged, right, right]), Some(honest), "{forged:?}");
        }
        // One of three masters is away.
        assert_eq!(token(&[(LAST_TOKEN - 12, NOW), right]), Some(limit));
        assert_eq!(token(&[(LAST_TOKEN - 12, NOW)]), None);
    }

    /// The clocks of all masters stepped back by a year, or the masters grant more than a thousand leases a second.
    #[test]
    fn counters_that_a_majority_reached_are_plausible_whatever_the_clocks_show() {
        let ahead = NOW * 1_000;
        let clock = NOW - 365 * 86_400;
        let limit = token(&[(ahead, clock), (ahead + 5, clock), (ahead + 9, clock)]).unwrap();
        assert!(limit >= ahead + LEAD, "{limit}");
        assert!(limit < ahead + 2 * LEAD, "{limit}");
    }
}
