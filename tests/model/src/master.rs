//! One master: the effects of its scripts on tokens and slots, and how it gets its seal.

use crate::{attempt::Attempts, world::Bug};

/// Returns the fewest masters of which any two groups share one.
pub(crate) const fn majority(masters: usize) -> usize {
    masters / 2 + 1
}

/// One run of the CronJob, and the job that has it; 0 means that no job has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) number: u8,
    pub(crate) job: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Registers {
    pub(crate) counter: u8,
    pub(crate) slot: Slot,
    pub(crate) slot_floor: u8,
}

impl Registers {
    /// Merges each register to its maximum. If equal slots have different jobs, no job has the slot, unless
    /// `tie` names the winner: the planted bug.
    fn merged(self, other: Self, tie: Option<bool>) -> Self {
        let (a, b) = (self.slot, other.slot);
        let slot = match a.number.cmp(&b.number) {
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Less => b,
            std::cmp::Ordering::Equal if a.job == b.job => a,
            std::cmp::Ordering::Equal => match tie {
                Some(true) => a,
                Some(false) => b,
                None => Slot { job: 0, ..a },
            },
        };
        Self {
            counter: self.counter.max(other.counter),
            slot,
            slot_floor: self.slot_floor.max(other.slot_floor),
        }
    }

    /// Reports whether the registers of two masters tie here.
    pub(crate) fn ties(self, other: Self) -> bool {
        self.slot.number == other.slot.number && self.slot.job != other.slot.job
    }
}

/// A lease of an attempt, with the number that this master granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lease {
    pub(crate) of: u8,
    pub(crate) grant: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Seal {
    Sealed,
    /// The master lost its memory, and no client has noticed.
    Lost,
    /// The master carries a probe. The wait is over when these attempts are; then the registers are read, from one
    /// master after the other.
    Probed {
        waits_for: u8,
        read: u8,
        floor: Registers,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Master {
    pub(crate) seal: Seal,
    pub(crate) registers: Registers,
    pub(crate) lease: Option<Lease>,
}

impl Master {
    pub(crate) const NEW: Self = Self {
        seal: Seal::Sealed,
        registers: Registers {
            counter: 0,
            slot: Slot { number: 0, job: 0 },
            slot_floor: 0,
        },
        lease: None,
    };

    pub(crate) fn is_sealed(&self) -> bool {
        self.seal == Seal::Sealed
    }

    pub(crate) fn wipe(&mut self, bug: Bug) {
        *self = Self {
            seal: if bug == Bug::NoSeal {
                Seal::Sealed
            } else {
                Seal::Lost
            },
            ..Self::NEW
        };
    }

    pub(crate) fn probe<const N: usize>(&mut self, attempts: &Attempts<N>, bug: Bug) {
        self.seal = Seal::Probed {
            waits_for: if bug == Bug::FloorWithoutWait {
                0
            } else {
                attempts.pending()
            },
            read: 0,
            floor: Registers::default(),
        };
    }

    /// Takes the registers of another master into the floor.
    pub(crate) fn read(&mut self, source: usize, registers: Registers, tie: Option<bool>) {
        if let Seal::Probed { read, floor, .. } = &mut self.seal {
            *floor = if *read == 0 {
                registers
            } else {
                floor.merged(registers, tie)
            };
            *read |= 1 << source;
        }
    }

    /// Returns the granted number; `None` if the grant is refused or the master has no vote.
    pub(crate) fn grant(&mut self, attempt: u8, floor: u8) -> Option<u8> {
        if !self.is_sealed() {
            return None;
        }
        if let Some(lease) = self.lease {
            return (lease.of == attempt).then_some(lease.grant);
        }
        let counter = &mut self.registers.counter;
        *counter = (*counter).max(floor) + 1;
        self.lease = Some(Lease {
            of: attempt,
            grant: *counter,
        });
        Some(*counter)
    }

    /// Reports whether the master acknowledges that exactly this was granted and is still stored.
    pub(crate) fn confirm(&mut self, lease: Lease, token: u8, bug: Bug) -> bool {
        let there = self.lease == Some(lease) || bug == Bug::ConfirmUnconditional;
        if !self.is_sealed() || !there {
            return false;
        }
        self.registers.counter = self.registers.counter.max(token);
        true
    }

    /// A renewal that finds no lease restores it.
    pub(crate) fn heal(&mut self, lease: Lease) {
        self.registers.counter = self.registers.counter.max(lease.grant);
    }

    pub(crate) fn claim(&mut self, slot: Slot) -> bool {
        let own = self.registers.slot;
        if !self.is_sealed() || slot.number <= self.registers.slot_floor || slot.number < own.number {
            return false;
        }
        if slot.number > own.number {
            self.registers.slot = slot;
            return true;
        }
        own.job == slot.job
    }
}
