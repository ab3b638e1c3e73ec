//! What this process knows of counters, for the floor after a total loss: the masters may all have forgotten more.

use std::time::Duration;

use super::registers::Registers;
use crate::FencingToken;

/// A token further ahead of the clock than this was never granted: counters begin at the milliseconds since 1970 and
/// grow more slowly than these. As much room as clocks that are wrong by a time zone need.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// What became of a token that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an implausible token is to be reported"]
pub enum Remembered {
    Taken,
    /// More than a day ahead of the clock: it was written by somebody who did not get it from a grant.
    Implausible,
}

/// The largest counter that this process knows of. Never a floor of an ordinary grant: one wrong
/// number in a status would reach every master by it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known(u64);

impl Known {
    /// Seen at a master.
    pub fn saw(&mut self, counter: u64) {
        self.0 = self.0.max(counter);
    }

    /// Told by somebody else.
    pub fn remember(&mut self, token: FencingToken, unix_time: Duration) -> Remembered {
        if u128::from(token.0) > (unix_time + AHEAD).as_millis() {
            return Remembered::Implausible;
        }
        self.saw(token.0);
        Remembered::Taken
    }

    #[must_use]
    pub fn registers(self) -> Registers {
        Registers::of_counter(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_remembered_up_to_a_day_ahead_and_the_largest_counts() {
        let (mut known, now) = (Known::default(), Duration::from_millis(1_700_000_000_000));
        let most = 1_700_086_400_000;
        for (token, remembered, counter) in [
            (0, Remembered::Taken, 0),
            (most + 1, Remembered::Implausible, 0),
            (u64::MAX, Remembered::Implausible, 0),
            (7, Remembered::Taken, 7),
            (most, Remembered::Taken, most),
            (8, Remembered::Taken, most),
        ] {
            assert_eq!(known.remember(FencingToken(token), now), remembered, "{token}");
            assert_eq!(known.registers().number("counter"), counter, "{token}");
        }
    }
}
