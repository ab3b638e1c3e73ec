//! What this replica knows of each `LeaderLock`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Leaving, Purpose, SeenEnd, Settled,
    ownership::{Age, Name, OwnershipIndex},
    relist::{Origin, RelistTracker},
    resolve::{self, QuorumView},
    target_key::{TargetKey, target_keys},
};
use crate::controller::{
    backoff::Backoff,
    events::EventReason,
    object::{ObjectKey, age, is_older},
    observe::Observation,
    problem::{Problem, Reason},
    target_task::TargetReport,
    templates::Templates,
};
use crate::{
    api::{LeaderLock, lock_status::LeaderLockStatus, plan::LockPlan},
    lease::{BootInstant, FencingToken},
};

#[derive(Debug)]
pub(in crate::controller) struct LockEntry {
    /// The last version that could be read.
    pub(in crate::controller) object: LeaderLock,
    pub(in crate::controller) first_seen: BootInstant,
    /// When this version of the object was seen.
    pub(in crate::controller) seen: BootInstant,
    /// The last lease of this replica, as its status names it.
    pub(in crate::controller) last_held: Option<FencingToken>,
    /// By itself: another object may have its name.
    plan: Result<Arc<LockPlan>, Problem>,
    /// A token in the status that no master ever gave.
    pub(in crate::controller) implausible: Option<i64>,
    /// One that is larger than what this replica saw, and that a master may have given.
    pub(in crate::controller) plausible: Option<i64>,
    /// The status is as this replica wrote it: nothing is known.
    pub(in crate::controller) said_unknown: bool,
    /// Of agents: how the last lease was seen to end, until there is another.
    pub(in crate::controller) seen_to_end: Option<SeenEnd>,
    /// Since when nobody is seen to hold it.
    pub(in crate::controller) unheld_since: Option<BootInstant>,
    /// Switches its targets, if it has some.
    pub(in crate::controller) task: Option<TargetTask>,
    /// What runs is being stopped, to pass the lock on.
    pub(in crate::controller) draining: Option<Purpose>,
    /// It is being deleted, and what runs is being stopped.
    pub(in crate::controller) leaving: Option<Leaving>,
    pub(in crate::controller) changing_finalizer: bool,
    /// Of a finalizer that could not be added or removed. While it runs, the key is in [`super::core`]'s list of
    /// finalizers that are due.
    pub(in crate::controller) guard_backoff: Backoff,
    /// Where the stop times come from that its object does not give.
    pub(in crate::controller) templates: Templates,
    /// By the statuses that were seen.
    pub(in crate::controller) own_tokens: OwnTokens,
    /// The last status that this replica wrote without seeing a majority, and when.
    pub(in crate::controller) blind: Option<(BootInstant, LeaderLockStatus)>,
    pub(in crate::controller) settled: Settled,
    /// What is told when the status that is being written has been.
    pub(in crate::controller) news: Vec<(EventReason, String)>,
    /// What was switched on its behalf when it was judged last.
    in_force_before: BTreeSet<TargetKey>,
    /// Where it is contended for: the plan that was put there.
    pub(in crate::controller) active_plan: Option<Arc<LockPlan>>,
    /// Since when, under whatever plan.
    pub(in crate::controller) active_since: Option<BootInstant>,
    /// Where it cannot be: what an operator before this one may have left running, which is stopped.
    pub(in crate::controller) leftovers: Option<Arc<LockPlan>>,
}

/// The task that switches the targets of a lock, as far as is known of it.
#[derive(Debug, Default)]
pub(in crate::controller) struct TargetTask {
    pub(in crate::controller) last: Option<TargetReport>,
    /// It ended by itself, and has to be started anew.
    pub(in crate::controller) broken: bool,
}

impl LockEntry {
    /// Why it cannot be used by itself.
    pub(in crate::controller) fn problem(&self) -> Option<&Problem> {
        self.plan.as_ref().err()
    }

    /// What is switched on its behalf, or may still be.
    fn in_force(&self) -> BTreeSet<TargetKey> {
        let put = self.active_plan.as_ref().or(self.leftovers.as_ref());
        let mut all = put.map(|plan| target_keys(plan)).unwrap_or_default();
        let report = self.task.as_ref().and_then(|task| task.last.as_ref());
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        let has = report.into_iter().flat_map(|report| &report.has);
        all.extend(has.map(|work| TargetKey::of(namespace, work)));
        all
    }
}

/// Tokens that this cluster's holders had, the last of them: in a rollout the lock passes through several hands within
/// seconds. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct OwnTokens(Arc<Mutex<BTreeSet<u64>>>);

impl OwnTokens {
    const KEPT: usize = 16;

    pub(in crate::controller) fn remember(&self, token: u64) {
        let mut tokens = self.tokens();
        tokens.insert(token);
        if tokens.len() > Self::KEPT {
            tokens.pop_first();
        }
    }

    pub(in crate::controller) fn has(&self, token: u64) -> bool {
        self.tokens().contains(&token)
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Nothing that panics is done under it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::controller) struct Locks {
    entries: BTreeMap<ObjectKey, LockEntry>,
    names: OwnershipIndex<Name>,
    targets: OwnershipIndex<TargetKey>,
    /// Those that this version cannot read.
    pub(in crate::controller) unreadable: BTreeMap<ObjectKey, String>,
    /// By the namespace that a watch follows; empty for all.
    relists: BTreeMap<String, RelistTracker>,
}

impl Locks {
    /// Followed by a watch for each of these namespaces; by one for all, where none is named.
    pub(in crate::controller) fn new(scopes: &[String]) -> Self {
        let scopes = scopes
            .iter()
            .map(|scope| (scope.clone(), RelistTracker::default()));
        Self {
            relists: scopes.collect(),
            ..Self::default()
        }
    }

    /// Returns what is gone by an observation of this watch.
    pub(in crate::controller) fn call(
        &mut self,
        scope: &str,
        observation: &Observation<LeaderLock>,
    ) -> Vec<ObjectKey> {
        let known = self.entries.keys().chain(self.unreadable.keys());
        let known = known.filter(|key| scope.is_empty() || key.namespace == scope);
        let relist = self.relists.get_mut(scope);
        relist.map_or_else(Vec::new, |relist| relist.observe(observation, known))
    }

    /// The first list of every watch was complete.
    pub(in crate::controller) fn synced(&self) -> bool {
        self.relists.values().all(RelistTracker::synced)
    }

    pub(in crate::controller) fn get(&self, key: &ObjectKey) -> Option<&LockEntry> {
        self.entries.get(key)
    }

    pub(in crate::controller) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut LockEntry> {
        self.entries.get_mut(key)
    }

    pub(in crate::controller) fn known(&self) -> impl Iterator<Item = &ObjectKey> {
        self.entries.keys().chain(self.unreadable.keys())
    }

    /// The objects that name this quorum.
    pub(in crate::controller) fn of_quorum<'a>(
        &'a self,
        quorum: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let names = move |entry: &LockEntry| entry.object.spec.quorum_ref.name == quorum;
        self.entries
            .iter()
            .filter(move |(_, entry)| names(entry))
            .map(|(key, _)| key)
    }

    /// The objects that name this quorum, or are still contended for on it.
    pub(in crate::controller) fn users_of<'a>(
        &'a self,
        quorum: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let uses = move |entry: &LockEntry| {
            let plans = entry.active_plan.iter().chain(&entry.leftovers);
            entry.object.spec.quorum_ref.name == quorum || plans.into_iter().any(|plan| plan.quorum == quorum)
        };
        let used = self.entries.iter().filter(move |(_, entry)| uses(entry));
        used.map(|(key, _)| key)
    }

    /// Whether there are objects of which no version could be read.
    pub(in crate::controller) fn any_unread(&self) -> bool {
        self.unreadable.keys().any(|key| !self.entries.contains_key(key))
    }

    /// Whether this is news, and not an older version than the known one, as a slow watch brings it. Of a list, every
    /// version is news.
    pub(in crate::controller) fn is_news(
        &mut self,
        key: &ObjectKey,
        object: &LeaderLock,
        origin: Origin,
    ) -> bool {
        let mut relists = self.relists.iter_mut();
        let relist = relists.find(|(scope, _)| scope.is_empty() || **scope == key.namespace);
        let known = self.entries.get(key);
        let older = known.is_some_and(|known| is_older(&object.metadata, &known.object.metadata));
        relist.map_or(!older, |(_, relist)| relist.replaces(key, origin, older))
    }

    /// Locks with targets. Whether they run is for their target tasks to say: a report may be on its way.
    pub(in crate::controller) fn with_targets(
        &self,
    ) -> impl Iterator<Item = (&ObjectKey, &LockEntry, &TargetTask)> {
        let entries = self.entries.iter();
        entries.filter_map(|(key, entry)| Some((key, entry, entry.task.as_ref()?)))
    }

    /// Nothing is switched from here on.
    pub(in crate::controller) fn dismiss_target_tasks(&mut self) {
        for entry in self.entries.values_mut() {
            entry.task = None;
        }
    }

    /// Takes an object as it is now, which is news. Returns whether its target task has to end.
    pub(in crate::controller) fn see(
        &mut self,
        key: &ObjectKey,
        object: LeaderLock,
        now: BootInstant,
    ) -> bool {
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
                    plan: Err(Problem::new(Reason::Opening, "not inspected yet")),
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
                    active_plan: None,
                    active_since: None,
                    leftovers: None,
                };
                self.entries.insert(key.clone(), entry);
            }
        }
        ends
    }

    /// Judges an object anew. Returns the others that have to be judged again because of it.
    pub(in crate::controller) fn resolve(
        &mut self,
        key: &ObjectKey,
        quorum: QuorumView<'_>,
    ) -> Vec<ObjectKey> {
        let Some(entry) = self.entries.get_mut(key) else {
            let mut others = self.names.set(key, BTreeSet::new(), Age::default());
            others.extend(self.targets.set(key, BTreeSet::new(), Age::default()));
            return others;
        };
        entry.plan = resolve::plan(&entry.object, quorum, &entry.templates);
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
            claimed.extend(target_keys(plan));
        }
        others.extend(self.targets.set(key, claimed, age));
        // Somebody may have waited for what is stopped by now.
        for what in before.difference(&in_force) {
            others.extend(self.targets.of(what).filter(|other| *other != key).cloned());
        }
        others
    }

    /// What the object comes down to, beside the others.
    pub(in crate::controller) fn resolution(
        &self,
        key: &ObjectKey,
    ) -> Option<Result<Arc<LockPlan>, Problem>> {
        let plan = match &self.entries.get(key)?.plan {
            Ok(plan) => plan,
            Err(problem) => return Some(Err(problem.clone())),
        };
        if let Some(first) = self.names.first(&name(plan))
            && first != key
        {
            return Some(Err(resolve::taken(plan, first)));
        }
        let mut wanted = target_keys(plan).into_iter();
        let taken = wanted.find_map(|what| Some((self.taken(key, &what)?.clone(), what)));
        Some(match taken {
            Some((other, what)) => Err(resolve::target_taken(&what, &other)),
            None => Ok(plan.clone()),
        })
    }

    /// The other object that has this target: an older one, or one that still has to stop it.
    pub(in crate::controller) fn taken(&self, key: &ObjectKey, what: &TargetKey) -> Option<&ObjectKey> {
        let in_force = |other: &&ObjectKey| {
            let entry = self.entries.get(other);
            *other != key && entry.is_some_and(|entry| entry.in_force().contains(what))
        };
        let older = self.targets.first(what).filter(|first| *first != key);
        older.or_else(|| self.targets.of(what).find(in_force))
    }

    pub(in crate::controller) fn forget(&mut self, key: &ObjectKey) -> Option<LockEntry> {
        self.unreadable.remove(key);
        self.entries.remove(key)
    }

    /// Some lock is contended for on this quorum.
    pub(in crate::controller) fn any_active(&self, quorum: &str) -> bool {
        let puts = self
            .entries
            .values()
            .filter_map(|entry| entry.active_plan.as_ref());
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
