//! The one task that knows everything and decides: observations, changes of leases and ends of writes come in; quorums
//! are opened and closed, locks put and removed, statuses written.

mod author;
mod departure;
pub(super) mod drain;
mod ended;
mod failover;
mod hand_over;
pub(super) mod happened;
pub(super) mod in_use;
mod initialize;
mod job;
pub(super) mod leases;
mod leftover;
mod locks;
mod not_ready;
pub(super) mod place;
mod quorum_view;
mod quorums;
mod shutdown;
mod siblings;
pub(super) mod targets;
mod templates;
mod unreadable;
pub(super) mod urls;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{self, MissedTickBehavior},
};

use job::Job;

use super::{
    clients::Clients,
    events::Events,
    jobs::Jobs,
    locks::Locks,
    object::ObjectKey,
    observe::{Failures, Observation},
    pace::Pace,
    quorums::Quorums,
    reporter::Scope,
    roll::Origin,
    secrets::{SecretKey, Secrets},
    siblings::{Pods, Siblings},
    status::claims,
    target_task::TargetReport,
    templates::{Read, Reader},
    writer::{Item, Writer, Written},
};
use crate::{
    api::{LeaderLock, RedisQuorum, in_use::InUseFinalizer},
    clock,
    lease::{ClusterId, HolderIdentity, Moment},
    operator::{
        metrics_watcher::Change,
        quorum::QuorumEnded,
        quorums::RunningQuorums,
        state::{InUse, ProcessState, ReadinessRule},
    },
    targets::Shared,
    telemetry::Unreadable,
};

/// How often what only time changes is looked at: who reports, which masters vote.
const LOOK: Duration = Duration::from_millis(200);
/// Observations taken in one turn.
const AT_ONCE: usize = 512;

/// What comes from the watches.
#[derive(Debug)]
pub(super) enum Seen {
    /// By the watch of this namespace; of all, where it is empty.
    Lock(String, Observation<LeaderLock>),
    Quorum(Observation<RedisQuorum>),
    Secret(SecretKey, Observation<Secret>),
    /// A replica of this operator.
    Sibling(Observation<Pod>),
    Report(TargetReport),
    Template(Read),
}

/// See the module.
pub(super) struct Core {
    identity: HolderIdentity,
    cluster: ClusterId,
    scope: Scope,
    /// The finalizer of the quorums that locks of this scope name.
    in_use: InUseFinalizer,
    /// Who is told of quorums that are gone.
    gone: Option<mpsc::UnboundedSender<String>>,
    clients: Clients,
    shared: Arc<Shared>,
    reader: Reader,
    pace: Arc<Pace>,
    state: Arc<ProcessState>,
    fleet: RunningQuorums,
    locks: Locks,
    quorums: Quorums,
    secrets: Secrets,
    writer: Writer,
    events: Events,
    inbox: mpsc::Sender<Seen>,
    /// Objects to be judged and applied again.
    touched_locks: BTreeSet<ObjectKey>,
    touched_quorums: BTreeSet<String>,
    /// To be looked at again with time.
    touched_later: BTreeSet<String>,
    jobs: Jobs<Job>,
    /// The requests for a hand-over that are being answered.
    answering: BTreeMap<ObjectKey, String>,
    siblings: Pods,
    asking: siblings::Asking,
    /// Locks whose place or warden, and those whose finalizer, could not be seen to yet.
    wardens_due: BTreeSet<ObjectKey>,
    finalizers_due: BTreeSet<ObjectKey>,
    /// Locks that this cluster leaves to the others for a time.
    abstaining: BTreeSet<ObjectKey>,
    /// Unreadable objects that are being deleted, and are being read as far as they can be.
    salvaging: BTreeSet<ObjectKey>,
    failures: Failures,
    /// Since when the caches are filled, and what they hold is applied.
    ready: Option<Moment>,
}

impl Core {
    pub(super) fn new(
        (identity, cluster): (HolderIdentity, ClusterId),
        (clients, pace): (Clients, Arc<Pace>),
        state: Arc<ProcessState>,
        fleet: RunningQuorums,
        events: Events,
        inbox: mpsc::Sender<Seen>,
        (scopes, siblings): (&[String], Option<&Siblings>),
    ) -> Self {
        let release = siblings.map(|siblings| (&*siblings.namespace, &*siblings.selector));
        let shared = Arc::new(Shared::new(clients.work.clone()));
        let reader = Reader {
            client: clients.work.clone(),
            shared: shared.clone(),
            pace: pace.clone(),
            turns: Arc::new(Semaphore::new(1)),
        };
        Self {
            identity,
            cluster,
            scope: Scope::of(scopes),
            in_use: InUseFinalizer::new(release, scopes),
            gone: None,
            shared,
            reader,
            clients,
            pace,
            state,
            fleet,
            locks: Locks::new(scopes),
            quorums: Quorums::default(),
            secrets: Secrets::default(),
            writer: Writer::default(),
            events,
            inbox,
            touched_locks: BTreeSet::new(),
            touched_quorums: BTreeSet::new(),
            touched_later: BTreeSet::new(),
            jobs: Jobs::default(),
            answering: BTreeMap::new(),
            siblings: Pods::new(siblings.map(|siblings| &*siblings.own)),
            asking: siblings::Asking::default(),
            wardens_due: BTreeSet::new(),
            finalizers_due: BTreeSet::new(),
            abstaining: BTreeSet::new(),
            salvaging: BTreeSet::new(),
            failures: Failures::default(),
            ready: None,
        }
    }

    /// Tells the name of each quorum whose object is gone from now on.
    pub(super) fn tell_gone(&mut self, gone: mpsc::UnboundedSender<String>) {
        self.gone = Some(gone);
    }

    /// Runs until a task behind a quorum ends that must not. Cancel safe between two events.
    pub(super) async fn run(
        &mut self,
        seen: &mut mpsc::Receiver<Seen>,
        changes: &mut mpsc::UnboundedReceiver<Change>,
    ) -> Result<(), QuorumEnded> {
        let mut look = time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut arrived, mut changed) = (Vec::with_capacity(AT_ONCE), Vec::with_capacity(AT_ONCE));
        loop {
            tokio::select! {
                // Leases first: what is written of them is awaited by people and by other controllers.
                biased;
                _ = changes.recv_many(&mut changed, AT_ONCE) => {
                    for change in changed.drain(..) {
                        self.on_change(&change);
                    }
                }
                (item, written) = self.writer.ended() => self.on_written(item, written),
                end = self.fleet.ended() => {
                    let name = end?;
                    if self.quorums.get(&name).is_none() {
                        self.state.telemetry.forget_quorum(&name);
                    }
                    self.touched_quorums.insert(name);
                }
                Some(end) = self.jobs.ended() => self.on_job(end),
                _ = look.tick() => self.look(),
                _ = seen.recv_many(&mut arrived, AT_ONCE) => {
                    for seen in arrived.drain(..) {
                        self.take(seen);
                    }
                }
            }
            self.settle();
        }
    }

    fn take(&mut self, seen: Seen) {
        let now = clock::now();
        match seen {
            Seen::Lock(scope, observation) => self.on_lock(&scope, observation, now),
            Seen::Quorum(observation) => self.on_quorum(observation),
            Seen::Sibling(observation) => {
                if let Observation::Failed(trouble) = &observation {
                    self.watch_failed("the pods of the operator", &trouble.text);
                }
                self.siblings.observe(&observation, now);
            }
            Seen::Report(report) => self.on_report(report),
            Seen::Template(read) => self.on_template(&read),
            Seen::Secret(key, observation) => {
                if self.secrets.observe(&key, observation) {
                    self.touched_quorums.extend(self.quorums.names());
                }
            }
        }
    }

    /// Applies what changed, and writes what is due.
    fn settle(&mut self) {
        // An object that comes before the rest of the list must not be judged by it: a quorum that is not there yet is
        // not missing, and the oldest of two with one name may come last.
        let touched = !self.touched_quorums.is_empty() || !self.touched_locks.is_empty();
        if self.synced() && (touched || self.ready.is_none()) {
            self.ready.get_or_insert_with(clock::now);
            self.apply();
        }
        if self.ready.is_none() {
            // What is not judged yet has nothing to be told, and another replica may have told better.
            return;
        }
        let now = clock::now();
        // What must wait for its share is looked at with the next tick.
        while self.pace.may_tell(now)
            && let Some(item) = self.writer.next(now)
        {
            match &item {
                Item::Lock(key) => self.write_lock(key),
                Item::Quorum(name) => self.write_quorum(name),
            }
        }
    }

    fn apply(&mut self) {
        let started = clock::now();
        while let Some(name) = self.touched_quorums.pop_first() {
            self.apply_quorum(&name, started);
        }
        while let Some(key) = self.touched_locks.pop_first() {
            self.apply_lock(&key);
        }
        let took = clock::now().since(started);
        self.state.telemetry.reconciled("kubernetes", "ok", took);
        self.state.in_use.store(Arc::new(self.in_use(false)));
    }

    fn synced(&self) -> bool {
        self.locks.synced() && self.quorums.roll.synced()
    }

    fn on_written(&mut self, item: Item, written: Written) {
        let now = clock::now();
        if let (Item::Quorum(name), Written::Conflict | Written::Failed(_)) = (&item, &written) {
            self.beat_again(name);
        }
        self.writer.settle(item, &written, now);
        match written {
            Written::Lock(mut object) => {
                super::object::trim(&mut object.metadata);
                let key = ObjectKey::of(object.as_ref());
                let unknown = is_unknown(&object);
                self.see_answer(object, now);
                if let Some(entry) = self.locks.get_mut(&key) {
                    entry.said_unknown = unknown;
                    let news = std::mem::take(&mut entry.news);
                    self.events.emit_all(&entry.object, news);
                }
            }
            Written::Quorum(mut object) => {
                super::object::trim(&mut object.metadata);
                self.remembered(&object);
                // It may have been deleted meanwhile: its answer must not bring it back.
                let known = self.quorums.get(&object.name_any());
                if known.is_some_and(|entry| entry.object.metadata.uid == object.metadata.uid) {
                    self.see_quorum(*object, Origin::Answer);
                }
            }
            Written::Conflict | Written::Gone | Written::Refused(_) | Written::Failed(_) => {}
        }
    }

    fn watch_failed(&mut self, what: &str, reason: &str) {
        if self.failures.is_news(what, reason, clock::now()) {
            tracing::warn!(
                reason,
                "{what} cannot be followed now; what is known stays in force"
            );
        }
    }

    /// Somebody who knows more has written since: this replica says no more what it only infers.
    fn heed_others(&mut self, object: &LeaderLock) {
        let key = ObjectKey::of(object);
        let said = self.locks.get(&key).is_some_and(|entry| entry.said_unknown);
        if said
            && !is_unknown(object)
            && let Some(entry) = self.quorums.get_mut(&object.spec.quorum_ref.name)
        {
            entry.contradicted = true;
        }
    }

    /// What only time changes.
    fn look(&mut self) {
        let now = clock::now();
        for name in self.quorums.names() {
            self.look_at_quorum(&name, now);
        }
        self.look_at_targets();
        self.look_at_uses(now);
        self.ask_siblings(now);
        self.look_at_own_readiness(now);
        self.tell_not_ready(now);
        self.touched_quorums.append(&mut self.touched_later);
        self.close_quorums();
    }

    fn in_use(&self, stopping: bool) -> InUse {
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
        InUse {
            quorums: self.fleet.in_use(),
            opening: closing.filter(|name| self.fleet.is_closing(name)).collect(),
            problems: self.quorum_problems(),
            unreadable: locks.chain(quorums).collect(),
            readiness_rule: ReadinessRule::Once(self.needed_quorums()),
            awaited: Vec::new(),
            stopping,
            finalizer: self.in_use.own.clone(),
            named: self.named_quorums(),
        }
    }
}

fn is_unknown(object: &LeaderLock) -> bool {
    object.status.as_ref().is_some_and(|status| !claims(status))
}
