//! Finds the registers that locks leave after a clean end, so that the registers of deleted locks do not add up.
//!
//! Pure. Without `held` and `clean` a lock counts as one that was never held, which is a clean end as well. So `held` goes first,
//! while f+1 masters show the clean end: a master that keeps it is still overruled. `clean` goes once no master shows `held`.

use std::collections::{BTreeMap, BTreeSet};

use super::registers::Registers;
use crate::{fence::MARK_OBJECT, plausible::nth_greatest};

/// A register of a lock that ended cleanly, at this token or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRegister {
    pub lock: String,
    pub token: u64,
    pub kind: EndedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedKind {
    /// `held:<lock>` and `delay:<lock>`.
    Held,
    /// `clean:<lock>`.
    Clean,
}

impl EndedKind {
    /// Returns the name, as the `forget` script reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Clean => "clean",
        }
    }
}

/// Returns the registers that may be removed. `masters` are the registers of all masters, each of them sealed: without `clean`, a
/// master that is missing could show `held` alone, and the next holder would wait (P-121).
#[must_use]
pub fn ended_registers(masters: &[Registers], majority: usize) -> Vec<EndedRegister> {
    // After a total loss a lock without registers counts as ended uncleanly, once.
    let lost = masters.iter().any(|master| master.number("heldFloor") > 0);
    let mut locks: BTreeMap<&str, bool> = BTreeMap::new();
    for (field, number) in masters.iter().flat_map(|master| &master.numbers) {
        if let Some(lock) = field.strip_prefix("held:") {
            *locks.entry(lock).or_default() |= *number > 0;
        } else if let Some(lock) = field.strip_prefix("clean:") {
            locks.entry(lock).or_default();
        }
    }
    // A lease that began after the masters were read has a greater token.
    let counters = masters.iter().map(|master| master.number("counter"));
    let latest = nth_greatest(counters, majority).unwrap_or_default();
    let fenced = fenced_locks(masters);
    let unfenced = locks.into_iter().filter(|(lock, _)| !fenced.contains(lock));
    let ended = unfenced.filter_map(|(lock, held)| {
        let shown = |kind: EndedKind| {
            let field = format!("{}:{lock}", kind.name());
            masters.iter().map(move |master| master.number(&field))
        };
        let (kind, token) = if held {
            let token = shown(EndedKind::Held).max()?;
            let clean = nth_greatest(shown(EndedKind::Clean), majority)?;
            (EndedKind::Held, (clean >= token).then_some(token)?)
        } else {
            (EndedKind::Clean, shown(EndedKind::Clean).max().filter(|_| !lost)?)
        };
        Some(EndedRegister {
            lock: lock.to_owned(),
            token: token.min(latest),
            kind,
        })
    });
    ended.collect()
}

/// Returns the locks with a fence mark or a closed lease, which agents of nodes read.
fn fenced_locks(masters: &[Registers]) -> BTreeSet<&str> {
    let numbers = masters.iter().flat_map(|master| &master.numbers);
    let closed = numbers.filter(|(_, token)| **token > 0);
    let closed = closed.filter_map(|(field, _)| field.strip_prefix("closed:"));
    let marks = masters.iter().flat_map(|master| master.slots.keys());
    let marks = marks.filter_map(|field| {
        let (lock, object) = field.strip_prefix("slot:")?.rsplit_once('/')?;
        (object == MARK_OBJECT).then_some(lock)
    });
    closed.chain(marks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Slot;

    fn numbers(of: &[(&str, u64)]) -> Registers {
        let counter = [("counter", 9)];
        let of = of.iter().chain(&counter);
        Registers {
            numbers: of.map(|(field, n)| ((*field).to_owned(), *n)).collect(),
            ..Registers::default()
        }
    }

    fn ended(masters: &[Registers]) -> Vec<(String, u64, EndedKind)> {
        let ended = ended_registers(masters, 2).into_iter();
        ended.map(|ended| (ended.lock, ended.token, ended.kind)).collect()
    }

    #[test]
    fn held_goes_while_a_majority_shows_the_clean_end_and_clean_when_no_master_shows_held() {
        let both = numbers(&[("held:a/b", 7), ("clean:a/b", 7)]);
        let held = numbers(&[("held:a/b", 7)]);
        let clean = numbers(&[("clean:a/b", 7)]);
        let none = numbers(&[]);
        let removed = |kind| vec![("a/b".to_owned(), 7, kind)];
        for (masters, expected) in [
            ([&both, &both, &held], removed(EndedKind::Held)),
            ([&both, &clean, &held], removed(EndedKind::Held)),
            ([&clean, &clean, &held], removed(EndedKind::Held)),
            ([&both, &held, &held], vec![]),
            ([&both, &both, &numbers(&[("held:a/b", 8)])], vec![]),
            ([&clean, &clean, &none], removed(EndedKind::Clean)),
            ([&clean, &none, &none], removed(EndedKind::Clean)),
            ([&none, &none, &none], vec![]),
        ] {
            assert_eq!(ended(&masters.map(Clone::clone)), expected, "{masters:?}");
        }
    }

    /// A lease that was won, marked and ended while the masters were read.
    #[test]
    fn clean_end_of_a_lease_that_began_later_stays() {
        let (before, after) = (numbers(&[("clean:a/b", 7)]), numbers(&[("clean:a/b", 10)]));
        assert_eq!(
            ended(&[after, before.clone(), before]),
            [("a/b".to_owned(), 9, EndedKind::Clean)]
        );
    }

    #[test]
    fn fenced_locks_and_clean_ends_after_a_total_loss_stay() {
        let clean = numbers(&[("clean:a/b", 7)]);
        let lost = numbers(&[("clean:a/b", 7), ("heldFloor", 5)]);
        assert_eq!(ended(&[clean.clone(), clean.clone(), lost.clone()]), []);
        let held = numbers(&[("held:a/b", 7), ("clean:a/b", 7), ("heldFloor", 5)]);
        let removed = ended(&[held.clone(), held, lost]);
        assert_eq!(removed, [("a/b".to_owned(), 7, EndedKind::Held)]);
        let closed = numbers(&[("clean:a/b", 7), ("closed:a/b", 7)]);
        assert_eq!(ended(&[clean.clone(), clean.clone(), closed]), []);
        let slot = |object: &str| Registers {
            slots: [(
                format!("slot:a/b/{object}"),
                Slot {
                    slot: 7,
                    uid: "u".into(),
                },
            )]
            .into(),
            ..clean.clone()
        };
        assert_eq!(ended(&[clean.clone(), clean.clone(), slot("!mark")]), []);
        assert_eq!(ended(&[clean.clone(), clean.clone(), slot("report")]).len(), 1);
    }
}
