//! What this replica knows of each `LeaderLock`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    backoff::Backoff,
    claims::{Age, Claims, Name},
    events::EventReason,
    index::{Leaving, Purpose, SeenEnd, Settled},
    judge::{self, QuorumView},
    object::{ObjectKey, age, is_older},
    observe::Observation,
    problem::{Problem, Reason},
    roll::{Origin, Roll},
    switched::{Switched, switched},
    target_task::TargetReport,
    templates::Templates,
};
use crate::{
    api::{LeaderLock, lock_status::LeaderLockStatus, plan::LockPlan},
    lease::{FencingToken, Moment},
};

#[derive(Debug)]
pub(super) struct LockEntry {
    /// The last version that could be read.
    pub(super) object: LeaderLock,
    pub(super) first_seen: Moment,
    /// When this version of the object was seen.
    pub(super) seen: Moment,
    /// The last lease of this replica, as its status names it.
    pub(super) last_held: Option<FencingToken>,
    /// By itself: another object may have its name.
    plan: Result<Arc<LockPlan>, Problem>,
    /// A token in the status that no master ever gave.
    pub(super) implausible: Option<i64>,
    /// One that is larger than what this replica saw, and that a master may have given.
    pub(super) plausible: Option<i64>,
    /// The status is as this replica wrote it: nothing is known.
    pub(super) said_unknown: bool,
    /// Of agents: how the last lease was seen to end, until there is another.
    pub(super) seen_to_end: Option<SeenEnd>,
    /// Since when nobody is seen to hold it.
    pub(super) unheld_since: Option<Moment>,
    /// Switches its targets, if it has some.
    pub(super) task: Option<TargetTask>,
    /// What runs is being stopped, to pass the lock on.
    pub(super) draining: Option<Purpose>,
    /// It is being deleted, and what runs is being stopped.
    pub(super) leaving: Option<Leaving>,
    pub(super) changing_finalizer: bool,
    /// Of a finalizer that could not be added or removed. While it runs, the key is in [`super::core`]'s list of
    /// finalizers that are due.
    pub(super) guard_backoff: Backoff,
    /// Where the stop times come from that its object does not give.
    pub(super) templates: Templates,
    /// By the statuses that were seen.
    pub(super) own_tokens: OwnTokens,
    /// The last status that this replica wrote without seeing a majority, and when.
    pub(super) blind: Option<(Moment, LeaderLockStatus)>,
    pub(super) settled: Settled,
    /// What is told when the status that is being written has been.
    pub(super) news: Vec<(EventReason, String)>,
    /// What was switched on its behalf when it was judged last.
    in_force_before: BTreeSet<Switched>,
    /// Where it is contended for: the plan that was put there.
    pub(super) put: Option<Arc<LockPlan>>,
    /// Since when, under whatever plan.
    pub(super) put_since: Option<Moment>,
    /// Where it cannot be: what an operator before this one may have left running, which is stopped.
    pub(super) remains: Option<Arc<LockPlan>>,
}

/// The task that switches the targets of a lock, as far as is known of it.
#[derive(Debug, Default)]
pub(super) struct TargetTask {
    pub(super) last: Option<TargetReport>,
    /// It ended by itself, and has to be started anew.
    pub(super) broken: bool,
}

impl LockEntry {
    /// Why it cannot be used by itself.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.plan.as_ref().err()
    }

    /// What is switched on its behalf, or may still be.
    fn in_force(&self) -> BTreeSet<Switched> {
        let put = self.put.as_ref().or(self.remains.as_ref());
        let mut all = put.map(|plan| switched(plan)).unwrap_or_default();
        let report = self.task.as_ref().and_then(|task| task.last.as_ref());
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        let has = report.into_iter().flat_map(|report| &report.has);
        all.extend(has.map(|work| Switched::of(namespace, work)));
        all
    }
}

/// Tokens that this cluster's holders had, the last of them: in a rollout the lock passes through several hands within
/// seconds. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnTokens(Arc<Mutex<BTreeSet<u64>>>);

impl OwnTokens {
    const KEPT: usize = 16;

    pub(super) fn remember(&self, token: u64) {
        let mut tokens = self.tokens();
        tokens.insert(token);
        if tokens.len() > Self::KEPT {
            tokens.pop_first();
        }
    }

    pub(super) fn has(&self, token: u64) -> bool {
        self.tokens().contains(&token)
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Nothing that panics is done under it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Locks {
    entries: BTreeMap<ObjectKey, LockEntry>,
    names: Claims<Name>,
    targets: Claims<Switched>,
    /// Those that this version cannot read.
    pub(super) unreadable: BTreeMap<ObjectKey, String>,
    /// By the namespace that a watch follows; empty for all.
    rolls: BTreeMap<String, Roll>,
}

impl Locks {
    /// Followed by a watch for each of these namespaces; by one for all, where none is named.
    pub(super) fn new(scopes: &[String]) -> Self {
        let scopes = scopes.iter().map(|scope| (scope.clone(), Roll::default()));
        Self {
            rolls: scopes.collect(),
            ..Self::default()
        }
    }

    /// Returns what is gone by an observation of this watch.
    pub(super) fn call(&mut self, scope: &str, observation: &Observation<LeaderLock>) -> Vec<ObjectKey> {
        let known = self.entries.keys().chain(self.unreadable.keys());
        let known = known.filter(|key| scope.is_empty() || key.namespace == scope);
        let roll = self.rolls.get_mut(scope);
        roll.map_or_else(Vec::new, |roll| roll.call(observation, known))
    }

    /// The first list of every watch was complete.
    pub(super) fn synced(&self) -> bool {
        self.rolls.values().all(Roll::synced)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&LockEntry> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut LockEntry> {
        self.entries.get_mut(key)
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &ObjectKey> {
        self.entries.keys().chain(self.unreadable.keys())
    }

    /// The objects that name this quorum.
    pub(super) fn of_quorum<'a>(&'a self, quorum: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let names = move |entry: &LockEntry| entry.object.spec.quorum_ref.name == quorum;
        self.entries
            .iter()
            .filter(move |(_, entry)| names(entry))
            .map(|(key, _)| key)
    }

    /// The objects that name this quorum, or are still contended for on it.
    pub(super) fn users_of<'a>(&'a self, quorum: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let uses = move |entry: &LockEntry| {
            let plans = entry.put.iter().chain(&entry.remains);
            entry.object.spec.quorum_ref.name == quorum || plans.into_iter().any(|plan| plan.quorum == quorum)
        };
        let used = self.entries.iter().filter(move |(_, entry)| uses(entry));
        used.map(|(key, _)| key)
    }

    /// Whether there are objects of which no version could be read.
    pub(super) fn any_unread(&self) -> bool {
        self.unreadable.keys().any(|key| !self.entries.contains_key(key))
    }

    /// Whether this is news, and not an older version than the known one, as a slow watch brings it. Of a list, every
    /// version is news.
    pub(super) fn is_news(&mut self, key: &ObjectKey, object: &LeaderLock, origin: Origin) -> bool {
        let mut rolls = self.rolls.iter_mut();
        let roll = rolls.find(|(scope, _)| scope.is_empty() || **scope == key.namespace);
        let known = self.entries.get(key);
        let older = known.is_some_and(|known| is_older(&object.metadata, &known.object.metadata));
        roll.map_or(!older, |(_, roll)| roll.replaces(key, origin, older))
    }

    /// Locks with targets. Whether they run is for their target tasks to say: a report may be on its way.
    pub(super) fn with_targets(&self) -> impl Iterator<Item = (&ObjectKey, &LockEntry, &TargetTask)> {
        let entries = self.entries.iter();
        entries.filter_map(|(key, entry)| Some((key, entry, entry.task.as_ref()?)))
    }

    /// Nothing is switched from here on.
    pub(super) fn dismiss_target_tasks(&mut self) {
        for entry in self.entries.values_mut() {
            entry.task = None;
        }
    }

    /// Takes an object as it is now, which is news. Returns whether its target task has to end.
    pub(super) fn see(&mut self, key: &ObjectKey, object: LeaderLock, now: Moment) -> bool {
        self.unreadable.remove(key);
        let mut ends = false;
        match self.entries.get_mut(key) {
            Some(entry) => {
                // Made anew under its name: what was under way concerned the one before.
                if entry.object.metadata.uid != object.metadata.uid {
                    entry.settled = Settled::default();
                    entry.guard_backoff.reset();
                    if entry.leaving.take().is_some() {
                        // It starts nothing any more.
                        ends = entry.task.take().is_some();
                    }
                }
                entry.settled.see(&object);
                (entry.object, entry.seen) = (object, now);
            }
            None => {
                let mut settled = Settled::default();
                settled.see(&object);
                let entry = LockEntry {
                    object,
                    first_seen: now,
                    seen: now,
                    last_held: None,
                    plan: Err(Problem::new(Reason::Opening, "not looked at yet")),
                    implausible: None,
                    plausible: None,
                    said_unknown: false,
                    seen_to_end: None,
                    unheld_since: None,
                    task: None,
                    draining: None,
                    leaving: None,
                    changing_finalizer: false,
                    guard_backoff: Backoff::default(),
                    templates: Templates::default(),
                    own_tokens: OwnTokens::default(),
                    blind: None,
                    settled,
                    news: Vec::new(),
                    in_force_before: BTreeSet::new(),
                    put: None,
                    put_since: None,
                    remains: None,
                };
                self.entries.insert(key.clone(), entry);
            }
        }
        ends
    }

    /// Judges an object anew. Returns the others that have to be judged again because of it.
    pub(super) fn judge(&mut self, key: &ObjectKey, quorum: QuorumView<'_>) -> Vec<ObjectKey> {
        let Some(entry) = self.entries.get_mut(key) else {
            let mut others = self.names.set(key, BTreeSet::new(), Age::default());
            others.extend(self.targets.set(key, BTreeSet::new(), Age::default()));
            return others;
        };
        entry.plan = judge::plan(&entry.object, quorum, &entry.templates);
        let age = age(&entry.object.metadata);
        let name = entry.plan.as_ref().ok().map(|plan| name(plan));
        let mut others = self.names.set(key, name.iter().cloned().collect(), age.clone());
        let in_force = entry.in_force();
        let before = std::mem::replace(&mut entry.in_force_before, in_force.clone());
        let mut claimed = in_force.clone();
        // What is on its way out gets nothing new, and what has no name nothing at all.
        if let (Ok(plan), Some(name)) = (&entry.plan, name)
            && entry.object.metadata.deletion_timestamp.is_none()
            && self.names.first(&name) == Some(key)
        {
            claimed.extend(switched(plan));
        }
        others.extend(self.targets.set(key, claimed, age));
        // Somebody may have waited for what is stopped by now.
        for what in before.difference(&in_force) {
            others.extend(self.targets.of(what).filter(|other| *other != key).cloned());
        }
        others
    }

    /// What the object comes down to, beside the others.
    pub(super) fn verdict(&self, key: &ObjectKey) -> Option<Result<Arc<LockPlan>, Problem>> {
        let plan = match &self.entries.get(key)?.plan {
            Ok(plan) => plan,
            Err(problem) => return Some(Err(problem.clone())),
        };
        if let Some(first) = self.names.first(&name(plan))
            && first != key
        {
            return Some(Err(judge::taken(plan, first)));
        }
        let mut wanted = switched(plan).into_iter();
        let taken = wanted.find_map(|what| Some((self.taken(key, &what)?.clone(), what)));
        Some(match taken {
            Some((other, what)) => Err(judge::target_taken(&what, &other)),
            None => Ok(plan.clone()),
        })
    }

    /// The other object that has this target: an older one, or one that still has to stop it.
    pub(super) fn taken(&self, key: &ObjectKey, what: &Switched) -> Option<&ObjectKey> {
        let in_force = |other: &&ObjectKey| {
            let entry = self.entries.get(other);
            *other != key && entry.is_some_and(|entry| entry.in_force().contains(what))
        };
        let older = self.targets.first(what).filter(|first| *first != key);
        older.or_else(|| self.targets.of(what).find(in_force))
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) -> Option<LockEntry> {
        self.unreadable.remove(key);
        self.entries.remove(key)
    }

    /// Some lock is contended for on this quorum.
    pub(super) fn any_put(&self, quorum: &str) -> bool {
        let puts = self.entries.values().filter_map(|entry| entry.put.as_ref());
        puts.into_iter().any(|plan| plan.quorum == quorum)
    }
}

fn name(plan: &LockPlan) -> Name {
    (plan.quorum.clone(), plan.lock_name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holders_are_remembered_by_all_who_ask() {
        let tokens = OwnTokens::default();
        let shared = tokens.clone();
        (1..=20).for_each(|token| tokens.remember(token));
        assert!(shared.has(20) && shared.has(5) && !shared.has(4));
    }
}
