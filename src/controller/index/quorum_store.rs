//! Stores the knowledge of this replica about each `RedisQuorum`.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::{
    UrlChange, World,
    finalizer::FinalizerWrites,
    heartbeat::Heartbeat,
    initialize::Initialization,
    quorum_phase::QuorumPhase,
    removal_schedule::RemovalSchedule,
    reporting::{Reporting, Shown},
    resolve::QuorumView,
    sight::Sight,
};
use crate::controller::{
    object::{age, is_older},
    problem::{Problem, Reason},
    sibling_answers::Witness,
    status::Health,
};
use crate::{
    api::{
        RedisQuorum,
        plan::QuorumPlan,
        quorum_status::NotReadyReplica,
        validate::{FieldError, shared_masters, validate_quorum, validate_quorum_update},
    },
    lease::{BootInstant, ClusterId},
    targets::Origin,
};

/// The age, in seconds, at which a heartbeat counts as missing: one missed heartbeat, and half of the next
/// interval.
const HEARTBEAT_MISSED: i64 = 45;

#[derive(Debug)]
pub(super) struct QuorumEntry {
    /// The last version that could be read.
    pub(super) object: RedisQuorum,
    /// The time at which this version arrived, if it is the answer to a write of this process.
    answered: Option<BootInstant>,
    pub(super) phase: QuorumPhase,
    pub(super) reporting: Reporting,
    pub(super) sight: Sight,
    pub(super) heartbeat: Heartbeat,
    pub(super) removal: RemovalSchedule,
    pub(super) initialization: Initialization,
    pub(super) url_change: UrlChange,
    pub(super) finalizer: FinalizerWrites,
    /// The time at which this replica last began to write that it is not ready.
    pub(super) reported_not_ready: Option<BootInstant>,
}

impl QuorumEntry {
    fn new(object: RedisQuorum) -> Self {
        Self {
            object,
            answered: None,
            phase: QuorumPhase::default(),
            reporting: Reporting::default(),
            sight: Sight::default(),
            heartbeat: Heartbeat::default(),
            removal: RemovalSchedule::default(),
            initialization: Initialization::default(),
            url_change: UrlChange::default(),
            finalizer: FinalizerWrites::default(),
            reported_not_ready: None,
        }
    }

    /// Returns the unready replicas in the status.
    pub(super) fn not_ready_replicas(&self) -> &[NotReadyReplica] {
        let status = self.object.status.as_ref();
        status.map_or(&[], |status| &status.not_ready_replicas)
    }

    /// Returns the reason why this replica cannot use the quorum.
    pub(super) fn why_unseen(&self) -> String {
        let problem = self.phase.problem();
        let problem = problem.map(|problem| format!("{}: {}", problem.reason.name(), problem.message));
        let lost = self.sight.health().and_then(Health::no_majority);
        let why: Vec<String> = problem.into_iter().chain(lost).collect();
        if why.is_empty() {
            "the quorum is being opened".to_owned()
        } else {
            why.join("; ")
        }
    }

    /// Reports whether the status shows a recent report of a replica of this cluster.
    pub(super) fn is_reported(&self, cluster: &ClusterId, now: Timestamp) -> bool {
        let (status, cluster) = (self.object.status.as_ref(), cluster.to_string());
        let mut reporters = status.iter().flat_map(|status| &status.reporters);
        reporters.any(|reporter| {
            reporter.cluster == cluster
                && now.as_second() - reporter.last_seen_time.0.as_second() < HEARTBEAT_MISSED
        })
    }

    /// Reports whether this replica sees a majority of the masters.
    pub(super) fn has_majority(&self) -> bool {
        self.sight.has_majority()
    }

    /// Returns the content of the status. `witness` is the siblings' answer, if this replica sees no majority.
    pub(super) fn shown(
        &self,
        cluster: &ClusterId,
        witness: Option<Witness>,
        coordinated_elsewhere: bool,
        at: &World<'_>,
    ) -> Shown {
        Shown {
            reported: self.is_reported(cluster, at.stamp()),
            ready: is_ready(&self.object),
            witness,
            coordinated_elsewhere,
        }
    }

    /// Follows an object from the watch: another writer may know that a majority votes. Only a replica that sees a
    /// majority writes heartbeats; those of a restored backup are older.
    fn follow_others(&mut self, object: &RedisQuorum, cluster: &ClusterId, now: BootInstant) {
        let blind = self.sight.health().is_some_and(|health| !health.has_majority());
        let becomes_ready = is_ready(object) && !is_ready(&self.object);
        let is_alive = self.reporting.is_contradicted(now)
            && last_heartbeat(object, cluster) > last_heartbeat(&self.object, cluster);
        if blind && (becomes_ready || is_alive) {
            self.reporting.contradict(now);
        }
    }
}

/// Returns the time of the last heartbeat of this cluster.
fn last_heartbeat(object: &RedisQuorum, cluster: &ClusterId) -> Option<Timestamp> {
    let (status, cluster) = (object.status.as_ref(), cluster.to_string());
    let reporters = status.iter().flat_map(|status| &status.reporters);
    let own = reporters.filter(|reporter| reporter.cluster == cluster);
    own.map(|reporter| reporter.last_seen_time.0).max()
}

fn is_ready(object: &RedisQuorum) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.next().is_some_and(|condition| condition.status == "True")
}

/// The known quorums.
#[derive(Debug, Default)]
pub(super) struct Quorums {
    entries: BTreeMap<String, QuorumEntry>,
    pub(super) unreadable: BTreeMap<String, String>,
    /// Whether the first list is complete.
    pub(super) synced: bool,
}

impl Quorums {
    pub(super) fn get(&self, name: &str) -> Option<&QuorumEntry> {
        self.entries.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut QuorumEntry> {
        self.entries.get_mut(name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub(super) fn view(&self, name: &str) -> QuorumView<'_> {
        self.entries
            .get(name)
            .map_or(QuorumView::Missing, |entry| entry.phase.view())
    }

    pub(super) fn see(
        &mut self,
        name: &str,
        object: RedisQuorum,
        origin: Origin,
        (cluster, now): (&ClusterId, BootInstant),
    ) {
        // The answer to a write may be older than a version that cannot be read.
        if origin != Origin::Answer {
            self.unreadable.remove(name);
        }
        match self.entries.get_mut(name) {
            Some(entry) if entry.object.metadata.uid == object.metadata.uid => {
                let older = is_older(&object.metadata, &entry.object.metadata);
                // The answer to a write may be ahead of the watch.
                if origin.replaces(older, entry.answered) {
                    entry.follow_others(&object, cluster, now);
                    entry.answered = origin.answered(now);
                    entry.object = object;
                }
            }
            // A new object of the same name: knowledge about its predecessor does not apply.
            _ => {
                self.entries.insert(name.to_owned(), QuorumEntry::new(object));
            }
        }
    }

    pub(super) fn forget(&mut self, name: &str) -> Option<QuorumEntry> {
        self.unreadable.remove(name);
        self.entries.remove(name)
    }

    /// Returns the plan of the object, or its problem, given the other quorums and the plan in use.
    pub(super) fn wanted(&self, name: &str) -> Option<Result<QuorumPlan, Problem>> {
        let entry = self.entries.get(name)?;
        let plan = match validate_quorum(&entry.object) {
            Ok(plan) => plan,
            Err(errors) => return Some(Err(Problem::invalid(Reason::InvalidSpec, &errors))),
        };
        if let Some(problem) = self.shared(name, &plan) {
            return Some(Err(problem));
        }
        if let Some(before) = entry.phase.spec()
            && let Err(errors) = validate_quorum_update(before, &entry.object.spec)
        {
            return Some(Err(Problem::invalid(Reason::ImmutableField, &errors)));
        }
        Some(Ok(plan))
    }

    /// Returns the problem of a shared server: one server with one prefix is a master of one quorum only, the oldest.
    fn shared(&self, name: &str, plan: &QuorumPlan) -> Option<Problem> {
        let entry = self.entries.get(name)?;
        let mut others: Vec<(_, &QuorumPlan)> = self
            .entries
            .iter()
            .filter(|(other, _)| *other != name)
            .filter_map(|(_, other)| Some((age(&other.object.metadata), other.phase.plan()?)))
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
