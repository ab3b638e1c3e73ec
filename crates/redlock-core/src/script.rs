//! The Lua scripts: their text, their keys and arguments.
//!
//! Each writing script begins with the same check: the seal, the fingerprint with the quorum id, `not_after`. Those
//! that write to a master without a seal begin with a check of the run, of the missing seal and of `not_after`.

use std::{sync::Arc, sync::LazyLock};

use crate::{
    ClusterId, Keyspace, LeaseAttempt, LockKeys, Mark,
    command::{Command, Item, Operation},
    fence::{FenceMark, FencedLease, Removal, own_reservation},
    timing::millis_down,
};

/// A script by its name and its text.
#[derive(Debug)]
pub struct Script {
    pub name: &'static str,
    pub source: String,
    /// The keys and arguments of the scripts that carry a batch of locks.
    pub layout: Option<Layout>,
}

/// The keys and arguments of a script that carries several locks: those of the call, then those of each lock. The
/// scripts read what the model of the simulation takes from a [`Payload`] (P-21).
///
/// KEYS: `meta`, then `keys` of each lock. ARGV: `not_after`, the stamp, `head`, then `arguments` of each lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub keys: &'static [&'static str],
    pub head: &'static [&'static str],
    pub arguments: &'static [&'static str],
}

const LEASE: &[&str] = &["lease"];
const BOTH: &[&str] = &["lease", "reserved"];

const fn layout(
    keys: &'static [&'static str],
    head: &'static [&'static str],
    arguments: &'static [&'static str],
) -> Layout {
    Layout {
        keys,
        head,
        arguments,
    }
}

macro_rules! scripts {
    ($($name:ident = $($file:literal)+ $(=> $layout:expr)?;)+) => {
        $(pub static $name: LazyLock<Script> = LazyLock::new(|| Script {
            name: stringify!($name),
            source: [$(include_str!(concat!("scripts/", $file))),+].concat(),
            layout: [$($layout,)?].first().copied(),
        });)+

        /// All scripts.
        pub static ALL: &[&LazyLock<Script>] = &[$(&$name),+];
    };
}

// `preamble.lua` begins each batch script: in the call of the vote itself, it checks the seal (P-17), the stamp (P-18)
// and `not_after` (P-19).
scripts! {
    // Grants a lease of the same stem again under its number (P-31). Refuses beside another lease, and beside a
    // reservation that is not for the own cluster (P-32). Raises the counter for the whole batch before it sets
    // the first lease (P-33).
    GRANT = "fields_marks.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "grant.lua" "granted.lua"
        => layout(BOTH, &["floor", "cluster"], &["stem", "milliseconds", "name"]);
    // Acknowledges only a lease with exactly the value that was granted (P-35).
    CONFIRM = "fields_none.lua" "preamble.lua" "confirm.lua" => layout(LEASE, &[], &["value", "token"]);
    // Extends a lease and never shortens it, except to the longest lease (P-45). Puts back a missing one, after the
    // counter (P-46). Refuses where another lease, or a reservation for others, exists (P-47).
    RENEW = "fields_none.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "renew.lua"
        => layout(BOTH, &["cluster"], &["stem", "token", "milliseconds"]);
    // Deletes only the lease of the caller, and with it a reservation for the own cluster (P-52).
    RELEASE = "fields_none.lua" "preamble.lua" "cluster.lua" "release.lua"
        => layout(BOTH, &["cluster", "channel"], &["stem", "published name"]);
    // Replaces the lease by a reservation for the rest of its time, in one script (P-55).
    RESERVE = "fields_none.lua" "preamble.lua" "shortened.lua" "cluster.lua" "reserve.lua"
        => layout(BOTH, &["channel", "cluster"], &["stem", "name", "to cluster"]);
    // Writes nothing: each standby calls it at least every half lease (P-64).
    OBSERVE = "fields_none.lua" "preamble.lua" "remaining.lua" "obstacle.lua" "cluster.lua" "observe.lua"
        => layout(BOTH, &["cluster"], &[]);
    // Deletes no lease, and shortens no reservation (P-58).
    BREAK = "fields_none.lua" "preamble.lua" "shortened.lua" "break.lua" => layout(BOTH, &["milliseconds"], &[]);
    MARK = "fields_none.lua" "preamble.lua" "mark.lua"
        => layout(LEASE, &[], &["stem", "name", "token", "delay"]);
    CLAIM = "fields_none.lua" "preamble.lua" "claim.lua" => layout(&[], &[], &["field", "slot", "job"]);
    SLOTS = "fields_none.lua" "preamble.lua" "slots.lua" => layout(&[], &[], &["field"]);
    GRANT_FENCED = "fields_fenced.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "grant.lua" "granted_fenced.lua"
        => layout(BOTH, &["floor", "cluster"], &["stem", "milliseconds", "name"]);
    RENEW_FENCED = "fields_none.lua" "preamble.lua" "shortened.lua" "obstacle.lua" "cluster.lua" "raise.lua" "renew_fenced.lua"
        => layout(BOTH, &["cluster"], &["stem", "token", "milliseconds", "name", "mark", "delay", "own reservation"]);
    RESERVE_FENCED = "fields_none.lua" "preamble.lua" "shortened.lua" "cluster.lua" "reserve_fenced.lua"
        => layout(BOTH, &["channel", "cluster"], &["stem", "name", "to cluster", "keep"]);
    MARK_FENCED = "fields_none.lua" "preamble.lua" "raise.lua" "mark_fenced.lua"
        => layout(LEASE, &[], &["stem", "name", "token", "mark", "delay"]);
    FENCE = "fields_fence.lua" "preamble.lua" "fence.lua" => layout(BOTH, &[], &["name"]);
    FORGET = "fields_none.lua" "preamble.lua" "forget.lua"
        => layout(BOTH, &[], &["name", "token", "register"]);
    FACTS = "history.lua" "facts.lua";
    REGISTERS = "registers.lua";
    SCAN = "scan.lua";
    INSPECT = "inspect.lua";
    SCRATCH = "scratch.lua";
    PROBE = "ended.lua" "unsealed.lua" "probe.lua";
    TURN = "ended.lua" "unsealed.lua" "turn.lua";
    RESTORE = "ended.lua" "unsealed.lua" "merge.lua" "restore.lua";
    // Checks the run, the probe, the pages before and replicas, merges the registers, and writes the seal last (P-72).
    SEAL = "ended.lua" "unsealed.lua" "history.lua" "merge.lua" "seal.lua";
    RETIRE = "ended.lua" "retire.lua";
}

/// Receives keys and arguments in the order of `EVALSHA`, after the name of the script.
pub trait Arguments {
    fn text(&mut self, text: &str);
    fn number(&mut self, number: u64);
}

/// One lock of a batch.
pub type BatchItem = (Arc<LockKeys>, Item);

/// The call of one script for a batch of locks. The calls of one batch to several masters share it.
#[derive(Clone, Debug)]
pub struct Payload {
    pub operation: Operation,
    pub items: Arc<[BatchItem]>,
    pub keys: Keyspace,
    /// The own cluster, as a reservation names it. The scripts compare its UID alone (P-16).
    pub cluster: Arc<str>,
    /// The greatest counter that any master showed: it keeps the counters close to each other.
    pub floor: u64,
}

impl Payload {
    /// Reports whether the locks are fenced. One call carries one kind.
    fn is_fenced(&self) -> bool {
        self.items.first().is_some_and(|(_, item)| item.is_fenced())
    }

    #[must_use]
    pub fn script(&self) -> &'static Script {
        match self.operation {
            Operation::Grant if self.is_fenced() => &GRANT_FENCED,
            Operation::Renew if self.is_fenced() => &RENEW_FENCED,
            Operation::Reserve if self.is_fenced() => &RESERVE_FENCED,
            Operation::Mark if self.is_fenced() => &MARK_FENCED,
            Operation::Grant => &GRANT,
            Operation::Confirm => &CONFIRM,
            Operation::Renew => &RENEW,
            Operation::Release | Operation::Undo => &RELEASE,
            Operation::Reserve => &RESERVE,
            Operation::Observe => &OBSERVE,
            Operation::Break => &BREAK,
            Operation::Mark => &MARK,
            Operation::Claim => &CLAIM,
            Operation::Slots => &SLOTS,
        }
    }

    /// Returns the items for one master, in the order of its reply (P-11).
    #[must_use]
    pub fn members(&self, master: usize) -> Vec<usize> {
        let all = 0..self.items.len();
        all.filter(|i| self.items[*i].1.is_for(master)).collect()
    }

    /// Writes the keys and arguments of a call to `master` for these members.
    pub fn write(
        &self,
        to: &mut impl Arguments,
        not_after: u64,
        stamp: &str,
        master: usize,
        members: &[usize],
    ) {
        let keys = self.script().layout.map_or(&[][..], |layout| layout.keys);
        to.number((1 + keys.len() * members.len()) as u64);
        to.text(&self.keys.meta);
        let items = || members.iter().map(|i| &self.items[*i]);
        for (lock, _) in items() {
            for key in keys {
                to.text(if *key == "lease" {
                    &lock.lease
                } else {
                    &lock.reserved
                });
            }
        }
        to.number(not_after);
        to.text(stamp);
        self.write_head(to);
        for (lock, item) in items() {
            write_item(to, lock, item, master);
        }
    }

    fn write_head(&self, to: &mut impl Arguments) {
        match self.operation {
            Operation::Grant => {
                to.number(self.floor);
                to.text(&self.cluster);
            }
            Operation::Renew | Operation::Observe => to.text(&self.cluster),
            Operation::Release | Operation::Undo => {
                // An undo leaves reservations alone, those for its own cluster included (P-15).
                let ends_reservation = self.operation == Operation::Release;
                to.text(if ends_reservation { &self.cluster } else { "" });
                to.text(&self.keys.channel);
            }
            Operation::Reserve => {
                to.text(&self.keys.channel);
                to.text(&self.cluster);
            }
            Operation::Break => {
                let longest = self.items.iter().find_map(|(_, item)| match item {
                    Item::Command(Command::Break { longest_lease }) => Some(*longest_lease),
                    _ => None,
                });
                to.number(millis_down(longest.unwrap_or_default()));
            }
            Operation::Confirm | Operation::Mark | Operation::Claim | Operation::Slots => {}
        }
    }
}

fn write_item(to: &mut impl Arguments, lock: &LockKeys, item: &Item, master: usize) {
    let name = lock.name.as_str();
    match item {
        Item::Confirm {
            attempt,
            token,
            granted,
        } => {
            let number = granted.iter().find(|(m, _)| *m == master);
            let number = number.map_or(0, |(_, number)| *number);
            to.text(&format!("{}{number}", attempt.stem.as_str()));
            to.number(token.0);
        }
        Item::UndoAgain { attempt, publish, .. } => write_undo(to, attempt, name, *publish),
        Item::ReserveAgain { attempt, cluster, .. } => {
            write_reserve(to, attempt, name, cluster);
            // Pods of a sibling may run by the reservation of this cluster, which also keeps the lock from
            // other clusters for longer (P-111).
            if attempt.fence().is_some() {
                to.text("keep");
            }
        }
        Item::Command(command) => write_command(to, name, command),
    }
}

fn write_undo(to: &mut impl Arguments, attempt: &LeaseAttempt, name: &str, publish: bool) {
    to.text(attempt.stem.as_str());
    to.text(if publish { name } else { "" });
}

fn write_reserve(to: &mut impl Arguments, attempt: &LeaseAttempt, name: &str, cluster: &ClusterId) {
    to.text(attempt.stem.as_str());
    to.text(name);
    to.text(&cluster.to_string());
}

fn write_command(to: &mut impl Arguments, name: &str, command: &Command) {
    match command {
        Command::Acquire {
            attempt,
            lease_duration,
        } => {
            to.text(attempt.stem.as_str());
            to.number(millis_down(*lease_duration));
            to.text(name);
        }
        Command::Renew {
            attempt,
            token,
            lease_duration,
        } => {
            to.text(attempt.stem.as_str());
            to.number(token.0);
            to.number(millis_down(*lease_duration));
            if let Some(fence) = attempt.fence() {
                to.text(name);
                write_fence(to, fence);
                to.number(millis_down(own_reservation(*lease_duration, attempt.lifetime)));
            }
        }
        Command::Release { attempt } => write_undo(to, attempt, name, true),
        Command::Undo { attempt, publish } => write_undo(to, attempt, name, *publish),
        Command::Reserve { attempt, cluster } => {
            write_reserve(to, attempt, name, cluster);
            if let Some(fence) = attempt.fence() {
                to.text(if fence.removal() == Removal::All {
                    ""
                } else {
                    "keep"
                });
            }
        }
        Command::Mark { attempt, token, mark } => {
            to.text(attempt.stem.as_str());
            to.text(name);
            to.number(token.0);
            write_mark(to, attempt.fence(), *mark);
        }
        Command::Claim { object, slot, job } => {
            to.text(&format!("slot:{name}/{object}"));
            to.number(*slot);
            to.text(job);
        }
        Command::Slots { object } => to.text(&format!("slot:{name}/{object}")),
        Command::Observe | Command::Inspect | Command::Break { .. } => {}
    }
}

fn write_mark(to: &mut impl Arguments, fence: Option<&FencedLease>, mark: Mark) {
    match (fence, mark) {
        (Some(fence), Mark::Held { .. }) => write_fence(to, fence),
        (Some(_), Mark::Closed) => {
            to.text("");
            to.text("");
        }
        (None, Mark::Held { delay }) => to.number(millis_down(delay)),
        (_, Mark::Clean | Mark::Closed) => to.text(""),
    }
}

/// Writes the mark and the longest delay declared with it (P-108). A lease counts as marked once the mark was sent.
fn write_fence(to: &mut impl Arguments, fence: &FencedLease) {
    to.text(&fence.mark().map(FenceMark::body).unwrap_or_default());
    to.number(fence.delay());
}

/// Writes the keys and arguments of the call by which the agent of a node reads these locks. One call carries all of
/// them, and its script writes nothing (P-114).
pub fn write_fence_call(
    to: &mut impl Arguments,
    keys: &Keyspace,
    (not_after, stamp): (u64, &str),
    locks: &[Arc<LockKeys>],
) {
    to.number((1 + 2 * locks.len()) as u64);
    to.text(&keys.meta);
    for lock in locks {
        to.text(&lock.lease);
        to.text(&lock.reserved);
    }
    to.number(not_after);
    to.text(stamp);
    for lock in locks {
        to.text(lock.name.as_str());
    }
}

#[cfg(test)]
pub(crate) mod tests;
