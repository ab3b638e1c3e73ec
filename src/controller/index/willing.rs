//! Shows on the masters that this cluster takes part in a lock, and reads which other clusters do.
//!
//! A cluster that reports on a quorum need not take part in each of its locks: the object may be missing there, stepped
//! down, paused, or left to the others for a time. The replica that reports on the locks of a cluster holds
//! `_willing/<cluster UID>/<lock>` while the cluster is willing to take the lock, and `_abstaining/<cluster UID>/<lock>`
//! while it takes only a reserved one, if the lock has `failoverAfterUnreadySeconds`: the holder of another lock never
//! chooses a cluster. `_declining/<cluster UID>/<lock>` shows, for every lock with targets, that the cluster would not take
//! the lock although it was reserved for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Effect, ElectorChange, Index, MastersRequest, Planted, World, failover::abstention,
    lock_store::LockEntry, targets::paused,
};
use crate::{
    api::{
        leader_lock::{Candidates, LockState},
        plan::LockPlan,
    },
    controller::{
        object::ObjectKey,
        planted::{WorldMistake, plants},
    },
    lease::{BootInstant, ClusterId, LockName, identity::IdentityError},
    masters::{TakesPart, abstaining_lock, declining_lock, willing_lock},
};

/// The interval at which this cluster is shown as willing or not.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the masters are asked while the answer matters.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// The time for which an answer is used. While it matters, the next one follows within seconds.
const VALID: Duration = Duration::from_secs(30);

/// The most locks of a quorum that this cluster shows to decline: each costs a lease. Further ones are not shown.
const MOST_DECLINING: usize = 500;

/// A question whether other clusters take part in a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct WillingQuestion {
    pub(in crate::controller) key: ObjectKey,
    pub(in crate::controller) lock: LockName,
    pub(in crate::controller) clusters: Vec<ClusterId>,
    /// The time at which the question was asked.
    pub(in crate::controller) asked: BootInstant,
}

/// The answers of the masters about one lock.
#[derive(Debug, Default)]
pub(super) struct WillingReads {
    asked: Option<BootInstant>,
    /// The last question, and whether each of its clusters takes part.
    answer: Option<(WillingQuestion, Vec<TakesPart>)>,
}

impl WillingReads {
    fn is_due(&self, now: BootInstant) -> bool {
        self.asked.is_none_or(|asked| now.since(asked) >= ASK_EVERY)
    }

    /// Returns whether a cluster takes part in this lock, according to a question that was asked after `since`.
    fn answer(&self, lock: &LockName, cluster: &ClusterId, since: BootInstant) -> TakesPart {
        let answer = self.answer.as_ref();
        let fresh = answer.filter(|(question, _)| question.asked >= since && question.lock == *lock);
        let found = fresh.and_then(|(question, taken)| {
            let mut all = question.clusters.iter().zip(taken);
            all.find(|(asked, _)| asked.uid() == cluster.uid())
        });
        found.map_or(TakesPart::Unknown, |(_, takes_part)| *takes_part)
    }
}

/// The other clusters that are alive, as far as they take part in a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OtherClusters {
    pub(super) willing: Vec<ClusterId>,
    /// Whether it is not known of a cluster whether it is willing.
    pub(super) unknown: bool,
}

impl Index {
    /// Shows in which locks this cluster takes part, if this replica reports for the cluster.
    pub(super) fn show_willing(&mut self, at: &World<'_>) {
        let last = self.due.shown_at;
        if last.is_some_and(|last| at.now.since(last) < SHOW_EVERY) {
            return;
        }
        self.due.shown_at = Some(at.now);
        let reports = |name: &&String| {
            let reporter = self
                .quorums
                .get(name)
                .and_then(|entry| entry.reporting.reporter());
            !self.ends && reporter.is_some_and(|reporter| reporter.shows_locks(at.now))
        };
        let reported: BTreeSet<String> = self.open.names().filter(reports).cloned().collect();
        let mut shown: BTreeMap<String, BTreeSet<LockName>> = BTreeMap::new();
        let mut declined: BTreeMap<&str, usize> = BTreeMap::new();
        if !reported.is_empty() {
            for (_, entry, _) in self.locks.with_targets() {
                if let Some((quorum, takes_part)) = shown_state(entry, at)
                    && reported.contains(quorum)
                    && let Some(Ok(lock)) = lock_that_shows(takes_part, entry, &self.me.cluster)
                {
                    let declining = declined.entry(quorum).or_default();
                    *declining += usize::from(takes_part == TakesPart::Declining);
                    if takes_part != TakesPart::Declining || *declining <= MOST_DECLINING {
                        shown.entry(quorum.to_owned()).or_default().insert(lock);
                    }
                }
            }
        }
        let names: Vec<String> = self.open.names().cloned().collect();
        for name in names {
            let locks = shown.remove(&name).unwrap_or_default();
            self.show_locks(&name, locks);
        }
    }

    /// No longer shows this cluster as willing: the process ends.
    pub(super) fn hide_willing(&mut self) {
        let names: Vec<String> = self.open.names().cloned().collect();
        for name in names {
            self.show_locks(&name, BTreeSet::new());
        }
    }

    fn show_locks(&mut self, quorum: &str, shown: BTreeSet<LockName>) {
        let Some(open) = self.open.get_mut(quorum) else {
            return;
        };
        let before = std::mem::replace(&mut open.shown, shown);
        let removed = before.difference(&open.shown).map(|lock| {
            Effect::Elector(ElectorChange::RemoveInternal {
                quorum: quorum.to_owned(),
                lock: lock.clone(),
            })
        });
        self.effects.extend(removed);
        let reporter = self
            .quorums
            .get(quorum)
            .and_then(|entry| entry.reporting.reporter());
        let Some(reporter) = reporter else { return };
        let added = open.shown.difference(&before).map(|lock| {
            Effect::Elector(ElectorChange::PutInternal {
                quorum: quorum.to_owned(),
                lock: lock.clone(),
                terms: reporter.shown_terms(lock),
            })
        });
        self.effects.extend(added);
    }

    /// Returns the other live clusters that are willing to take the lock. Asks the masters if the last answer is old.
    pub(super) fn willing(&mut self, key: &ObjectKey, plan: &LockPlan, at: &World<'_>) -> OtherClusters {
        let others = self.others(&plan.quorum);
        if self.passes_to_any() {
            return OtherClusters {
                willing: others,
                unknown: false,
            };
        }
        let Some(entry) = self.locks.get(key).filter(|_| !others.is_empty()) else {
            return OtherClusters::default();
        };
        self.due.willing.insert(key.clone());
        let mut found = OtherClusters::default();
        for other in others {
            match entry.willing.answer(&plan.lock_name, &other, at.now - VALID) {
                TakesPart::Willing => found.willing.push(other),
                TakesPart::Unknown => found.unknown = true,
                TakesPart::Abstaining | TakesPart::Declining | TakesPart::NotShown => {}
            }
        }
        found
    }

    fn passes_to_any(&self) -> bool {
        plants(WorldMistake::PassesToAnyCluster) || self.plants(Planted::PassesToUnwilling)
    }

    /// Returns whether a cluster takes part in the lock, by a question asked since then. Asks the masters if the last answer
    /// is old.
    pub(super) fn takes_part(
        &mut self,
        key: &ObjectKey,
        plan: &LockPlan,
        to: &ClusterId,
        since: BootInstant,
    ) -> TakesPart {
        if self.passes_to_any() {
            return TakesPart::Willing;
        }
        self.due.willing.insert(key.clone());
        let entry = self.locks.get(key);
        entry.map_or(TakesPart::Unknown, |entry| {
            entry.willing.answer(&plan.lock_name, to, since)
        })
    }

    /// Asks the masters of each quorum the questions that are due, at once.
    pub(super) fn ask_willing(&mut self, at: &World<'_>) {
        let mut questions: BTreeMap<String, Vec<WillingQuestion>> = BTreeMap::new();
        for key in std::mem::take(&mut self.due.willing) {
            let Some(entry) = self.locks.get(&key).filter(|entry| entry.willing.is_due(at.now)) else {
                continue;
            };
            let Some(plan) = entry.phase.active_plan().cloned() else {
                continue;
            };
            let open = self.open.get(&plan.quorum);
            if open.is_none_or(|open| open.asks_willing) {
                continue;
            }
            let mut clusters = self.others(&plan.quorum);
            let asked = entry.handed_to().filter(|to| !clusters.contains(to));
            clusters.extend(asked);
            if let Some(entry) = self.locks.get_mut(&key) {
                entry.willing.asked = Some(at.now);
            }
            questions
                .entry(plan.quorum.clone())
                .or_default()
                .push(WillingQuestion {
                    key,
                    lock: plan.lock_name.clone(),
                    clusters,
                    asked: at.now,
                });
        }
        for (quorum, questions) in questions {
            if let Some(open) = self.open.get_mut(&quorum) {
                open.asks_willing = true;
            }
            self.effects
                .push(Effect::Masters(MastersRequest::AskWilling { quorum, questions }));
        }
    }

    /// Handles the answers of the masters of a quorum.
    pub(super) fn on_willing(
        &mut self,
        quorum: &str,
        answers: Vec<(WillingQuestion, Vec<TakesPart>)>,
        at: &World<'_>,
    ) {
        if let Some(open) = self.open.get_mut(quorum) {
            open.asks_willing = false;
        }
        for (question, taken) in answers {
            let key = question.key.clone();
            let Some(entry) = self.locks.get_mut(&key) else {
                continue;
            };
            let plan = entry.phase.active_plan();
            if plan.is_some_and(|plan| plan.quorum == quorum) && at.now.since(question.asked) < VALID {
                entry.willing.answer = Some((question, taken));
                self.due.tasks.insert(key);
            }
        }
    }
}

/// Returns whether this cluster takes part in a lock, as far as it is shown, and the quorum.
fn shown_state<'a>(entry: &'a LockEntry, at: &World<'_>) -> Option<(&'a str, TakesPart)> {
    let plan = entry.phase.active_plan()?;
    let leaves = entry.phase.is_leaving() || entry.object.metadata.deletion_timestamp.is_some();
    if leaves || !plan.switches() || plan.candidates != Candidates::Operator {
        return None;
    }
    let report = entry.phase.report()?;
    let off = plan.state != LockState::Enabled || paused(&entry.object).is_some();
    let abstains = abstention(&entry.object).is_some_and(|abstention| abstention.holds(at.stamp()));
    let takes_part = if off || report.trouble.is_some() {
        TakesPart::Declining
    } else if plan.failover_after_unready.is_none() || report.unready {
        return None;
    } else if abstains {
        TakesPart::Abstaining
    } else {
        TakesPart::Willing
    };
    Some((&plan.quorum, takes_part))
}

/// Returns the lock that shows this state of a lock on the masters.
fn lock_that_shows(
    takes_part: TakesPart,
    entry: &LockEntry,
    own: &ClusterId,
) -> Option<Result<LockName, IdentityError>> {
    let lock = &entry.phase.active_plan()?.lock_name;
    match takes_part {
        TakesPart::Willing => Some(willing_lock(own, lock)),
        TakesPart::Abstaining => Some(abstaining_lock(own, lock)),
        TakesPart::Declining => Some(declining_lock(own, lock)),
        TakesPart::NotShown | TakesPart::Unknown => None,
    }
}
