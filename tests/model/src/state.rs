//! The whole state, and the effect of one command on it.

use crate::{
    attempt::{Attempt, Attempts, MOST, Phase},
    master::{Lease, Master, Registers, Seal, Slot},
    world::Bug,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    TokenTwice,
    TokenWentBack,
    SlotTwice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const N: usize> {
    pub(crate) masters: [Master; N],
    pub(crate) attempts: Attempts<N>,
    /// A bit for each token that was won.
    pub(crate) won: u16,
    /// The job of each slot.
    pub(crate) runs: [u8; 2],
    /// Slots up to this one are due.
    pub(crate) due: u8,
    /// An upper bound of all counters so far: the value that the clock gives at a total loss.
    pub(crate) ever: u8,
    pub(crate) wipes: u8,
    pub(crate) broken: Option<Broken>,
    /// Events of the exploration, which show that the bounds are wide enough for them.
    pub(crate) resealed: bool,
    pub(crate) fell_back: bool,
}

impl<const N: usize> State<N> {
    pub(crate) fn next(&self) -> Option<usize> {
        (0..MOST).find(|id| self.attempts.0[*id].phase == Phase::Unborn)
    }

    pub(crate) fn begin(&mut self, attempt: Attempt<N>) {
        let Some(id) = self.next() else { return };
        self.attempts.0[id] = Attempt {
            first: (1 << N) - 1,
            ..attempt
        };
    }

    pub(crate) fn last_token(&self) -> u8 {
        (u16::BITS - self.won.leading_zeros()).saturating_sub(1) as u8
    }

    fn won(&mut self, id: usize, token: u8) {
        let after = self.attempts.0[id].after;
        if self.won & 1 << token != 0 {
            self.broken = Some(Broken::TokenTwice);
        } else if token <= after {
            self.broken = Some(Broken::TokenWentBack);
        }
        self.won |= 1 << token;
        self.attempts.0[id].won(token);
    }

    fn claimed(&mut self, id: usize, slot: u8) {
        let job = self.attempts.0[id].client + 1;
        let run = &mut self.runs[usize::from(slot) - 1];
        if ![0, job].contains(run) {
            self.broken = Some(Broken::SlotTwice);
        }
        *run = job;
        self.attempts.0[id].end();
    }

    pub(crate) fn first(&mut self, id: usize, master: usize, replies: bool, bug: Bug) {
        let attempt = &mut self.attempts.0[id];
        attempt.first &= !(1 << master);
        if let Phase::Claiming(number) = attempt.phase {
            // No reply arrives for a claim that was given up, but the job of its slot still counts.
            let slot = Slot {
                number,
                job: attempt.client + 1,
            };
            if self.masters[master].claim(slot) && replies && attempt.on_ack(master).is_some() {
                self.claimed(id, number);
            }
            return;
        }
        let granted = self.masters[master].grant(id as u8, attempt.floor);
        self.ever = self.ever.max(self.masters[master].registers.counter);
        let Some(number) = granted.filter(|_| replies && !attempt.ended) else {
            return;
        };
        if let Some(token) = attempt.on_grant(master, number, bug != Bug::NoConfirm) {
            self.won(id, token);
        }
    }

    pub(crate) fn confirm(&mut self, id: usize, master: usize, replies: bool, bug: Bug) {
        let attempt = &mut self.attempts.0[id];
        attempt.confirms &= !(1 << master);
        let Phase::Confirming(token) = attempt.phase else {
            return;
        };
        let lease = Lease {
            of: id as u8,
            grant: attempt.granted[master],
        };
        let confirmed = self.masters[master].confirm(lease, token, bug);
        self.ever = self.ever.max(self.masters[master].registers.counter);
        if confirmed
            && replies
            && let Some(token) = attempt.on_ack(master)
        {
            self.won(id, token);
        }
    }

    /// Returns the floor after a total loss. No slot that is due runs again, whatever its register was.
    pub(crate) fn floor_of_the_clock(&self) -> Registers {
        Registers {
            counter: self.ever,
            slot: Slot::default(),
            slot_floor: self.due,
        }
    }

    /// Counts the masters without a seal that carried their probes for the whole wait.
    pub(crate) fn waited(&self) -> usize {
        let waited = |master: &&Master| matches!(master.seal, Seal::Probed { waits_for: 0, .. });
        self.masters.iter().filter(waited).count()
    }
}
