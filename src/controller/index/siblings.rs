//! The core's questions to the other replicas, while this one cannot see the masters, and when it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Effect, Index, World, targets::has_finalizer};
use crate::{
    api::validate::leftovers,
    controller::{
        index::{lock_store::LockEntry, quorum_store::QuorumEntry},
        object::ObjectKey,
        sibling_answers::{Asked, Round, Witness, Word},
        writer::Item,
    },
    lease::{BootInstant, FencingToken, LockName},
};

/// Between two questions to a sibling, while they are needed.
const EVERY: Duration = Duration::from_millis(400);
/// A sibling that takes longer has not answered.
pub(in crate::controller) const PATIENCE: Duration = Duration::from_millis(500);
/// The same of the last question: what no sibling takes is stopped.
pub(in crate::controller) const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// An answer is good for so long where it says nothing of its end.
const FRESH: Duration = Duration::from_secs(2);
/// Locks without targets in one question: more of them than statuses are written until the next.
const AT_ONCE: usize = 512;

/// The rounds of questions.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The last one that ended.
    pub(super) said: Round,
    under_way: bool,
    /// Locks whose statuses may be this replica's to write once the siblings have answered.
    waiting: BTreeMap<ObjectKey, (String, LockName)>,
    /// When the last one began.
    at: Option<BootInstant>,
    /// Why this replica is not ready was reported, or it was ready.
    pub(super) told_not_ready: bool,
}

impl Index {
    /// Asks about the locks with targets whose holder this replica cannot see.
    pub(super) fn ask_siblings(&mut self, at: &World<'_>) {
        let now = at.now;
        if self.asking.under_way || self.asking.at.is_some_and(|asked| now < asked + EVERY) {
            return;
        }
        let quorums = self.unseen(at);
        if quorums.is_empty() {
            return;
        }
        (self.asking.under_way, self.asking.at) = (true, Some(now));
        self.effects.push(Effect::AskSiblings(quorums));
    }

    pub(super) fn on_said(&mut self, round: Round) {
        self.asking.under_way = false;
        let before = std::mem::replace(&mut self.asking.said, round);
        let seen = self.asking.said.seen_by_siblings();
        for quorum in before.seen_by_siblings().difference(&seen) {
            // What a sibling wrote until now may be this replica's to write.
            self.write_locks_of(quorum);
            self.writer.push(Item::Quorum(quorum.clone()));
        }
        let waiting = std::mem::take(&mut self.asking.waiting);
        for (key, name) in waiting {
            if self.asking.said.asked_about(&name.0, &name.1) {
                self.writer.push(Item::Lock(key));
            } else {
                self.asking.waiting.insert(key, name);
            }
        }
    }

    /// Who can write of a lock whose holder this replica cannot see, or of a quorum, by what was asked after `since`.
    pub(super) fn witness(
        &self,
        quorum: &str,
        lock: Option<&LockName>,
        former: Option<FencingToken>,
        since: BootInstant,
        at: &World<'_>,
    ) -> Witness {
        let now = at.now;
        let round = &self.asking.said;
        let fresh = round.sent.is_some_and(|sent| sent >= since && now < sent + FRESH);
        if fresh {
            round.witness(quorum, lock, former)
        } else {
            Witness::Awaited
        }
    }

    /// Has the status of this lock looked at again when the siblings have answered about it.
    pub(super) fn await_siblings(&mut self, key: &ObjectKey, quorum: &str, lock: &LockName) {
        let name = (quorum.to_owned(), lock.clone());
        self.asking.waiting.insert(key.clone(), name);
    }

    /// What the siblings are asked last: about every quorum, and the locks with targets.
    pub(in crate::controller) fn last_question(&self) -> Asked {
        let all = self.quorums.names().into_iter();
        let mut quorums: Asked = all.map(|name| (name, BTreeSet::new())).collect();
        let plans = self
            .locks
            .with_targets()
            .filter_map(|(_, entry, _)| entry.phase.active_plan());
        for plan in plans {
            let locks = quorums.entry(plan.quorum.clone()).or_default();
            locks.insert(plan.lock_name.to_string());
        }
        quorums
    }

    fn unseen(&self, at: &World<'_>) -> Asked {
        let mut quorums: Asked = BTreeMap::new();
        for entry in self.locks.known().filter_map(|key| self.locks.get(key)) {
            if (entry.phase.task().is_some() || has_finalizer(&entry.object))
                && !self.is_seen(entry, at)
                && let Some((quorum, lock)) = name(entry)
            {
                quorums.entry(quorum).or_default().insert(lock.to_string());
            }
        }
        for name in self.quorums.names() {
            let seen = self.quorums.get(&name).is_some_and(QuorumEntry::has_majority);
            if !seen {
                quorums.entry(name).or_default();
            }
        }
        for (quorum, lock) in self.asking.waiting.values().take(AT_ONCE) {
            quorums
                .entry(quorum.clone())
                .or_default()
                .insert(lock.to_string());
        }
        quorums
    }

    /// This replica sees by itself who holds the lock.
    fn is_seen(&self, entry: &LockEntry, at: &World<'_>) -> bool {
        let plan = entry.phase.active_plan();
        plan.is_some_and(|plan| self.open.get(&plan.quorum).is_some() && at.views.has_majority(&plan.quorum))
    }

    /// What the last round says of a lock that this replica cannot see.
    fn said_of<T>(
        &self,
        key: &ObjectKey,
        of: impl FnOnce(&Round, &str, &LockName) -> T,
        at: &World<'_>,
    ) -> Option<T> {
        let entry = self.locks.get(key).filter(|entry| !self.is_seen(entry, at))?;
        let (quorum, lock) = name(entry)?;
        Some(of(&self.asking.said, &quorum, &lock))
    }

    /// A sibling with a majority has the lock in hand, which this replica cannot see.
    pub(super) fn sibling_is_responsible(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let now = at.now;
        let fresh = |round: &Round| round.sent.is_some_and(|sent| now < sent + FRESH);
        self.said_of(
            key,
            |round, quorum, lock| fresh(round) && round.sibling_is_responsible(quorum, lock),
            at,
        )
        .unwrap_or(false)
    }

    /// A sibling proves that this cluster holds the lock, which this replica cannot see.
    pub(super) fn is_proven_held(&self, key: &ObjectKey, at: &World<'_>) -> bool {
        let now = at.now;
        let word = self
            .said_of(key, |round, quorum, lock| round.word(quorum, lock), at)
            .flatten();
        matches!(word, Some(Word::Held(until, _)) if now < until)
    }

    /// The siblings had time to answer since then.
    pub(super) fn asked_since(&self, since: BootInstant, at: &World<'_>) -> bool {
        let now = at.now;
        let sent = self.asking.said.sent;
        sent.is_some_and(|sent| sent >= since) || now.since(since) >= FRESH
    }
}

/// Of the lock on the masters.
pub(super) fn name(entry: &LockEntry) -> Option<(String, LockName)> {
    if let Some(plan) = entry.phase.plan() {
        return Some((plan.quorum.clone(), plan.lock_name.clone()));
    }
    let plan = leftovers(&entry.object, &entry.templates.graces())?;
    Some((plan.quorum, plan.lock_name))
}
