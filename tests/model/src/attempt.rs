//! Attempts to acquire the lock or to claim a slot, with those of their commands that are still in flight.

use crate::master::majority;

/// The largest number of attempts, which no bound exceeds.
pub(crate) const MOST: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Unborn,
    Granting,
    Confirming(u8),
    Claiming(u8),
    /// Won with this token, and renewed.
    Held(u8),
    /// The attempt has no further effect.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempt<const N: usize> {
    pub(crate) phase: Phase,
    pub(crate) client: u8,
    /// Masters that have not executed the first command yet, the grant or the claim.
    pub(crate) first: u8,
    /// The same for the confirm.
    pub(crate) confirms: u8,
    /// Whether the client no longer waits for replies: commands in flight are executed late or never.
    pub(crate) ended: bool,
    pub(crate) granted: [u8; N],
    /// Masters that acknowledged the confirm or the claim.
    pub(crate) acks: u8,
    /// The floor: every grant of the attempt is above this number.
    pub(crate) floor: u8,
    /// The greatest token that was won before this attempt began.
    pub(crate) after: u8,
}

impl<const N: usize> Default for Attempt<N> {
    fn default() -> Self {
        Self {
            phase: Phase::default(),
            client: 0,
            first: 0,
            confirms: 0,
            ended: false,
            granted: [0; N],
            acks: 0,
            floor: 0,
            after: 0,
        }
    }
}

impl<const N: usize> Attempt<N> {
    /// Reports whether the client of the attempt waits for replies.
    pub(crate) fn is_running(&self) -> bool {
        !self.ended
            && matches!(
                self.phase,
                Phase::Granting | Phase::Confirming(_) | Phase::Claiming(_)
            )
    }

    pub(crate) fn holds(&self) -> Option<u8> {
        match self.phase {
            Phase::Held(token) if !self.ended => Some(token),
            _ => None,
        }
    }

    /// Reports whether the attempt may still count a vote, or write a value that no renewal writes.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_running() || self.first | self.confirms != 0
    }

    /// Returns the token once a majority has granted, if the attempt needs no confirm.
    pub(crate) fn on_grant(&mut self, master: usize, number: u8, confirms: bool) -> Option<u8> {
        if self.ended || self.phase != Phase::Granting {
            return None;
        }
        self.granted[master] = number;
        let granted = self.granted;
        let by = |wanted: &dyn Fn(u8) -> bool| granted.iter().filter(|number| wanted(**number)).count();
        let token = granted.into_iter().max().unwrap_or_default();
        if by(&|number| number > 0) < majority(N) {
            return None;
        }
        if by(&|number| number == token) >= majority(N) || !confirms {
            return Some(token);
        }
        self.confirms = (0..N).fold(0, |all, master| all | u8::from(granted[master] > 0) << master);
        self.phase = Phase::Confirming(token);
        None
    }

    /// Returns the token or the slot once a majority has acknowledged.
    pub(crate) fn on_ack(&mut self, master: usize) -> Option<u8> {
        if self.ended {
            return None;
        }
        self.acks |= 1 << master;
        let enough = self.acks.count_ones() as usize >= majority(N);
        match self.phase {
            Phase::Confirming(number) | Phase::Claiming(number) => enough.then_some(number),
            _ => None,
        }
    }

    pub(crate) fn won(&mut self, token: u8) {
        self.phase = Phase::Held(token);
        self.tidy();
    }

    /// Ends the attempt: the attempt was given up or lost, or its lease was.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.tidy();
    }

    /// Resets fields without influence, so that states that behave alike are one.
    pub(crate) fn tidy(&mut self) {
        if let Phase::Held(_) = self.phase {
            (self.acks, self.after) = (0, 0);
        }
        if self.confirms == 0 && !matches!(self.phase, Phase::Granting) {
            self.granted = [0; N];
        }
        if self.first == 0 {
            self.floor = 0;
        }
        if self.ended {
            (self.acks, self.after) = (0, 0);
            if !self.is_pending() {
                *self = Self {
                    phase: Phase::Over,
                    ..Self::default()
                };
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempts<const N: usize>(pub [Attempt<N>; MOST]);

impl<const N: usize> Attempts<N> {
    /// Returns a mask of the attempts that a wait has to outlast.
    pub(crate) fn pending(&self) -> u8 {
        let all = self.0.iter().enumerate();
        all.filter(|(_, attempt)| attempt.is_pending())
            .fold(0, |mask, (id, _)| mask | 1 << id)
    }
}
