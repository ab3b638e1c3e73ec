//! Counts the votes of masters and derives the verdict of a round.

/// The most masters of a quorum. More would add failure domains that no deployment has, and a round trip to
/// each.
pub const MAX_MASTERS: usize = 7;

/// One master's answer. An unknown vote is never a refusal and never a grant (P-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    Granted,
    Refused,
    Unknown,
}

/// The outcome of a round so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pending,
    Won,
    Lost,
}

/// N = 2f+1 masters. One master tolerates no loss: its memory is all that excludes two holders, but for the wait of a
/// seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct QuorumSize(usize);

impl QuorumSize {
    /// Returns `None` unless N is odd and from 1 to [`MAX_MASTERS`] (P-1): with an even N, the last master adds no
    /// tolerance.
    #[must_use]
    pub const fn new(masters: usize) -> Option<Self> {
        if masters >= 1 && masters <= MAX_MASTERS && masters % 2 == 1 {
            Some(Self(masters))
        } else {
            None
        }
    }

    /// Returns N.
    #[must_use]
    pub const fn masters(self) -> usize {
        self.0
    }

    /// Returns M = f+1, the fewest masters of which any two groups share one (P-1).
    #[must_use]
    pub const fn majority(self) -> usize {
        self.0 / 2 + 1
    }

    /// Returns f = N - M, the number of masters that may be lost.
    #[must_use]
    pub const fn tolerated(self) -> usize {
        self.0 - self.majority()
    }
}

/// The votes of one round; those of several rounds are never added. Each master has one vote: a second one of the same
/// master does not count (P-5).
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    size: QuorumSize,
    votes: [Option<Vote>; MAX_MASTERS],
}

impl Tally {
    #[must_use]
    pub const fn new(size: QuorumSize) -> Self {
        Self {
            size,
            votes: [None; MAX_MASTERS],
        }
    }

    /// Counts the vote of a master; returns false if it was not counted (it voted already, or there is no such master).
    pub fn record(&mut self, master: usize, vote: Vote) -> bool {
        match self.votes.get_mut(master) {
            Some(slot @ None) if master < self.size.masters() => {
                *slot = Some(vote);
                true
            }
            _ => false,
        }
    }

    #[must_use]
    pub fn count(&self, vote: Vote) -> usize {
        self.votes.iter().filter(|v| **v == Some(vote)).count()
    }

    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.size.masters() - self.votes.iter().flatten().count()
    }

    /// Returns the verdict; it is certain as soon as the missing votes cannot change it.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let granted = self.count(Vote::Granted);
        if granted >= self.size.majority() {
            Verdict::Won
        } else if granted + self.outstanding() < self.size.majority() {
            Verdict::Lost
        } else {
            Verdict::Pending
        }
    }

    /// Reports whether more than N - M masters refused, so that the others are not a majority.
    #[must_use]
    pub fn refused_by_too_many(&self) -> bool {
        self.count(Vote::Refused) > self.size.tolerated()
    }

    /// Reports whether the missing votes can no longer change whether the round is won or
    /// [`Self::refused_by_too_many`] (P-3).
    #[must_use]
    pub fn settled(&self) -> bool {
        let missing = self.outstanding();
        self.verdict() == Verdict::Won
            || self.refused_by_too_many()
            || missing == 0
            || (self.verdict() == Verdict::Lost
                && self.count(Vote::Refused) + missing <= self.size.tolerated())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(n: usize, votes: &[Vote]) -> Tally {
        let mut tally = Tally::new(QuorumSize::new(n).unwrap());
        for (master, vote) in votes.iter().enumerate() {
            tally.record(master, *vote);
        }
        tally
    }

    #[test]
    fn sizes_are_odd_and_small() {
        let sizes: Vec<usize> = (0..10).filter(|n| QuorumSize::new(*n).is_some()).collect();
        assert_eq!(sizes, [1, 3, 5, 7]);
    }

    #[test]
    fn verdict_is_certain_as_soon_as_the_rest_cannot_change_it() {
        use Vote::{Granted as G, Refused as R, Unknown as U};
        for (n, votes, verdict) in [
            (1, &[][..], Verdict::Pending),
            (1, &[G], Verdict::Won),
            (1, &[U], Verdict::Lost),
            (3, &[], Verdict::Pending),
            (3, &[G], Verdict::Pending),
            (3, &[G, G], Verdict::Won),
            (3, &[R, U], Verdict::Lost),
            (3, &[G, R], Verdict::Pending),
            (5, &[G, G, R, U], Verdict::Pending),
            (5, &[G, G, R, U, G], Verdict::Won),
            (5, &[U, U, U], Verdict::Lost),
        ] {
            assert_eq!(tally(n, votes).verdict(), verdict, "{n} {votes:?}");
        }
    }

    #[test]
    fn a_master_votes_once() {
        let mut tally = Tally::new(QuorumSize::new(3).unwrap());
        assert!(tally.record(0, Vote::Granted));
        assert!(!tally.record(0, Vote::Granted));
        assert!(!tally.record(3, Vote::Granted));
        assert_eq!(tally.verdict(), Verdict::Pending);
    }

    #[test]
    fn unknown_is_never_a_refusal() {
        let t = tally(5, &[Vote::Unknown; 5]);
        assert_eq!(t.verdict(), Verdict::Lost);
        assert!(!t.refused_by_too_many());
    }

    #[test]
    fn a_lost_renewal_waits_for_votes_that_could_make_it_a_refusal() {
        use Vote::{Refused as R, Unknown as U};
        assert!(!tally(5, &[U, U, R]).settled());
        assert!(tally(5, &[U, U, U]).settled());
        assert!(tally(5, &[R, R, R]).settled());
    }
}
