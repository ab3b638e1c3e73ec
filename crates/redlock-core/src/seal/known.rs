//! Remembers counters for the floor after a total loss, in which all masters may have forgotten them.

use std::time::Duration;

use super::registers::Registers;
use crate::{FencingToken, plausible::greatest_token};

/// The result of adding a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an implausible token is to be reported"]
pub enum Remembered {
    Taken,
    /// The token is more than a day ahead of the clock, so no grant returned it.
    Implausible,
}

/// The largest counter that this process knows. It is never the floor of an ordinary grant, which would
/// spread one wrong number of a status to every master (P-75).
#[derive(Clone, Copy, Debug, Default)]
pub struct Known(u64);

impl Known {
    /// Records a counter that a master showed.
    pub fn saw(&mut self, counter: u64) {
        self.0 = self.0.max(counter);
    }

    /// Records a token from another source, such as a status.
    pub fn remember(&mut self, token: FencingToken, unix_time: Duration) -> Remembered {
        if token.0 > greatest_token(unix_time) {
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
