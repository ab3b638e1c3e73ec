//! The registers of a lock that record how its last lease with targets ended, and how long another cluster
//! waits after it.

use std::time::Duration;

/// The shortest wait after an unclean end if no delay of the last holder is known: the longest stop time that
/// is derived, 35 s, plus 5 s.
pub const UNDECLARED_DELAY: Duration = Duration::from_secs(40);

/// The longest delay that counts: one master must not stop takeovers for years. A lock declares at most a day, unless the
/// grace periods of its pods are longer.
const LONGEST_DELAY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

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
    /// `held:<lock>` and `delay:<lock>`: targets are about to start, or to be adopted (P-81).
    Held { delay: Duration },
    /// `clean:<lock>`: all targets that the lease started have stopped, and none starts again under it (P-82).
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

/// The wait of a new holder after an unclean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverDelay {
    pub length: Duration,
    pub source: DelaySource,
}

/// The source of the length of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelaySource {
    /// The last holder declared it.
    LastHolder,
    /// The waiting candidate was given a longer one.
    Candidate,
    /// The delay of the last holder is not known: the longest stop time that is derived is assumed.
    Undeclared,
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
    /// counts as missing (P-84).
    #[must_use]
    pub fn declared_delay(self) -> Option<Duration> {
        let DeclaredDelay { token, milliseconds } = self.delay;
        (token == self.held).then(|| Duration::from_millis(milliseconds).min(LONGEST_DELAY))
    }

    /// Returns how long another cluster waits after an unclean end (P-86). `explicit` is the delay that it was
    /// given. `planned` is the delay that it would declare itself, its only estimate if the delay of the last
    /// holder is unknown.
    #[must_use]
    pub fn takeover_delay(self, explicit: Option<Duration>, planned: Duration) -> TakeoverDelay {
        let explicit = explicit.unwrap_or_default();
        let (length, source) = match self.declared_delay() {
            Some(declared) if declared >= explicit => (declared, DelaySource::LastHolder),
            Some(_) => (explicit, DelaySource::Candidate),
            None if planned > UNDECLARED_DELAY => (planned, DelaySource::Candidate),
            None => (UNDECLARED_DELAY, DelaySource::Undeclared),
        };
        TakeoverDelay { length, source }
    }

    /// Reports whether the last holder with targets did not confirm that they stopped (P-83). Neither set = never
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
        use DelaySource::{Candidate, LastHolder, Undeclared};
        for (marks, explicit, length, source) in [
            (marks(5, 5, 20_000), None, seconds(20), LastHolder),
            (marks(5, 5, 20_000), Some(seconds(3)), seconds(20), LastHolder),
            (marks(5, 5, 20_000), Some(seconds(60)), seconds(60), Candidate),
            (marks(5, 5, 0), None, seconds(0), LastHolder),
            (marks(5, 5, 120_000), None, seconds(120), LastHolder),
            // A delay of an earlier holder, or of one whose `held` is not known, counts as missing.
            (marks(5, 4, 20_000), None, UNDECLARED_DELAY, Undeclared),
            (marks(5, 6, 20_000), None, UNDECLARED_DELAY, Undeclared),
            (marks(5, 0, 0), Some(seconds(3)), UNDECLARED_DELAY, Undeclared),
            (marks(5, 0, 0), Some(seconds(60)), seconds(60), Candidate),
        ] {
            let planned = explicit.unwrap_or(seconds(10));
            let found = marks.takeover_delay(explicit, planned);
            assert_eq!(found, TakeoverDelay { length, source }, "{marks:?} {explicit:?}");
        }
        let found = marks(5, 4, 20_000).takeover_delay(None, seconds(125));
        assert_eq!((found.length, found.source), (seconds(125), Candidate));
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
