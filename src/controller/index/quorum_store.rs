//! What this replica knows of each `RedisQuorum`, and how it looks from here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    UrlChange,
    finalizer::FinalizerWrites,
    relist::{Origin, RelistTracker},
    reporter::Reporter,
    resolve::QuorumView,
};
use crate::controller::{
    object::{ObjectKey, age, is_older},
    problem::{Problem, Reason},
    sibling_answers::Witness,
    status::Health,
};
use crate::{
    api::{
        RedisQuorum, RedisQuorumSpec,
        plan::QuorumPlan,
        quorum_status::NotReadyReplica,
        validate::{FieldError, shared_masters, validate_quorum, validate_quorum_update},
    },
    lease::{BootInstant, ClusterId},
};

/// As long as an election of the reporter takes at most, where one can be elected.
const ELECTION: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(in crate::controller) struct QuorumEntry {
    /// The last version that could be read.
    pub(in crate::controller) object: RedisQuorum,
    /// Why the object as it is now is not in use, or not as it is now.
    pub(in crate::controller) problem: Option<Problem>,
    /// What is in use.
    pub(in crate::controller) plan: Option<QuorumPlan>,
    /// The spec that this came of.
    pub(in crate::controller) in_force: Option<RedisQuorumSpec>,
    pub(in crate::controller) reporter: Option<Reporter>,
    pub(in crate::controller) health: Option<Health>,
    /// When the clusters are asked for next; the heartbeat follows.
    pub(in crate::controller) ask_at: Option<BootInstant>,
    pub(in crate::controller) heartbeat_due: bool,
    /// The clusters that report, by the last look.
    pub(in crate::controller) clusters: BTreeSet<ClusterId>,
    pub(in crate::controller) initialized: Option<Time>,
    /// First start: the masters are being initialised.
    pub(in crate::controller) initializing: Initializing,
    pub(in crate::controller) url_change: UrlChange,
    pub(in crate::controller) finalizer: FinalizerWrites,
    /// Another quorum runs under its name until no lock is contended for there.
    pub(in crate::controller) awaits_other: bool,
    /// That nobody can report was passed on to the locks.
    pub(in crate::controller) told_unknown: bool,
    /// When there was no majority last, after there was one; until it is told that it is back.
    pub(in crate::controller) lost: Option<BootInstant>,
    /// This replica was the last to report, and nobody was elected since.
    pub(in crate::controller) caretaker: bool,
    /// Since when this replica sees no majority of the masters.
    pub(in crate::controller) blind_since: Option<BootInstant>,
    /// Nobody seems to report, and yet somebody wrote otherwise than this replica: it is the one that is cut off.
    pub(in crate::controller) contradicted: bool,
    /// When this replica last began to write that it is not ready.
    pub(in crate::controller) told_not_ready: Option<BootInstant>,
}

/// One heartbeat missed, and half of the next.
const HEARTBEAT_MISSED: i64 = 45;

/// `firstStart: Immediate`. That it was begun is remembered before it is: whoever finds it remembered must not begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) enum Initializing {
    #[default]
    No,
    /// All masters are new; the status is being written.
    Remembering,
    /// This replica remembered it, and may go on.
    Allowed,
    Running,
}

impl QuorumEntry {
    fn new(object: RedisQuorum) -> Self {
        Self {
            object,
            problem: None,
            plan: None,
            in_force: None,
            reporter: None,
            health: None,
            ask_at: None,
            heartbeat_due: false,
            clusters: BTreeSet::new(),
            initialized: None,
            initializing: Initializing::No,
            url_change: UrlChange::default(),
            finalizer: FinalizerWrites::default(),
            told_unknown: false,
            awaits_other: false,
            lost: None,
            caretaker: false,
            blind_since: None,
            contradicted: false,
            told_not_ready: None,
        }
    }

    /// By its status.
    pub(in crate::controller) fn not_ready_replicas(&self) -> &[NotReadyReplica] {
        let status = self.object.status.as_ref();
        status.map_or(&[], |status| &status.not_ready_replicas)
    }

    /// Why this replica cannot use it.
    pub(in crate::controller) fn why_unseen(&self) -> String {
        let problem = self.problem.as_ref();
        let problem = problem.map(|problem| format!("{}: {}", problem.reason.name(), problem.message));
        let lost = self.health.as_ref().and_then(Health::no_majority);
        let why: Vec<String> = problem.into_iter().chain(lost).collect();
        if why.is_empty() {
            "the quorum is being opened".to_owned()
        } else {
            why.join("; ")
        }
    }

    /// By its status, a replica of this cluster reports.
    pub(in crate::controller) fn is_reported(&self, cluster: &ClusterId, now: Timestamp) -> bool {
        let (status, cluster) = (self.object.status.as_ref(), cluster.to_string());
        let mut reporters = status.iter().flat_map(|status| &status.reporters);
        reporters.any(|reporter| {
            reporter.cluster == cluster
                && now.as_second() - reporter.last_seen_time.0.as_second() < HEARTBEAT_MISSED
        })
    }

    /// This replica sees a majority of the masters.
    pub(in crate::controller) fn has_majority(&self) -> bool {
        self.health.as_ref().is_some_and(Health::has_majority)
    }

    /// Its status says that a majority votes.
    pub(in crate::controller) fn is_said_ready(&self) -> bool {
        is_ready(&self.object)
    }

    /// Whether the status of the quorum is for this replica to write. `witness` of what the siblings say, where this
    /// replica sees no majority.
    pub(in crate::controller) fn may_write(
        &self,
        cluster: &ClusterId,
        witness: Option<Witness>,
        now: BootInstant,
        stamp: Timestamp,
    ) -> bool {
        let unseen = witness == Some(Witness::Absent);
        let Some(reporter) = &self.reporter else {
            // Not opened: it says the same whoever writes it, unless this replica is the only one that cannot open it.
            return unseen || !self.is_reported(cluster, stamp);
        };
        if unseen && self.is_said_ready() && !self.contradicted {
            return true;
        }
        let Some(absent) = reporter.quorum_unreported(now) else {
            return reporter.reports_quorum();
        };
        let nobody = absent >= ELECTION && !self.is_reported(cluster, stamp);
        !self.contradicted && (self.caretaker || nobody || absent >= reporter.long())
    }

    /// An object as the watch brings it: somebody else may know that a majority votes.
    fn heed_others(&mut self, object: &RedisQuorum) {
        let blind = self.health.as_ref().is_some_and(|health| !health.has_majority());
        self.contradicted |= blind && is_ready(object) && !is_ready(&self.object);
    }

    /// For the locks that name it.
    pub(in crate::controller) fn view(&self) -> QuorumView<'_> {
        match (&self.plan, &self.problem) {
            (_, Some(problem)) if problem.reason == Reason::ClusterNameNotUnique => {
                QuorumView::NotUsable(problem)
            }
            (Some(plan), _) => QuorumView::Usable(plan),
            (None, Some(problem)) => QuorumView::NotUsable(problem),
            (None, None) => QuorumView::Missing,
        }
    }

    /// Takes what the masters show now. Returns whether a majority was lost or regained: the statuses of locks depend
    /// on nothing else of it.
    pub(in crate::controller) fn look(&mut self, health: Health) -> bool {
        let before = self.health.as_ref().map(Health::has_majority);
        let crossed = before != Some(health.has_majority());
        self.health = Some(health);
        crossed
    }
}

fn is_ready(object: &RedisQuorum) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.next().is_some_and(|condition| condition.status == "True")
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::controller) struct Quorums {
    entries: BTreeMap<String, QuorumEntry>,
    pub(in crate::controller) unreadable: BTreeMap<String, String>,
    pub(in crate::controller) relist: RelistTracker,
}

impl Quorums {
    pub(in crate::controller) fn get(&self, name: &str) -> Option<&QuorumEntry> {
        self.entries.get(name)
    }

    pub(in crate::controller) fn get_mut(&mut self, name: &str) -> Option<&mut QuorumEntry> {
        self.entries.get_mut(name)
    }

    pub(in crate::controller) fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub(in crate::controller) fn known(&self) -> impl Iterator<Item = &String> {
        self.entries.keys().chain(self.unreadable.keys())
    }

    pub(in crate::controller) fn view(&self, name: &str) -> QuorumView<'_> {
        self.entries
            .get(name)
            .map_or(QuorumView::Missing, QuorumEntry::view)
    }

    pub(in crate::controller) fn see(&mut self, name: &str, object: RedisQuorum, origin: Origin) {
        self.unreadable.remove(name);
        let known = self.entries.get(name);
        let older = known.is_some_and(|known| is_older(&object.metadata, &known.object.metadata));
        let replaces = self.relist.replaces(&ObjectKey::of(&object), origin, older);
        match self.entries.get_mut(name) {
            // The answer to a write may be ahead of the watch.
            Some(_) if !replaces => {}
            Some(entry) if entry.object.metadata.uid == object.metadata.uid => {
                entry.heed_others(&object);
                entry.object = object;
            }
            // Made anew under its name: nothing that is known of the one before holds for it.
            _ => {
                self.entries.insert(name.to_owned(), QuorumEntry::new(object));
            }
        }
    }

    pub(in crate::controller) fn forget(&mut self, name: &str) -> Option<QuorumEntry> {
        self.unreadable.remove(name);
        self.entries.remove(name)
    }

    /// What the object asks for, beside the others and beside what is in use.
    pub(in crate::controller) fn wanted(&self, name: &str) -> Option<Result<QuorumPlan, Problem>> {
        let entry = self.entries.get(name)?;
        let plan = match validate_quorum(&entry.object) {
            Ok(plan) => plan,
            Err(errors) => return Some(Err(Problem::invalid(Reason::InvalidSpec, &errors))),
        };
        if let Some(problem) = self.shared(name, &plan) {
            return Some(Err(problem));
        }
        if let Some(before) = &entry.in_force
            && let Err(errors) = validate_quorum_update(before, &entry.object.spec)
        {
            return Some(Err(Problem::invalid(Reason::ImmutableField, &errors)));
        }
        Some(Ok(plan))
    }

    /// One server under one prefix is a master of one quorum: of the oldest.
    fn shared(&self, name: &str, plan: &QuorumPlan) -> Option<Problem> {
        let entry = self.entries.get(name)?;
        let mut others: Vec<(_, &QuorumPlan)> = self
            .entries
            .iter()
            .filter(|(other, _)| *other != name)
            .filter_map(|(_, other)| Some((age(&other.object.metadata), other.plan.as_ref()?)))
            .filter(|(other, _)| *other < age(&entry.object.metadata))
            .collect();
        others.sort_by(|a, b| a.0.cmp(&b.0));
        let count = others.len();
        let all = others.into_iter().map(|(_, plan)| plan).chain([plan]);
        let refused = shared_masters(all);
        let (_, error): &(usize, FieldError) = refused.iter().find(|(index, _)| *index == count)?;
        Some(Problem::invalid(
            Reason::MastersShared,
            std::slice::from_ref(error),
        ))
    }
}

#[cfg(test)]
mod tests;
