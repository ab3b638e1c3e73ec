//! The one task that knows everything and decides: observations, changes of leases and ends of writes come in; quorums
//! are opened and closed, locks put and removed, statuses written.

mod hand_over;
mod initialize;
mod locks;
pub(super) mod place;
mod quorums;
pub(super) mod targets;
pub(super) mod urls;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Pod, Secret};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::{self, MissedTickBehavior},
};

use super::{
    clients::Clients,
    events::Events,
    locks::Locks,
    object::ObjectKey,
    observe::Observation,
    quorums::Quorums,
    secrets::{SecretKey, Secrets},
    siblings::Ready,
    warden::{Order, Report},
    writer::{Item, Writer, Written},
};
use crate::{
    api::{LeaderLock, RedisQuorum, leader_lock::Enforcement, plan::LockPlan},
    clock,
    lease::{ClusterId, FencingToken, HolderIdentity, LockName},
    masters::{InitError, InitReport, Reporters, RetireOutcome},
    operator::{
        fleet::Fleet,
        quorum::QuorumEnded,
        relay::Change,
        state::{InUse, State},
    },
    telemetry::Unreadable,
};

/// How often what only time changes is looked at: who reports, which masters vote.
const LOOK: Duration = Duration::from_millis(200);
/// However many locks there are, they are given back in this time.
const ENDING: Duration = Duration::from_millis(1_600);
/// And their finalizers are removed in this time, where nobody is left to do it.
const FINALIZERS: Duration = Duration::from_secs(2);
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
    Report(Report),
}

/// See the module.
pub(super) struct Core {
    identity: HolderIdentity,
    cluster: ClusterId,
    clients: Clients,
    state: Arc<State>,
    fleet: Fleet,
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
    jobs: JoinSet<Job>,
    /// The requests for a hand-over that are being answered.
    answering: BTreeMap<ObjectKey, String>,
    siblings: Ready,
    /// Locks whose place or warden, and those whose finalizer, could not be seen to yet.
    wardens_due: BTreeSet<ObjectKey>,
    finalizers_due: BTreeSet<ObjectKey>,
    /// The caches were filled, and what they hold was applied.
    ready: bool,
}

/// What was begun beside the work of the elector.
enum Job {
    Initialized(String, Result<InitReport, InitError>),
    /// The token that a status has, and the largest counter that a majority reports.
    Counter(ObjectKey, i64, Option<FencingToken>),
    /// The clusters that report on a quorum.
    Clusters(String, Reporters),
    /// A request for a hand-over.
    Answered(ObjectKey),
    /// Whether everything of a lock that is being deleted was stopped.
    Stopped(ObjectKey, bool),
    Finalizer(ObjectKey, Result<Option<Box<LeaderLock>>, String>),
    Retired {
        quorum: String,
        master: String,
        url: String,
        outcome: Result<RetireOutcome, String>,
    },
}

impl Core {
    pub(super) fn new(
        (identity, cluster): (HolderIdentity, ClusterId),
        clients: Clients,
        state: Arc<State>,
        fleet: Fleet,
        events: Events,
        inbox: mpsc::Sender<Seen>,
        (scopes, own_pod): (&[String], &str),
    ) -> Self {
        Self {
            identity,
            cluster,
            clients,
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
            jobs: JoinSet::new(),
            answering: BTreeMap::new(),
            siblings: Ready::new(own_pod),
            wardens_due: BTreeSet::new(),
            finalizers_due: BTreeSet::new(),
            ready: false,
        }
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
                Some(end) = self.jobs.join_next() => self.on_job(end),
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

    fn on_job(&mut self, end: Result<Job, JoinError>) {
        match end {
            Ok(Job::Initialized(quorum, result)) => self.on_initialized(&quorum, result),
            Ok(Job::Counter(key, written, largest)) => self.on_counter(&key, written, largest),
            Ok(Job::Answered(key)) => self.on_answered(&key),
            Ok(Job::Stopped(key, stopped)) => self.on_stopped(&key, stopped),
            Ok(Job::Finalizer(key, end)) => self.on_finalizer(&key, end),
            Ok(Job::Clusters(quorum, reporters)) => self.on_clusters(&quorum, &reporters),
            Ok(Job::Retired {
                quorum,
                master,
                url,
                outcome,
            }) => self.on_retired(&quorum, &master, &url, outcome, clock::now()),
            Err(broken) => tracing::error!(error = %broken, "a question to the masters broke off"),
        }
    }

    fn take(&mut self, seen: Seen) {
        let now = clock::now();
        match seen {
            Seen::Lock(scope, observation) => self.on_lock(&scope, observation, now),
            Seen::Quorum(observation) => self.on_quorum(observation),
            Seen::Sibling(observation) => self.siblings.observe(&observation),
            Seen::Report(report) => self.on_report(report),
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
        if self.synced() && (touched || !self.ready) {
            self.ready = true;
            self.apply();
        }
        let now = clock::now();
        while let Some(item) = self.writer.next(now) {
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
        self.writer.settle(item, &written, now);
        match written {
            Written::Lock(mut object) => {
                super::object::trim(&mut object.metadata);
                self.see_answer(object, now);
            }
            Written::Quorum(mut object) => {
                super::object::trim(&mut object.metadata);
                self.remembered(&object);
                self.on_quorum(Observation::Seen(object));
            }
            Written::Conflict | Written::Gone | Written::Failed(_) => {}
        }
    }

    /// What only time changes.
    fn look(&mut self) {
        let now = clock::now();
        for name in self.quorums.names() {
            self.look_at_quorum(&name, now);
        }
        self.look_at_targets();
        self.touched_quorums.append(&mut self.touched_later);
        self.close_quorums();
    }

    /// Passes every lock on: to siblings where targets run and one is ready, else stopped first; the others released.
    /// Returns when that is done. What `seen` brings meanwhile is only what wardens report.
    pub(super) async fn stop(&mut self) {
        self.state.in_use.store(Arc::new(self.in_use(true)));
        let now = clock::now();
        let mut reserve: HashMap<String, HashSet<LockName>> = HashMap::new();
        let mut keep = |plan: &LockPlan| {
            let locks = reserve.entry(plan.quorum.clone()).or_default();
            locks.insert(plan.lock_name.clone());
        };
        let (mut stopped, mut asked) = (Vec::new(), Vec::new());
        for (key, entry, warden) in self.locks.with_targets() {
            let Some(plan) = &entry.put else { continue };
            if !self.holds(key, now) || plan.enforcement == Enforcement::Observe {
                continue;
            }
            if self.siblings.any() {
                keep(plan);
                continue;
            }
            let (done, end) = tokio::sync::oneshot::channel();
            warden.tell(Order::Stop(done));
            asked.push((key.clone(), plan.clone()));
            stopped.push(time::timeout(
                plan.timings.stop + plan.timings.lease_duration,
                end,
            ));
        }
        if !stopped.is_empty() {
            tracing::info!(
                locks = stopped.len(),
                "no sibling is ready: stops the targets first"
            );
            let ends = futures_util::future::join_all(stopped).await;
            let mut confirmed = Vec::new();
            for ((key, plan), end) in asked.into_iter().zip(ends) {
                if matches!(end, Ok(Ok(_))) {
                    confirmed.push(key);
                } else {
                    tracing::warn!(object = %format!("LeaderLock {key}"),
                        "targets were not stopped; its lease is left to this cluster until it runs out");
                    keep(&plan);
                }
            }
            // The last replica takes its finalizers along: nobody would be there to remove them.
            for key in confirmed {
                self.set_finalizer(&key, false);
            }
            let removed = async { while self.jobs.join_next().await.is_some() {} };
            if time::timeout(FINALIZERS, removed).await.is_err() {
                tracing::warn!("not every finalizer could be removed in time");
            }
        }
        // From here on the locks are not held: a warden would stop what a sibling is about to adopt.
        self.locks.dismiss_wardens();
        if time::timeout(ENDING, self.fleet.stop(reserve)).await.is_err() {
            tracing::warn!("not everything could be given back in time: leases run out by themselves");
        }
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
            caches_only: true,
            awaited: Vec::new(),
            stopping,
        }
    }
}
