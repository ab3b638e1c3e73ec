//! The registers of a lock that hold how its last lease with targets ended, and how long another cluster waits after it.

use std::time::Duration;

/// Waited after an unclean end where the last holder declared no delay: the longest stop time that is derived, 35 s, and 5 s.
pub const UNDECLARED_DELAY: Duration = Duration::from_secs(40);

/// The register `delay:<lock>`: how long other clusters wait after an unclean end of the lease with this token. Under one
/// token the delay only rises, since a late lowering would land after a raise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclaredDelay {
    pub token: u64,
    pub milliseconds: u64,
}

/// What a holder writes into the registers of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `held:<lock>` and `delay:<lock>`: targets are about to start, or to be adopted.
    Held { delay: Duration },
    /// `clean:<lock>`: all that the lease started has stopped.
    Clean,
}

/// The registers `held:<lock>` and `clean:<lock>` (tokens; 0 = never written), and `delay:<lock>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub held: u64,
    pub clean: u64,
    pub delay: DeclaredDelay,
}

impl Marks {
    /// Register by register the greatest.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            held: self.held.max(other.held),
            clean: self.clean.max(other.clean),
            delay: self.delay.max(other.delay),
        }
    }

    /// How long another cluster waits after an unclean end. A delay that was declared under another token than the greatest
    /// `held` counts as missing.
    #[must_use]
    pub fn takeover_delay(self, explicit: Option<Duration>) -> Duration {
        let declared = match self.delay {
            DeclaredDelay { token, milliseconds } if token == self.held => {
                Duration::from_millis(milliseconds)
            }
            _ => UNDECLARED_DELAY,
        };
        declared.max(explicit.unwrap_or_default())
    }

    /// The last holder with targets did not confirm that they stopped. Neither set = never held.
    #[must_use]
    pub const fn ended_uncleanly(self) -> bool {
        self.held > self.clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_counts_beside_the_greatest_held_alone() {
        let seconds = Duration::from_secs;
        let marks = |held, token, milliseconds| Marks {
            held,
            clean: 0,
            delay: DeclaredDelay { token, milliseconds },
        };
        for (marks, explicit, waited) in [
            (marks(5, 5, 20_000), None, seconds(20)),
            (marks(5, 5, 20_000), Some(seconds(3)), seconds(20)),
            (marks(5, 5, 20_000), Some(seconds(60)), seconds(60)),
            (marks(5, 5, 0), None, seconds(0)),
            (marks(5, 5, 120_000), None, seconds(120)),
            // Declared by a holder before, or by one whose `held` is not known: missing.
            (marks(5, 4, 20_000), None, UNDECLARED_DELAY),
            (marks(5, 6, 20_000), None, UNDECLARED_DELAY),
            (marks(5, 0, 0), Some(seconds(3)), UNDECLARED_DELAY),
            (marks(5, 0, 0), Some(seconds(60)), seconds(60)),
        ] {
            assert_eq!(marks.takeover_delay(explicit), waited, "{marks:?} {explicit:?}");
        }
        // Of several masters: the greatest token, and under it the longest.
        let merged = marks(5, 5, 20_000).merged(marks(4, 4, 90_000));
        assert_eq!(merged.takeover_delay(None), seconds(20));
        let merged = marks(5, 5, 20_000).merged(marks(5, 5, 30_000));
        assert_eq!(merged.takeover_delay(None), seconds(30));
    }

    #[test]
    fn an_end_is_unclean_when_held_is_above_clean() {
        assert!(!Marks::default().ended_uncleanly());
        let marks = |held, clean| Marks {
            held,
            clean,
            ..Marks::default()
        };
        assert!(marks(5, 4).ended_uncleanly());
        assert!(!marks(5, 5).ended_uncleanly());
    }
}
