//! The registers of a lock that record how its last lease with targets ended, and how long another cluster
//! waits after it.

use std::time::Duration;

/// The shortest wait after an unclean end if no delay of the last holder is known: the longest stop time that
/// is derived, 35 s, plus 5 s.
pub const UNDECLARED_DELAY: Duration = Duration::from_secs(40);

/// The register `delay:<lock>`: how long other clusters wait after an unclean end of the lease with this
/// token. Under one token the delay only rises, since a lower value could arrive after a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct DeclaredDelay {
    pub token: u64,
    pub milliseconds: u64,
}

/// A mark that a holder writes into the registers of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Mark {
    /// `held:<lock>` and `delay:<lock>`: targets are about to start, or to be adopted.
    Held { delay: Duration },
    /// `clean:<lock>`: all targets that the lease started have stopped.
    Clean,
    /// `closed:<lock>`, for a fenced lock: no further pod starts under the lease. Afterwards the holder
    /// judges whether the pods are gone.
    Closed,
}

/// The registers `held:<lock>` and `clean:<lock>` (tokens; 0 = never written), and `delay:<lock>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Marks {
    pub held: u64,
    pub clean: u64,
    pub delay: DeclaredDelay,
}

impl Marks {
    /// Returns the greatest value of each register.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            held: self.held.max(other.held),
            clean: self.clean.max(other.clean),
            delay: self.delay.max(other.delay),
        }
    }

    /// Returns the delay that the last holder declared. A delay under a token other than the greatest `held`
    /// counts as missing.
    #[must_use]
    pub fn declared_delay(self) -> Option<Duration> {
        let DeclaredDelay { token, milliseconds } = self.delay;
        (token == self.held).then(|| Duration::from_millis(milliseconds))
    }

    /// Returns how long another cluster waits after an unclean end. `explicit` is the delay that it was
    /// given. `planned` is the delay that it would declare itself, its only estimate if the delay of the last
    /// holder is unknown.
    #[must_use]
    pub fn takeover_delay(self, explicit: Option<Duration>, planned: Duration) -> Duration {
        match self.declared_delay() {
            Some(declared) => declared.max(explicit.unwrap_or_default()),
            None => UNDECLARED_DELAY.max(planned),
        }
    }

    /// Reports whether the last holder with targets did not confirm that they stopped. Neither set = never
    /// held.
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
            // A delay of an earlier holder, or of one whose `held` is not known, counts as missing.
            (marks(5, 4, 20_000), None, UNDECLARED_DELAY),
            (marks(5, 6, 20_000), None, UNDECLARED_DELAY),
            (marks(5, 0, 0), Some(seconds(3)), UNDECLARED_DELAY),
            (marks(5, 0, 0), Some(seconds(60)), seconds(60)),
        ] {
            let planned = explicit.unwrap_or(seconds(10));
            let found = marks.takeover_delay(explicit, planned);
            assert_eq!(found, waited, "{marks:?} {explicit:?}");
        }
        assert_eq!(
            marks(5, 4, 20_000).takeover_delay(None, seconds(125)),
            seconds(125)
        );
        // Among several masters, the greatest token counts, and under it the longest delay.
        let merged = marks(5, 5, 20_000).merged(marks(4, 4, 90_000));
        assert_eq!(merged.declared_delay(), Some(seconds(20)));
        let merged = marks(5, 5, 20_000).merged(marks(5, 5, 30_000));
        assert_eq!(merged.declared_delay(), Some(seconds(30)));
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
