//! How a quorum looks from here, and what is written of it.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::Resource;

use super::{Effect, Index, World};
use crate::{
    api::quorum_status::{NotReadyReplica, RedisQuorumStatus, ReporterStatus},
    controller::{
        events::{EventReason, EventRecord},
        index::{quorum_store::Initializing, reporter::Reporter},
        problem::Reason,
        status::{Health, QuorumFacts, has_silent, heard, quorum_status, replicas_status, reported},
        writer::{self, Item},
    },
    lease::ClusterId,
    masters::Reporters,
};

/// The only write in the steady state.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Between two looks at the status of a quorum that cannot be opened.
const AGAIN: Duration = Duration::from_secs(1);
/// Who begins to report later than this after a majority came back says nothing of it: another replica has.
const RESTORED: Duration = Duration::from_secs(60);
/// A cluster that was not heard of for so long is not listed any more.
const FORGOTTEN: i64 = 600;

impl Index {
    /// What changes with time alone.
    pub(super) fn look_at_quorum(&mut self, name: &str, at: &World<'_>) {
        let now = at.now;
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        let masters = self.open.get(name).and_then(|_| at.views.masters(name));
        let Some(masters) = masters else {
            entry.blind_since.get_or_insert(now);
            return;
        };
        let health = Health::of(&masters);
        if health.has_majority() {
            entry.blind_since = None;
        } else {
            entry.blind_since.get_or_insert(now);
        }
        let Some(reporter) = entry.reporter.as_mut() else {
            return;
        };
        let turn = reporter.look(&|lock| at.views.lock(name, lock, now), now);
        let put = turn.put.map(|(lock, terms)| Effect::PutInternal {
            quorum: name.to_owned(),
            lock,
            terms,
        });
        self.effects.extend(put);
        let clash = reporter.clash().cloned();
        let mine = reporter.reports_quorum();
        if reporter.quorum_unreported(now).is_none() {
            (entry.caretaker, entry.contradicted) = (mine, false);
        }
        let before = entry.health.clone();
        let news = before.as_ref() != Some(&health);
        let majority = (
            before.as_ref().is_some_and(Health::has_majority),
            health.has_majority(),
        );
        let quarantined: Vec<String> = health
            .quarantined()
            .filter(|master| {
                !before
                    .as_ref()
                    .is_some_and(|before| before.quarantined().any(|other| other == *master))
            })
            .map(str::to_owned)
            .collect();
        let why = health.no_majority();
        let crossed = entry.look(health);
        if turn.name {
            self.due.quorums.insert(name.to_owned());
        }
        let beat = mine && entry.ask_at.is_none_or(|at| at <= now);
        if beat {
            entry.ask_at = Some(now + HEARTBEAT);
        }
        if turn.locks || (turn.name && clash.is_none()) || crossed {
            self.write_locks_of(name);
        }
        if turn.name {
            self.touch_locks_of(name);
        }
        let entry = self.quorums.get(name);
        let silent = entry.is_some_and(|entry| has_silent(entry.not_ready_replicas(), at.stamp()));
        let reporter = entry.and_then(|entry| entry.reporter.as_ref());
        let absent = reporter.and_then(|reporter| reporter.quorum_unreported(now));
        let locks_absent = reporter.and_then(|reporter| reporter.locks_unreported(now));
        if news || turn.quorum || turn.name || absent.is_some() || (mine && silent) {
            self.writer.push(Item::Quorum(name.to_owned()));
        }
        if beat {
            self.ask_for_clusters(name);
        }
        if let Some(absent) = locks_absent {
            self.unreported(name, absent);
        }
        if let Some(entry) = self.quorums.get_mut(name)
            && !majority.1
            && (majority.0 || entry.lost.is_some())
        {
            entry.lost = Some(now);
        }
        if mine {
            self.tell_quorum(name, majority, why, quarantined, at);
        }
        self.initialize(name, at);
        if self
            .quorums
            .get(name)
            .is_some_and(|entry| entry.url_change.is_due(now))
        {
            self.due.quorums.insert(name.to_owned());
        }
    }

    /// Which clusters are alive belongs to the heartbeat, and is asked for before it.
    fn ask_for_clusters(&mut self, name: &str) {
        if self.open.get(name).is_some() {
            self.effects.push(Effect::AskClusters(name.to_owned()));
        }
    }

    pub(super) fn on_clusters(&mut self, name: &str, reporters: &Reporters) {
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.clusters = reporters.clusters.clone();
            entry.heartbeat_due = true;
            self.writer.push(Item::Quorum(name.to_owned()));
        }
    }

    /// Once, when nobody has reported for so long that nobody can: the locks' statuses must not go on saying Active.
    fn unreported(&mut self, name: &str, absent: Duration) {
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        let long = entry.reporter.as_ref().map_or(Duration::MAX, Reporter::long);
        let due = absent >= long;
        if due && !entry.told_unknown {
            entry.told_unknown = true;
            self.write_locks_of(name);
        } else if !due {
            entry.told_unknown = false;
        }
    }

    fn tell_quorum(
        &mut self,
        name: &str,
        majority: (bool, bool),
        why: Option<String>,
        quarantined: Vec<String>,
        at: &World<'_>,
    ) {
        let now = at.now;
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        let lost = entry.lost.take_if(|_| majority.1);
        let lost = lost.is_some_and(|lost| now.since(lost) < RESTORED);
        let mut emit = |reason, note| {
            let object = entry.object.object_ref(&());
            self.effects
                .push(Effect::Record(EventRecord { reason, object, note }));
        };
        if majority == (true, false) {
            emit(EventReason::QuorumLost, why.unwrap_or_default());
        }
        // Nobody reports in the moment in which a majority is back: it has to elect the reporter first.
        if majority.1 && lost {
            emit(
                EventReason::QuorumRestored,
                "a majority of the masters votes".into(),
            );
        }
        for master in quarantined {
            let note = format!("{master} lost its memory and has no vote until it is sealed again");
            emit(EventReason::MasterQuarantined, note);
        }
    }

    /// A heartbeat, or that this replica is not ready, may have been in a write that failed.
    pub(super) fn beat_again(&mut self, name: &str) {
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.heartbeat_due |= !entry.clusters.is_empty();
            entry.told_not_ready = None;
        }
    }

    /// Writes the status of a quorum, if it is for this replica to write and something new is to be said.
    pub(super) fn write_quorum(&mut self, name: &str, at: &World<'_>) -> Option<Effect> {
        let (now, stamp) = (at.now, at.stamp());
        let readiness = self.own_readiness(name, at);
        let own = self.me.identity.to_string();
        let witness = self.witness_of_quorum(name, at);
        let entry = self.quorums.get_mut(name)?;
        let before = entry.object.status.clone().unwrap_or_default();
        if before.initialized_time.is_some() && entry.initializing == Initializing::Remembering {
            // Somebody else was quicker to remember it, and goes on.
            entry.initializing = Initializing::No;
        }
        let opening = matches!(&entry.problem, Some(problem) if problem.reason == Reason::Opening);
        // This replica has just started. Whatever the status says was more.
        let newcomer = opening
            && before
                .observed_generation
                .is_some_and(|generation| generation >= 0);
        let may = entry.may_write(&self.me.cluster, witness, now, stamp);
        let all = may && !newcomer;
        let list = &before.not_ready_replicas;
        let mine = readiness.is_due(list, &own, (entry.told_not_ready, now));
        let mut list = if all { heard(list, stamp) } else { list.clone() };
        if mine {
            list = reported(&list, &own, &readiness, stamp);
        }
        let status = if all {
            self.whole_status(name, &before, list, at)
        } else if mine {
            let generation = entry.object.metadata.generation.unwrap_or_default();
            Some(replicas_status(&before, list, generation, stamp))
        } else {
            None
        };
        if let Some(status) = status {
            return self.start_write(name, &before, &status, mine, at);
        }
        if !may && !newcomer && self.open.get(name).is_none() {
            // Not opened: looked at again when its siblings have answered, or its reporter is missed.
            let item = Item::Quorum(name.to_owned());
            self.writer.push_later(item, now + AGAIN);
        }
        None
    }

    /// The status of a quorum for which this replica reports; `None` where it would say nothing new.
    fn whole_status(
        &mut self,
        name: &str,
        before: &RedisQuorumStatus,
        not_ready: Vec<NotReadyReplica>,
        at: &World<'_>,
    ) -> Option<RedisQuorumStatus> {
        let stamp = at.stamp();
        let open = self.open.get(name);
        let masters = open.and_then(|_| at.views.masters(name));
        let quorum_id = open.and_then(|_| at.views.quorum_id(name));
        let quorum_id = quorum_id.map(|id| id.to_string());
        let kept_by = self.kept_by(name);
        let entry = self.quorums.get_mut(name)?;
        let mine = entry.reporter.as_ref().is_some_and(Reporter::reports_quorum);
        let beat = mine && entry.heartbeat_due;
        let reporters = if beat {
            heard_of(&before.reporters, &entry.clusters, &self.me.cluster, stamp)
        } else {
            before.reporters.clone()
        };
        let status = quorum_status(&QuorumFacts {
            before,
            generation: entry.object.metadata.generation.unwrap_or_default(),
            problem: entry.problem.as_ref(),
            health: entry.health.as_ref().filter(|_| masters.is_some()),
            masters: masters.as_deref().unwrap_or_default(),
            quorum_id,
            reporters,
            not_ready,
            initialized: entry.initialized.clone(),
            kept_by,
            now: stamp,
        });
        let same = status.conditions == before.conditions
            && status.observed_generation == before.observed_generation
            && status.initialized_time == before.initialized_time
            && status.quorum_id == before.quorum_id
            && status.not_ready_replicas == before.not_ready_replicas;
        // Latencies differ at every look: they travel with the heartbeat.
        if same && !beat {
            return None;
        }
        entry.heartbeat_due &= !beat;
        Some(status)
    }

    fn start_write(
        &mut self,
        name: &str,
        before: &RedisQuorumStatus,
        status: &RedisQuorumStatus,
        own_readiness: bool,
        at: &World<'_>,
    ) -> Option<Effect> {
        let entry = self.quorums.get_mut(name)?;
        let status = writer::replacement(before, status)?;
        if own_readiness {
            entry.told_not_ready = Some(at.now);
        }
        let version = entry.object.metadata.resource_version.clone().unwrap_or_default();
        Some(Effect::WriteQuorum {
            name: name.to_owned(),
            version,
            status,
        })
    }
}

/// The clusters of the last heartbeats, and when.
fn heard_of(
    before: &[ReporterStatus],
    alive: &BTreeSet<ClusterId>,
    own: &ClusterId,
    now: Timestamp,
) -> Vec<ReporterStatus> {
    let seen = |cluster: &ClusterId| ReporterStatus {
        cluster: cluster.to_string(),
        last_seen_time: Time(now),
    };
    let mut reporters: Vec<ReporterStatus> =
        alive.iter().filter(|cluster| *cluster != own).map(seen).collect();
    reporters.push(seen(own));
    let rest = before
        .iter()
        .filter(|reporter| now.as_second() - reporter.last_seen_time.0.as_second() < FORGOTTEN);
    for reporter in rest {
        if !reporters.iter().any(|new| new.cluster == reporter.cluster) {
            reporters.push(reporter.clone());
        }
    }
    reporters.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    reporters
}
