//! Holds the state of the operator and makes all of its decisions. Observations, changes of leases and results of
//! requests are [`Input`]s; requests, orders and events are [`Effect`]s.
//!
//! Pure: no task, no client, no channel, no clock. The same inputs in the same [`World`] have the same effects.

mod author;
mod cluster_copy;
mod coordinator;
mod coordinator_seat;
mod cut_off;
mod decide;
mod departure;
mod departure_events;
mod drain;
mod effect;
mod ended;
mod failover;
mod finalizer;
mod hand_over;
mod happened;
mod heartbeat;
mod in_use;
mod initialize;
mod input;
mod lease_end;
mod leases;
mod leftover;
mod lock_read;
mod lock_record;
mod lock_status;
mod lock_store;
mod locks;
mod name_clash;
mod not_ready;
mod open;
mod own_tokens;
mod ownership;
mod pending;
mod phase;
mod planted;
mod quorum_phase;
mod quorum_store;
mod quorum_view;
mod quorums;
mod removal_schedule;
mod replica;
mod reporter;
mod reporter_seat;
mod reporting;
mod resolve;
mod shutdown;
mod siblings;
mod sight;
#[cfg(test)]
mod simulation;
mod status_memory;
mod target_key;
mod targets;
mod templates;
mod unreadable;
mod urls;
mod willing;
mod withdraw;
mod world;

use std::time::Duration;

use kube::ResourceExt;

use coordinator::CoordinatorElection;
use lock_store::Locks;
use open::OpenQuorums;
use pending::{Due, InFlight};
use planted::Planted;
use quorum_store::Quorums;

pub(super) use coordinator::{CoordinatorWrite, CoordinatorWriteEnd};
pub(super) use effect::{
    AfterStop, Effect, ElectorChange, FinalizerChange, MastersRequest, ObjectRequest, QuorumChange,
    SiblingRequest, StatusWrite, TargetTaskChange, TargetTaskStart, WatchChange,
};
pub(super) use ended::LastStatus;
pub(super) use failover::Failover;
pub(super) use happened::{Settled, intention};
pub(super) use in_use::Guarded;
pub(super) use input::{FinalizerEnd, Input};
pub(super) use lock_read::LockReadEnd;
pub(super) use own_tokens::OwnTokens;
pub(super) use replica::Replica;
pub(super) use reporter::Scope;
pub(super) use shutdown::{Handed, LastStop};
pub(super) use siblings::{LAST_PATIENCE, PATIENCE};
pub(super) use targets::has_finalizer;
pub(super) use urls::UrlChange;
pub(super) use willing::WillingQuestion;
pub(super) use world::{LockSnapshot, Unready, Views, World};

use super::{
    events::EventRecord,
    node_guards::NodeGuards,
    object::{ObjectKey, trim},
    status::claims,
    writer::{Item, Queue, Written},
};
use crate::{
    api::LeaderLock,
    lease::BootInstant,
    operator::state::{InUse, ReadinessRule},
    targets::Origin,
    telemetry::Unreadable,
};

/// The average number of judgements per lock within which every batch of inputs settles.
const JUDGEMENTS: usize = 100;

/// The state of the operator.
#[derive(Debug)]
pub(super) struct Index {
    me: Replica,
    locks: Locks,
    quorums: Quorums,
    open: OpenQuorums,
    writer: Queue,
    due: Due,
    in_flight: InFlight,
    asking: siblings::Asking,
    /// The election of the coordinator; `None` if the other replicas are not known.
    coordinator: Option<CoordinatorElection>,
    guards: NodeGuards,
    /// The time since which the caches have been filled and their content applied.
    ready: Option<BootInstant>,
    /// Whether the process is to end: siblings replace it, or the UID of the cluster has changed.
    ends: bool,
    random: fastrand::Rng,
    effects: Vec<Effect>,
    /// A planted mistake, to prove that the simulation finds it.
    #[cfg(test)]
    planted: Option<Planted>,
}

impl Index {
    /// Creates the index of a replica with one watch for each of these scopes. `seed` seeds the jitter of waits.
    pub(super) fn new(me: Replica, scopes: &[String], seed: u64) -> Self {
        Self {
            coordinator: CoordinatorElection::of(&me),
            me,
            locks: Locks::new(scopes),
            quorums: Quorums::default(),
            open: OpenQuorums::default(),
            writer: Queue::default(),
            due: Due::default(),
            in_flight: InFlight::default(),
            asking: siblings::Asking::default(),
            guards: NodeGuards::default(),
            ready: None,
            ends: false,
            random: fastrand::Rng::with_seed(seed),
            effects: Vec::new(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// Handles one input. Call [`Self::settle`] after the last input of a batch.
    pub(super) fn handle(&mut self, input: Input, at: &World<'_>) {
        match input {
            Input::Lock(scope, observation) => self.on_lock(&scope, observation, at),
            Input::Quorum(observation) => self.on_quorum(observation, at),
            Input::SecretsChanged => self.due.quorums.extend(self.quorums.names()),
            Input::Template(read) => self.on_template(&read),
            Input::Lease(change) => self.on_change(&change, at),
            Input::Report(report) => self.on_report(report, at),
            Input::TargetTaskEnded(key) => self.on_target_task_ended(key),
            Input::Tick => self.tick(at),
            Input::Written(item, written) => self.on_written(item, written, at),
            Input::Finalizer { key, uid, end } => self.on_finalizer(&key, uid.as_deref(), end, at),
            Input::LockRead { key, sent, end } => self.on_lock_read(&key, sent, end, at),
            Input::QuorumFinalizers(name, end) => self.on_guarded(&name, end, at),
            Input::Abstains(key, failover, end) => self.on_abstains(&key, failover, end, at),
            Input::HandOverAnswered(key) => self.on_answered(&key),
            Input::Salvaged(key, object) => self.on_salvaged(&key, object, at),
            Input::Stopped(key, stopped) => self.on_stopped(&key, stopped, at),
            Input::Drained(key, purpose, drained) => self.on_drained(&key, purpose, &drained, at),
            Input::QuorumClosed(name) => self.on_quorum_closed(name),
            Input::NotOpened(name, error) => self.on_not_opened(&name, error, at),
            Input::NotReplaced(retired, error) => self.on_not_replaced(&retired, error, at),
            Input::InitializationBegun(quorum, end) => self.on_initialization_begun(&quorum, end, at),
            Input::Initialized(quorum, end) => self.on_initialized(&quorum, end),
            Input::Counter(written, largest) => self.on_counter(written, largest, at),
            Input::Clusters(quorum, reporters) => self.on_clusters(&quorum, &reporters),
            Input::Willing(quorum, answers) => self.on_willing(&quorum, answers, at),
            Input::Retired(retired, outcome) => self.on_retired(&retired, outcome, at),
            Input::Coordinator(observation) => self.on_coordinator(&observation, at),
            Input::CoordinatorWritten(end) => self.on_coordinator_written(&end, at),
            Input::SiblingsAnswered(round) => self.on_siblings_answered(round, at),
            Input::NodeGuards(guards) => self.on_node_guards(guards),
            Input::Uses(name, round) => self.on_uses(&name, round.as_ref(), at),
            Input::Nothing => {}
        }
    }

    /// Applies the changes of the batch.
    pub(super) fn settle(&mut self, at: &World<'_>) {
        // An object must not be judged before the list is complete: a quorum that the list has not delivered yet is not
        // missing, and the oldest of two objects with one name may come last.
        let touched = !self.due.quorums.is_empty() || !self.due.locks.is_empty();
        if self.synced() && (touched || self.ready.is_none()) {
            self.ready.get_or_insert(at.now);
            self.apply(at);
        }
    }

    /// Decides on the statuses that are due until one has to be written, and reports whether there is one. The executor
    /// calls this while its rate limit allows a request; the rest waits for the next tick.
    pub(super) fn write_next(&mut self, at: &World<'_>) -> bool {
        // Before the first lists are complete, a status of another replica is better than one of this replica.
        while self.ready.is_some()
            && let Some(item) = self.writer.next(at.now)
        {
            let written = match &item {
                Item::Lock(key) => self.write_lock(key, at),
                Item::Quorum(name) => self.write_quorum(name, at),
            };
            if let Some(effect) = written {
                self.writer.start(item);
                self.effects.push(effect);
                return true;
            }
        }
        false
    }

    /// Returns the effects since the last call, in the order in which they must be performed.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn record(&mut self, happening: EventRecord) {
        self.effects.push(Effect::Record(happening));
    }

    fn apply(&mut self, at: &World<'_>) {
        if !self.due.quorums.is_empty() {
            self.follow_secrets();
        }
        while let Some(name) = self.due.quorums.pop_first() {
            self.apply_quorum(&name, at);
        }
        // Decisions that do not settle must not keep the operator from its other work: the rest waits for the next input.
        for _ in 0..JUDGEMENTS * (1 + self.locks.len()) {
            let Some(key) = self.due.locks.pop_first() else {
                break;
            };
            self.apply_lock(&key, at);
        }
        if let Some(key) = self.due.locks.first() {
            tracing::error!(object = %format!("LeaderLock {key}"), "decisions do not settle");
        }
        self.publish(false);
    }

    fn synced(&self) -> bool {
        self.locks.synced() && self.quorums.synced
    }

    fn on_written(&mut self, item: Item, written: Written, at: &World<'_>) {
        if let (Item::Quorum(name), Written::Conflict | Written::Failed(_)) = (&item, &written) {
            self.beat_again(name);
        }
        let written = match written {
            // Without a reaction, the item counts as being written forever.
            Written::Conflict if self.plants(Planted::DropsConflict) => return,
            Written::Gone if self.plants(Planted::ForgetsUnserved) => {
                if let Item::Lock(key) = &item {
                    self.forget_lock(key, at);
                }
                Written::Gone
            }
            written => written,
        };
        let drops = matches!(written, Written::Gone) && self.plants(Planted::DropsUnserved);
        let retried = at.now + Duration::from_secs(if drops { 86_400 } else { 0 });
        self.writer.settle(item, &written, retried);
        match written {
            Written::Lock(mut object) => {
                trim(&mut object.metadata);
                let key = ObjectKey::of(object.as_ref());
                let unknown = is_unknown(&object);
                self.see_answer(object, at);
                if let Some(entry) = self.locks.get_mut(&key) {
                    entry.status.unknown = unknown;
                    let events = std::mem::take(&mut entry.status.events);
                    let events = EventRecord::all(&entry.object, events).map(Effect::Record);
                    self.effects.extend(events);
                }
            }
            Written::Quorum(mut object) => {
                trim(&mut object.metadata);
                self.remembered(&object);
                // The object may have been deleted since: the answer to the write must not restore it.
                let known = self.quorums.get(&object.name_any());
                if known.is_some_and(|entry| entry.object.metadata.uid == object.metadata.uid) {
                    self.see_quorum(*object, Origin::Answer, at);
                }
            }
            Written::Conflict | Written::Gone | Written::Refused(_) | Written::Failed(_) => {}
        }
    }

    /// Stops inferring statuses once a replica with more knowledge has written one.
    fn follow_others(&mut self, object: &LeaderLock, now: BootInstant) {
        let key = ObjectKey::of(object);
        let unknown = self.locks.get(&key).is_some_and(|entry| entry.status.unknown);
        if unknown
            && !is_unknown(object)
            && let Some(entry) = self.quorums.get_mut(&object.spec.quorum_ref.name)
        {
            entry.reporting.contradict(now);
        }
    }

    /// Handles the changes that result from time alone.
    fn tick(&mut self, at: &World<'_>) {
        self.forget_given_up(at);
        for name in self.quorums.names() {
            self.check_quorum(&name, at);
        }
        self.check_coordinator(at);
        self.check_targets(at);
        if self.plants(Planted::DropsDelayedStatus) {
            self.writer = Queue::default();
        }
        if self.plants(Planted::StatusEachTick) {
            let all: Vec<ObjectKey> = self.locks.known().cloned().collect();
            all.into_iter().for_each(|key| self.writer.push(Item::Lock(key)));
        }
        self.check_uses(at);
        self.ask_siblings(at);
        self.ask_willing(at);
        self.check_own_readiness(at);
        self.report_not_ready(at);
        self.due.quorums.append(&mut self.due.later);
        self.due.quorums.extend(self.open.retried(at.now));
        self.close_quorums();
    }

    /// Publishes the state that the HTTP side shows from now on.
    fn publish(&mut self, stopping: bool) {
        let closing = self.quorums.names().into_iter();
        let unreadable = |kind, (namespace, name): (&str, &str)| Unreadable {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let locks = self.locks.unreadable.keys();
        let locks = locks.map(|key| unreadable("LeaderLock", (&key.namespace, &key.name)));
        let quorums = self.quorums.unreadable.keys();
        let quorums = quorums.map(|name| unreadable("RedisQuorum", ("", name)));
        let shown = InUse {
            quorums: Vec::new(),
            opening: closing.filter(|name| self.open.is_closing(name)).collect(),
            problems: self.quorum_problems(),
            unreadable: locks.chain(quorums).collect(),
            readiness_rule: ReadinessRule::Once(self.needed_quorums()),
            awaited: Vec::new(),
            stopping,
            finalizer: self.me.in_use.own.clone(),
            named: self.named_quorums(),
            siblings: self.asking.reported.clone(),
            // The executor adds it.
            api_server_answered: None,
        };
        self.effects.push(Effect::Publish(Box::new(shown)));
    }
}

fn is_unknown(object: &LeaderLock) -> bool {
    object.status.as_ref().is_some_and(|status| !claims(status))
}
