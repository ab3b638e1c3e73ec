//! Registers that only grow, and that a seal restores.

use redlock_core::{DeclaredDelay, Mark, Marks};

use crate::plant::Plant;

/// Merges marks as slots: the larger token; a tie of different marks belongs to no cluster.
fn merged_mark(one: &(u64, String), other: &(u64, String)) -> (u64, String) {
    if one.0 == other.0 && one.1 != other.1 {
        return (one.0, "nobody".to_owned());
    }
    one.max(other).clone()
}

/// The UID of a Job; `None` for the slot of a tie, which belongs to no Job.
pub(crate) type Job = Option<u32>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) counter: u64,
    pub(crate) slot: (u64, Job),
    pub(crate) slot_floor: u64,
    pub(crate) held: u64,
    pub(crate) clean: u64,
    pub(crate) held_floor: u64,
    pub(crate) delay: DeclaredDelay,
    /// For a fenced lock, the token and the mark without it. Under the token `closed`, no pod starts.
    pub(crate) mark: (u64, String),
    pub(crate) closed: u64,
}

impl Registers {
    /// Merges the registers, each to the greater value.
    pub(crate) fn merged(&self, other: &Self, plant: Plant) -> Self {
        let slot = if self.slot.0 == other.slot.0 && self.slot.1 != other.slot.1 {
            match plant {
                Plant::TieToOne => self.slot.max(other.slot),
                _ => (self.slot.0, None),
            }
        } else {
            self.slot.max(other.slot)
        };
        Self {
            counter: self.counter.max(other.counter),
            slot: if plant == Plant::SlotsNotRestored {
                self.slot
            } else {
                slot
            },
            slot_floor: self.slot_floor.max(other.slot_floor),
            held: self.held.max(other.held),
            clean: self.clean.max(other.clean),
            held_floor: self.held_floor.max(other.held_floor),
            delay: self.delay.max(other.delay),
            mark: merged_mark(&self.mark, &other.mark),
            closed: self.closed.max(other.closed),
        }
    }

    /// Returns the marks. The greatest `held` of a lock is never below the floor.
    pub(crate) fn marks(&self) -> Marks {
        Marks {
            held: self.held.max(self.held_floor),
            clean: self.clean,
            delay: self.delay,
        }
    }

    pub(super) fn mark(&mut self, token: u64, mark: Mark, plant: Plant) {
        match mark {
            Mark::Closed => self.closed = token.max(self.closed),
            Mark::Clean => self.clean = token.max(self.clean),
            Mark::Held { delay } => {
                self.held = token.max(self.held);
                let milliseconds = u64::try_from(delay.as_millis()).unwrap();
                let delay = DeclaredDelay { token, milliseconds };
                self.delay = match plant {
                    Plant::DelayLowered if self.delay.token == token => delay,
                    _ => delay.max(self.delay),
                };
            }
        }
    }

    /// Raises the registers of a marked lease.
    pub(super) fn raise(&mut self, token: u64, fence: &str, delay: u64, plant: Plant) {
        let delay = std::time::Duration::from_millis(delay);
        let fence = match plant {
            Plant::FirstByEachMaster => self.own_first(token, fence),
            _ => fence.to_owned(),
        };
        self.mark(token, Mark::Held { delay }, plant);
        if self.mark.0 < token {
            self.mark = (token, fence);
        }
    }

    /// Returns the planted fault: the mark with the first lease that this master would continue.
    fn own_first(&self, token: u64, fence: &str) -> String {
        let parts = |mark: &str| mark.split(',').map(str::to_owned).collect::<Vec<_>>();
        let (own, new) = (parts(&self.mark.1), parts(fence));
        let continues = own.len() == 3 && own[1] == new[1] && self.mark.0 >= self.held.max(self.held_floor);
        let first = if continues {
            own[0].clone()
        } else {
            token.to_string()
        };
        format!("{first},{},{}", new[1], new[2])
    }

    pub(super) fn claim(&mut self, slot: u64, job: Job) -> bool {
        if slot <= self.slot_floor {
            return false;
        }
        if slot > self.slot.0 {
            self.slot = (slot, job);
            return true;
        }
        job.is_some() && self.slot == (slot, job)
    }
}
