//! Follows a quorum's state as this replica sees it, and computes its status.

use std::time::Duration;

use kube::Resource;

use super::{
    Effect, ElectorChange, Index, MastersRequest, StatusWrite, World,
    reporter::{ReporterDuty, Turn},
    sight::SightChange,
};
use crate::{
    api::quorum_status::{NotReadyReplica, RedisQuorumStatus},
    controller::{
        events::{EventReason, EventRecord},
        problem::Reason,
        status::{Health, QuorumFacts, has_silent, quorum_status, replicas_status, reported, without_silent},
        writer::{self, Item},
    },
    masters::Reporters,
};

/// Interval between checks of the status of a quorum that cannot be opened.
const AGAIN: Duration = Duration::from_secs(1);
/// A reporter that begins later than this after the return of a majority emits no event about it, because
/// another replica already has.
const RESTORED: Duration = Duration::from_secs(60);
impl Index {
    /// Handles the changes that result from time alone.
    pub(super) fn check_quorum(&mut self, name: &str, at: &World<'_>) {
        let masters = self.open.get(name).and_then(|_| at.views.masters(name));
        let health = masters.as_deref().map(Health::of);
        let duty = ReporterDuty {
            coordinator_renewed: self.coordinator_renewed(name, at),
            coordinator: self.known_coordinator(name, at),
        };
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        entry.sight.note(health.as_ref(), at.now);
        let Some(health) = health else { return };
        let Some(turn) = entry.reporting.observe(name, &duty, at) else {
            return;
        };
        let change = entry.sight.take(health, at.now);
        self.judge_copy(name, turn.copied);
        self.queue_changes(name, turn, &change, at);
        let entry = self.quorums.get(name);
        if entry.is_some_and(|entry| entry.reporting.is_mine()) {
            self.emit_quorum_events(name, &change, at);
        }
        self.initialize(name, at);
        let entry = self.quorums.get(name);
        if entry.is_some_and(|entry| entry.url_change.is_due(at.now)) {
            self.due.quorums.insert(name.to_owned());
        }
    }

    /// Queues the writes and judgements that depend on the changes.
    fn queue_changes(&mut self, name: &str, turn: Turn, change: &SightChange, at: &World<'_>) {
        let internal = turn.put.into_iter().map(|(lock, terms)| {
            Effect::Elector(ElectorChange::PutInternal {
                quorum: name.to_owned(),
                lock,
                terms,
            })
        });
        self.effects.extend(internal);
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        let mine = entry.reporting.is_mine();
        let asks = mine && entry.heartbeat.asks(at.now);
        let removes = mine && entry.removal.is_due(at.now);
        let silent = mine && has_silent(entry.not_ready_replicas(), at.stamp());
        let locks_become_unknown = entry.reporting.locks_become_unknown(at.now);
        let reporter = entry.reporting.reporter();
        let confirmed = turn.name && reporter.is_some_and(|reporter| reporter.clash().is_none());
        let unreported = reporter.is_some_and(|reporter| reporter.quorum_unreported(at.now).is_some());
        if turn.locks || confirmed || change.crossed {
            self.write_locks_of(name);
        }
        if turn.name {
            self.due.quorums.insert(name.to_owned());
            self.touch_locks_of(name);
        }
        if change.anything || turn.quorum || turn.name || unreported || silent {
            self.writer.push(Item::Quorum(name.to_owned()));
        }
        if asks {
            self.ask_for_clusters(name);
        }
        if removes && self.open.get(name).is_some() {
            self.effects
                .push(Effect::Masters(MastersRequest::ForgetEnded(name.to_owned())));
        }
        if locks_become_unknown {
            self.write_locks_of(name);
        }
    }

    /// Reads the live clusters, which are part of the heartbeat, before it is written.
    fn ask_for_clusters(&mut self, name: &str) {
        if self.open.get(name).is_some() {
            self.effects
                .push(Effect::Masters(MastersRequest::AskClusters(name.to_owned())));
        }
    }

    pub(super) fn on_clusters(&mut self, name: &str, reporters: &Reporters) {
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.heartbeat.answered(reporters.clusters.clone());
            self.writer.push(Item::Quorum(name.to_owned()));
        }
    }

    fn emit_quorum_events(&mut self, name: &str, change: &SightChange, at: &World<'_>) {
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        // At the moment of the return no replica reports: the majority has to elect the reporter first.
        let regained = entry.sight.regained();
        let restored = regained.is_some_and(|lost| at.now.since(lost) < RESTORED);
        let mut emit = |reason, note| {
            let object = entry.object.object_ref(&());
            self.effects
                .push(Effect::Record(EventRecord { reason, object, note }));
        };
        if let Some((reason, why)) = &change.lost {
            emit(*reason, why.clone());
        }
        if restored {
            emit(
                EventReason::QuorumRestored,
                "a majority of the masters votes and accepts writes".into(),
            );
        }
        for master in &change.quarantined {
            let note = format!("{master} lost its memory and has no vote until it is sealed again");
            emit(EventReason::MasterQuarantined, note);
        }
    }

    /// Repeats the heartbeat and the entry of an unready replica, which may have been part of a failed write.
    pub(super) fn beat_again(&mut self, name: &str) {
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.heartbeat.repeat();
            entry.reported_not_ready = None;
        }
    }

    /// Returns the write of a quorum's status, if it is due and this replica has to write it.
    pub(super) fn write_quorum(&mut self, name: &str, at: &World<'_>) -> Option<Effect> {
        let stamp = at.stamp();
        let readiness = self.own_readiness(name, at);
        let own = self.me.identity.to_string();
        let witness = self.witness_of_quorum(name, at);
        let elsewhere = self.has_other_coordinator(at.now);
        let entry = self.quorums.get_mut(name)?;
        let before = entry.object.status.clone().unwrap_or_default();
        if before.initialized_time.is_some() {
            entry.initialization.is_remembered_elsewhere();
        }
        let problem = entry.phase.problem();
        let opening = problem.is_some_and(|problem| problem.reason == Reason::Opening);
        // This replica has just started, and the present status contains more information.
        let newcomer = opening
            && before
                .observed_generation
                .is_some_and(|generation| generation >= 0);
        let shown = entry.shown(&self.me.cluster, witness, elsewhere, at);
        let may = entry.reporting.may_write(shown, at.now);
        let all = may && !newcomer;
        let list = &before.not_ready_replicas;
        let mine = readiness.is_due(list, &own, entry.reported_not_ready, at.now);
        let mut list = if all {
            without_silent(list, stamp)
        } else {
            list.clone()
        };
        if mine {
            list = reported(&list, &own, &readiness, stamp);
        }
        let status = if all {
            let status = self.whole_status(name, &before, list, at);
            if let (Some(_), Some(entry)) = (&status, self.quorums.get_mut(name)) {
                entry.reporting.write_status(at.now);
            }
            status
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
            // The quorum is not open: the status is checked again later, since the siblings may answer, or
            // its reporter may disappear.
            let item = Item::Quorum(name.to_owned());
            self.writer.push_later(item, at.now + AGAIN);
        }
        None
    }

    /// Returns the status of a quorum for which this replica reports; `None` if nothing has changed.
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
        let contact = self.asking.reported.as_ref();
        let unanswered = contact.map(|contact| contact.unanswered.iter().cloned().collect());
        let entry = self.quorums.get_mut(name)?;
        let beat = entry.reporting.is_mine() && entry.heartbeat.is_due();
        let reporters = if beat {
            let own = &self.me.cluster;
            entry.heartbeat.reporters(&before.reporters, own, stamp)
        } else {
            before.reporters.clone()
        };
        let status = quorum_status(&QuorumFacts {
            before,
            generation: entry.object.metadata.generation.unwrap_or_default(),
            problem: entry.phase.problem(),
            health: entry.sight.health().filter(|_| masters.is_some()),
            masters: masters.as_deref().unwrap_or_default(),
            quorum_id,
            reporters,
            not_ready,
            unanswered,
            initialized: entry.initialization.time().cloned(),
            kept_by,
            now: stamp,
        });
        let same = status.conditions == before.conditions
            && status.observed_generation == before.observed_generation
            && status.initialized_time == before.initialized_time
            && status.quorum_id == before.quorum_id
            && status.not_ready_replicas == before.not_ready_replicas;
        // Latencies differ at every read: they are written with the heartbeat.
        if same && !beat {
            return None;
        }
        if beat {
            entry.heartbeat.written();
        }
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
            entry.reported_not_ready = Some(at.now);
        }
        let version = entry.object.metadata.resource_version.clone().unwrap_or_default();
        Some(Effect::Status(StatusWrite::Quorum {
            name: name.to_owned(),
            version,
            status,
        }))
    }
}
