//! One attempt to acquire a lease: grant on all masters, confirm when their numbers differ, or give up.

use std::time::Duration;

use super::{
    BootInstant, FencingToken, Marks, QuorumSize, Sighting, Tally, Verdict, View, Vote,
    fence::{MarkRegister, Succession},
    plausible::nth_greatest,
    timing,
    vote::MAX_MASTERS,
};

/// One master's reply to `grant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantReply {
    Granted {
        number: u64,
        marks: Marks,
        /// The fence mark of a fenced lock.
        mark: Option<Box<MarkRegister>>,
    },
    Refused(Sighting),
    Unknown,
}

impl GrantReply {
    #[must_use]
    pub const fn vote(&self) -> Vote {
        match self {
            Self::Granted { .. } => Vote::Granted,
            Self::Refused(_) => Vote::Refused,
            Self::Unknown => Vote::Unknown,
        }
    }
}

/// A lease that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Won {
    pub token: FencingToken,
    pub valid_until: BootInstant,
    pub started: BootInstant,
    /// The greatest registers among the grants of this win.
    pub marks: Marks,
    /// The succession of a fenced lock.
    pub succession: Option<Succession>,
}

/// The reason why an attempt was lost. In each case, the attempt is undone on all masters.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Loss {
    /// Another candidate's lease, a reservation or a clash, as the view shows.
    Refused(View),
    /// Too many masters are unknown. The view shows the others.
    NoQuorum(View),
    /// The attempt reached its limit, or its validity ended before it was won.
    TooLate,
}

/// The next step of the caller.
#[derive(Clone, Debug)]
#[must_use]
pub enum Step {
    Wait,
    /// Send `confirm` to these masters, each with the number that it granted; then report [`Attempt::on_confirm`].
    Confirm {
        token: FencingToken,
        granted: Vec<(usize, u64)>,
    },
    Won(Won),
    Lost(Loss),
}

#[derive(Debug)]
enum Phase {
    Granting(Tally),
    Confirming { token: FencingToken, tally: Tally },
    Over,
}

/// The state of one attempt. After [`Step::Won`] or [`Step::Lost`] the state is final: later replies change
/// nothing.
#[derive(Debug)]
pub struct Attempt {
    size: QuorumSize,
    started: BootInstant,
    lease_duration: Duration,
    limit: BootInstant,
    phase: Phase,
    granted: [Option<u64>; MAX_MASTERS],
    marks: Marks,
    /// The register `clean` in the grant of each master.
    cleans: [Option<u64>; MAX_MASTERS],
    /// The number of masters that must show a clean end.
    clean_votes: usize,
    /// The fence marks in the grants of a fenced lock.
    registers: Vec<MarkRegister>,
    view: View,
}

impl Attempt {
    /// Creates an attempt. `started` is read before the first byte is sent (P-30). No attempt exceeds
    /// `acquire_limit`.
    #[must_use]
    pub fn new(
        size: QuorumSize,
        started: BootInstant,
        lease_duration: Duration,
        acquire_limit: Duration,
    ) -> Self {
        Self {
            size,
            started,
            lease_duration,
            limit: started + acquire_limit,
            phase: Phase::Granting(Tally::new(size)),
            granted: [None; MAX_MASTERS],
            marks: Marks::default(),
            cleans: [None; MAX_MASTERS],
            clean_votes: size.majority(),
            registers: Vec::new(),
            view: View::new(size),
        }
    }

    /// Plants a fault: a clean end that one master shows counts.
    #[cfg(feature = "planted")]
    pub(crate) const fn believe_one_clean(&mut self) {
        self.clean_votes = 1;
    }

    /// Returns the fence marks in the grants that counted.
    #[must_use]
    pub fn registers(&self) -> &[MarkRegister] {
        &self.registers
    }

    /// Returns the end of the attempt. No reply counts at or after this time (P-36).
    #[must_use]
    pub fn limit(&self) -> BootInstant {
        self.limit.min(self.valid_until())
    }

    /// Returns the end of the lease: it counts from the start of the attempt, less the drift (P-39).
    fn valid_until(&self) -> BootInstant {
        self.started + self.lease_duration - timing::drift(self.lease_duration)
    }

    /// Handles the reply of one master to `grant`, received at `now`.
    pub fn on_grant(&mut self, master: usize, reply: GrantReply, now: BootInstant) -> Step {
        let Phase::Granting(tally) = &mut self.phase else {
            return Step::Wait;
        };
        if !tally.record(master, reply.vote()) {
            return Step::Wait;
        }
        let (verdict, outstanding) = (tally.verdict(), tally.outstanding());
        match reply {
            GrantReply::Granted { number, marks, mark } => {
                self.granted[master] = Some(number);
                self.marks = self.marks.merged(marks);
                self.cleans[master] = Some(marks.clean);
                self.registers.extend(mark.map(|mark| *mark));
                self.view.record(master, Sighting::FREE);
            }
            GrantReply::Refused(sighting) => self.view.record(master, sighting),
            GrantReply::Unknown => {}
        }
        match verdict {
            _ if now >= self.limit() => self.lost(Loss::TooLate),
            Verdict::Pending => Step::Wait,
            Verdict::Lost if self.view.decided() => {
                let view = self.view.clone();
                self.lost(Loss::Refused(view))
            }
            // Lost, but the holder is not known yet: without the replies of a majority, the end of the lease is
            // unknown.
            Verdict::Lost if outstanding > 0 && self.view.can_be_decided(outstanding) => Step::Wait,
            Verdict::Lost => {
                let view = self.view.clone();
                self.lost(Loss::NoQuorum(view))
            }
            Verdict::Won => self.granted_by_majority(now),
        }
    }

    /// The largest grant number is the token. It is confirmed if a majority returned that same number (P-34).
    fn granted_by_majority(&mut self, now: BootInstant) -> Step {
        let token = self.granted.iter().flatten().copied().max().unwrap_or_default();
        if self.granted.iter().flatten().filter(|n| **n == token).count() >= self.size.majority() {
            return self.won(FencingToken(token), now);
        }
        let granted: Vec<(usize, u64)> = self
            .granted
            .iter()
            .enumerate()
            .filter_map(|(m, n)| n.map(|n| (m, n)))
            .collect();
        let mut tally = Tally::new(self.size);
        // Masters that granted nothing have nothing to confirm.
        for master in (0..self.size.masters()).filter(|m| self.granted[*m].is_none()) {
            tally.record(master, Vote::Unknown);
        }
        self.phase = Phase::Confirming {
            token: FencingToken(token),
            tally,
        };
        Step::Confirm {
            token: FencingToken(token),
            granted,
        }
    }

    /// Handles the vote of one master on `confirm`, received at `now`. A majority confirms the token (P-34).
    pub fn on_confirm(&mut self, master: usize, vote: Vote, now: BootInstant) -> Step {
        let Phase::Confirming { token, tally } = &mut self.phase else {
            return Step::Wait;
        };
        let token = *token;
        if !tally.record(master, vote) {
            return Step::Wait;
        }
        match tally.verdict() {
            _ if now >= self.limit() => self.lost(Loss::TooLate),
            Verdict::Pending => Step::Wait,
            Verdict::Won => self.won(token, now),
            Verdict::Lost => {
                let view = self.view.clone();
                self.lost(Loss::NoQuorum(view))
            }
        }
    }

    /// Handles time that passed without a reply.
    pub fn on_time(&mut self, now: BootInstant) -> Step {
        if matches!(self.phase, Phase::Over) || now < self.limit() {
            return Step::Wait;
        }
        self.lost(Loss::TooLate)
    }

    fn won(&mut self, token: FencingToken, now: BootInstant) -> Step {
        let valid_until = self.valid_until();
        if now >= valid_until {
            return self.lost(Loss::TooLate);
        }
        self.phase = Phase::Over;
        Step::Won(Won {
            token,
            valid_until,
            started: self.started,
            marks: Marks {
                clean: self.clean(),
                ..self.marks
            },
            succession: None,
        })
    }

    /// Returns the clean end that f+1 masters show. One master alone must not end the takeover delay (P-83).
    fn clean(&self) -> u64 {
        let cleans = self.cleans.iter().flatten().copied();
        nth_greatest(cleans, self.clean_votes).unwrap_or_default()
    }

    fn lost(&mut self, loss: Loss) -> Step {
        self.phase = Phase::Over;
        Step::Lost(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn attempt(n: usize) -> Attempt {
        Attempt::new(QuorumSize::new(n).unwrap(), at(0), LEASE, Duration::from_secs(2))
    }

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    fn granted(number: u64) -> GrantReply {
        GrantReply::Granted {
            number,
            marks: Marks::default(),
            mark: None,
        }
    }

    #[test]
    fn equal_numbers_of_a_majority_need_no_confirm() {
        let mut a = attempt(3);
        assert!(matches!(a.on_grant(0, granted(7), at(1)), Step::Wait));
        let Step::Won(won) = a.on_grant(2, granted(7), at(2)) else {
            panic!("not won")
        };
        assert_eq!(won.token, FencingToken(7));
        assert_eq!(won.valid_until, at(10_000 - 102));
    }

    #[test]
    fn different_numbers_are_confirmed_with_the_largest_by_a_majority() {
        let mut a = attempt(3);
        let _ = a.on_grant(0, granted(7), at(1));
        let Step::Confirm { token, granted } = a.on_grant(1, granted(9), at(1)) else {
            panic!("no confirm")
        };
        assert_eq!((token, granted), (FencingToken(9), vec![(0, 7), (1, 9)]));
        assert!(
            matches!(a.on_confirm(2, Vote::Granted, at(2)), Step::Wait),
            "it granted nothing"
        );
        assert!(matches!(a.on_confirm(0, Vote::Granted, at(2)), Step::Wait));
        assert!(matches!(a.on_confirm(1, Vote::Granted, at(2)), Step::Won(_)));
    }

    #[test]
    fn a_confirm_that_a_majority_did_not_acknowledge_loses() {
        let mut a = attempt(3);
        let _ = a.on_grant(0, granted(7), at(1));
        let _ = a.on_grant(1, granted(9), at(1));
        assert!(matches!(
            a.on_confirm(0, Vote::Refused, at(2)),
            Step::Lost(Loss::NoQuorum(_))
        ));
    }

    #[test]
    fn replies_after_the_limit_count_for_nothing() {
        let mut a = attempt(3);
        let _ = a.on_grant(0, granted(7), at(1));
        assert!(matches!(
            a.on_grant(1, granted(7), at(2_000)),
            Step::Lost(Loss::TooLate)
        ));
        let mut a = attempt(3);
        assert!(matches!(a.on_time(at(1_999)), Step::Wait));
        assert!(matches!(a.on_time(at(2_000)), Step::Lost(Loss::TooLate)));
        assert!(
            matches!(a.on_grant(0, granted(7), at(2_001)), Step::Wait),
            "it is over"
        );
    }

    #[test]
    fn a_lease_that_ended_before_the_last_reply_is_not_won() {
        let size = QuorumSize::new(3).unwrap();
        let mut a = Attempt::new(size, at(0), Duration::from_millis(500), Duration::from_secs(2));
        let _ = a.on_grant(0, granted(7), at(1));
        assert!(matches!(
            a.on_grant(1, granted(7), at(493)),
            Step::Lost(Loss::TooLate)
        ));
    }

    #[test]
    fn unknown_masters_are_no_refusal() {
        let mut a = attempt(3);
        let _ = a.on_grant(0, GrantReply::Unknown, at(1));
        assert!(matches!(
            a.on_grant(1, GrantReply::Unknown, at(1)),
            Step::Lost(Loss::NoQuorum(_))
        ));
    }
}
