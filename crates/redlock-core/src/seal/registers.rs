//! Defines the registers of a master, which only grow, and the floor that a sealed master must have.
//!
//! Pure. Owns the merge of registers and the floor after a total loss. A master with a register that cannot
//! be parsed is not a source, since the omitted register would be forgotten.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    DeclaredDelay, Unknown,
    fence::MARK_OBJECT,
    plausible::{RegisterLimits, nth_greatest},
    reply, same_job, timing,
};

/// The fields of `P:meta` that are not registers.
const NO_REGISTERS: [&str; 5] = ["seal", "fingerprint", "evicted", "replication", "restored"];
const SLOT: &str = "slot:";
const SLOT_FLOOR: &str = "slotFloor";
const DELAY: &str = "delay:";
const CLEAN: &str = "clean:";
/// The uid of no job: no job can claim the slot again.
const NO_JOB: &str = "nobody";
/// The time after the loss up to which slots are not claimed again (P-90). A CronJob controller or a `redlock run` may
/// be a minute early by its own clock, and a `redlock run` claims a slot up to a minute before its time by that clock.
const SLOT_MARGIN: Duration = Duration::from_secs(120);

/// The registers of one master, or the greatest of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// `counter`, `slotFloor`, `heldFloor`, `held:<lock>`, `clean:<lock>`, and those of later versions.
    pub numbers: BTreeMap<String, u64>,
    /// `slot:<lock>/<name of the target's object>`.
    pub slots: BTreeMap<String, Slot>,
    /// `delay:<lock>`.
    pub delays: BTreeMap<String, DeclaredDelay>,
}

/// The last claimed slot of a target and the job that claimed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub slot: u64,
    pub uid: String,
}

/// The statement about leases that may have been live before a total loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// Each lock waits its takeover delay, at least 40 s: its holder may have been running targets (P-85).
    MayHaveHeld,
    /// The masters are new: no lock was ever held.
    NothingHeld,
}

impl Slot {
    fn merge(&mut self, other: Self) {
        if other.slot > self.slot {
            *self = other;
        } else if other.slot == self.slot && !same_job(&other.uid, &self.uid) {
            // Either job may have the majority. A slot runs at most once, never twice, so neither job is
            // granted it again (P-80).
            NO_JOB.clone_into(&mut self.uid);
        }
    }
}

impl Registers {
    pub fn of_counter(counter: u64) -> Self {
        Self {
            numbers: BTreeMap::from([("counter".to_owned(), counter)]),
            ..Self::default()
        }
    }

    /// Adds a field of `P:meta` in place of an earlier value.
    pub(super) fn read(&mut self, field: &str, value: &str) -> Result<(), Unknown> {
        if NO_REGISTERS.contains(&field) {
            return Ok(());
        }
        let bad = || {
            let shown: String = value.chars().take(60).collect();
            Unknown::Reply(format!("register {field} holds {shown:?}"))
        };
        if field.starts_with(SLOT) {
            let (slot, uid) = value.split_once('|').ok_or_else(bad)?;
            let slot = Slot {
                slot: slot.parse().map_err(|_| bad())?,
                uid: uid.to_owned(),
            };
            self.slots.insert(field.to_owned(), slot);
        } else if field.starts_with(DELAY) {
            let delay = reply::declared(value).ok_or_else(bad)?;
            self.delays.insert(field.to_owned(), delay);
        } else {
            let number = value.parse().map_err(|_| bad())?;
            self.numbers.insert(field.to_owned(), number);
        }
        Ok(())
    }

    /// Returns the first register that is beyond the limits, with its value: its master is no source (P-71).
    #[must_use]
    pub fn implausible(&self, limits: &RegisterLimits) -> Option<(&str, u64)> {
        let mut all = self.bounded();
        all.find(|(field, number)| *number > if is_slot(field) { limits.slot } else { limits.token })
    }

    /// Returns the limits with what the registers of a majority of the sources reach: after a step of all clocks, right
    /// slots are ahead of them.
    #[must_use]
    pub fn widen(limits: RegisterLimits, sources: &[&Self], majority: usize) -> RegisterLimits {
        let greatest = |source: &Self, slots: bool| {
            let registers = source.bounded().filter(|(field, _)| is_slot(field) == slots);
            registers.map(|(_, number)| number).max().unwrap_or_default()
        };
        let reached = |slots| {
            let of_each = sources.iter().map(|source| greatest(source, slots));
            nth_greatest(of_each, majority).unwrap_or_default()
        };
        RegisterLimits {
            token: limits.token.max(reached(false)),
            slot: limits.slot.max(reached(true)),
        }
    }

    /// Returns the registers that hold a token or a slot.
    fn bounded(&self) -> impl Iterator<Item = (&str, u64)> {
        let numbers = self.numbers.iter().map(|(field, number)| (&**field, *number));
        let known = numbers.filter(|(field, _)| is_token(field) || *field == SLOT_FLOOR);
        let delays = self.delays.iter().map(|(field, delay)| (&**field, delay.token));
        let slots = self.slots.iter().map(|(field, slot)| (&**field, slot.slot));
        known.chain(delays).chain(slots)
    }

    /// Returns the floor of a seal by these sources: each register at its greatest value, and a clean end as it is shown by a
    /// majority. A clean end that is missing only lengthens a wait (P-78); one that one source shows may be forged.
    #[must_use]
    pub fn floor_of(sources: Vec<Self>, majority: usize) -> Self {
        let clean = |field: &str| nth_greatest(sources.iter().map(|source| source.number(field)), majority);
        let mut cleans = BTreeMap::new();
        for field in sources.iter().flat_map(|source| source.numbers.keys()) {
            if field.starts_with(CLEAN) {
                cleans.insert(field.clone(), clean(field).unwrap_or_default());
            }
        }
        let mut floor = sources.into_iter().fold(Self::default(), Self::merged);
        floor.numbers.extend(cleans);
        floor
    }

    /// Merges the registers, each to its greater value, in any order and grouping (P-78, P-80).
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        for (field, number) in other.numbers {
            let own = self.numbers.entry(field).or_default();
            *own = number.max(*own);
        }
        for (field, slot) in other.slots {
            match self.slots.get_mut(&field) {
                Some(own) => own.merge(slot),
                None => drop(self.slots.insert(field, slot)),
            }
        }
        for (field, delay) in other.delays {
            let own = self.delays.entry(field).or_default();
            *own = delay.max(*own);
        }
        self
    }

    /// Returns the number of registers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len() + self.slots.len() + self.delays.len()
    }

    /// Returns one number; zero if it was never written.
    #[must_use]
    pub fn number(&self, field: &str) -> u64 {
        self.numbers.get(field).copied().unwrap_or_default()
    }

    /// Returns the floor when fewer than f+1 masters have all registers: above all known values, and above every
    /// possible one, since counters begin at the milliseconds since 1970 and grow more slowly than these (P-75).
    #[must_use]
    pub fn fallback(self, unix_time: Duration, past: Past) -> Self {
        let milliseconds = timing::millis_down(unix_time);
        let counter = self.number("counter").max(milliseconds);
        let mut floor = vec![
            ("counter", counter),
            (SLOT_FLOOR, (unix_time + SLOT_MARGIN).as_secs()),
        ];
        if past == Past::MayHaveHeld {
            floor.push(("heldFloor", counter));
        }
        let numbers = floor
            .into_iter()
            .map(|(field, n)| (field.to_owned(), n))
            .collect();
        self.merged(Self {
            numbers,
            ..Self::default()
        })
    }

    /// Returns the registers with their values, as the scripts store them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, String)> {
        let numbers = self
            .numbers
            .iter()
            .map(|(field, number)| (&**field, number.to_string()));
        let slots = self
            .slots
            .iter()
            .map(|(field, slot)| (&**field, format!("{}|{}", slot.slot, slot.uid)));
        let delays = self.delays.iter().map(|(field, delay)| {
            let DeclaredDelay { token, milliseconds } = delay;
            (&**field, format!("{token}|{milliseconds}"))
        });
        numbers.chain(slots).chain(delays)
    }
}

/// Reports whether the number is a token. A later version may store numbers of other units.
fn is_token(field: &str) -> bool {
    let of_a_lock = ["held:", CLEAN, "closed:"];
    ["counter", "heldFloor"].contains(&field) || of_a_lock.iter().any(|kind| field.starts_with(kind))
}

/// Reports whether the register holds a slot. The mark of a fenced lock is merged like a slot, and holds a token.
fn is_slot(field: &str) -> bool {
    let is_mark = field.rsplit('/').next() == Some(MARK_OBJECT);
    field == SLOT_FLOOR || (field.starts_with(SLOT) && !is_mark)
}

#[cfg(test)]
mod tests;
