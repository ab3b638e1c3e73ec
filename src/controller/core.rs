//! Executes the effects of the [`Index`]: owns clients, tasks, the rate limit and the select loop. This
//! module contains no policy. Each effect is one call or one task, and the result of a task is an input of
//! the index.

mod execute;
mod requests;
mod shutdown;
mod siblings;
mod views;
mod writes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Pod, Secret},
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{self, MissedTickBehavior},
};

use super::{
    clients::Clients,
    coordination::{ClusterCopy, CoordinatorView},
    events::Events,
    index::{Effect, Index, Input, Replica, Scope, World},
    jobs::Jobs,
    node_guards::GuardPods,
    object::ObjectKey,
    observe::{Failures, Observation},
    rate_limiter::RateLimiter,
    secrets::{SecretKey, Secrets},
    sibling_answers::Round,
    siblings::{Pods, Siblings},
    target_task::{Handle, TargetReport},
    templates::{Read, Reader, Readings},
};
use crate::{
    api::{LeaderLock, RedisQuorum, in_use::InUseFinalizer},
    clock,
    lease::{ClusterId, HolderIdentity},
    operator::{metrics_watcher::Change, quorum::QuorumEnded, quorums::RunningQuorums, state::ProcessState},
    targets::{AllowedFields, LeaseFence, RuntimeClasses, Shared},
};

/// Interval between the decisions that depend on time alone: which replica reports, which masters vote.
const TICK: Duration = Duration::from_millis(200);
/// Maximum number of observations that one turn handles.
const AT_ONCE: usize = 512;

/// A message from a watch or a task.
#[derive(Debug)]
pub(super) enum Incoming {
    /// An observation from the watch of this namespace; an empty name stands for all namespaces.
    Lock(String, Observation<LeaderLock>),
    Quorum(Observation<RedisQuorum>),
    Secret(SecretKey, Observation<Secret>),
    /// The pod of a replica of this operator.
    Sibling(Observation<Pod>),
    /// The Lease of the coordinator.
    Coordinator(Observation<Lease>),
    /// A pod of the node agent or the node guardian.
    NodeGuard(&'static str, Observation<Pod>),
    Report(TargetReport),
    Template(Read),
}

/// Combines the pure index with the executor of its effects.
pub(super) struct Core {
    index: Index,
    executor: Executor,
}

/// The parameters of [`Core::new`].
pub(super) struct Setup<'a> {
    pub(super) identity: HolderIdentity,
    pub(super) cluster: ClusterId,
    /// The mark in the UID of the cluster, if the cluster is a copy of another one.
    pub(super) copy: Option<ClusterCopy>,
    pub(super) clients: Clients,
    pub(super) rate_limiter: Arc<RateLimiter>,
    pub(super) state: Arc<ProcessState>,
    pub(super) quorums: RunningQuorums,
    pub(super) events: Events,
    pub(super) inbox: mpsc::Sender<Incoming>,
    /// The watched namespaces.
    pub(super) scopes: &'a [String],
    pub(super) siblings: Option<&'a Siblings>,
    pub(super) lease_fence: LeaseFence,
    pub(super) allowed_fields: AllowedFields,
    pub(super) runtime_classes: RuntimeClasses,
}

/// The handles that effects use.
struct Executor {
    identity: HolderIdentity,
    cluster: ClusterId,
    kubernetes: Kubernetes,
    state: Arc<ProcessState>,
    quorums: RunningQuorums,
    secrets: Secrets,
    siblings: Pods,
    /// The data for finding them, with the namespace of this release, where its node agents run, and the Lease of the
    /// coordinator; `None` if they are not followed.
    followed: Option<Siblings>,
    guards: GuardPods,
    /// The latest answers of the siblings, for the target tasks.
    sibling_answers: watch::Sender<Arc<Round>>,
    /// The coordinator, for the target tasks; `None` without an election.
    coordinator: watch::Sender<Option<CoordinatorView>>,
    tasks: Tasks,
    inbox: mpsc::Sender<Incoming>,
    failures: Failures,
    /// Receives the name of each quorum whose object is gone.
    gone: Option<mpsc::UnboundedSender<String>>,
    /// Whether the process is to end.
    ends: bool,
}

/// The clients of the API server, and the state that their requests share.
struct Kubernetes {
    clients: Clients,
    shared: Arc<Shared>,
    reader: Reader,
    rate_limiter: Arc<RateLimiter>,
    events: Events,
}

/// The running tasks, all outside of the index.
#[derive(Default)]
struct Tasks {
    targets: BTreeMap<ObjectKey, Handle>,
    readings: Readings,
    /// The status writes in flight.
    writes: Jobs<Input>,
    jobs: Jobs<Input>,
}

impl Core {
    pub(super) fn new(setup: Setup<'_>) -> Self {
        let (scopes, siblings) = (setup.scopes, setup.siblings);
        let release = siblings.map(|siblings| (&*siblings.namespace, &*siblings.selector));
        let me = Replica {
            identity: setup.identity.clone(),
            cluster: setup.cluster.clone(),
            scope: Scope::of(scopes),
            in_use: InUseFinalizer::new(release, scopes),
            follows_siblings: siblings.is_some(),
            coordinates: siblings.and_then(Siblings::coordination).is_some(),
            copy: setup.copy,
        };
        let shared = Shared::new(
            setup.clients.work.clone(),
            setup.lease_fence,
            setup.allowed_fields,
        );
        let shared = Arc::new(shared.with_runtime_classes(setup.runtime_classes));
        let reader = Reader {
            client: setup.clients.work.clone(),
            shared: shared.clone(),
            rate_limiter: setup.rate_limiter.clone(),
            turns: Arc::new(Semaphore::new(1)),
        };
        let kubernetes = Kubernetes {
            clients: setup.clients,
            shared,
            reader,
            rate_limiter: setup.rate_limiter,
            events: setup.events,
        };
        let executor = Executor {
            identity: setup.identity,
            cluster: setup.cluster,
            kubernetes,
            state: setup.state,
            quorums: setup.quorums,
            secrets: Secrets::default(),
            siblings: Pods::new(siblings.map(|siblings| &*siblings.own)),
            followed: siblings.cloned(),
            guards: GuardPods::default(),
            sibling_answers: watch::Sender::default(),
            coordinator: watch::Sender::default(),
            tasks: Tasks::default(),
            inbox: setup.inbox,
            failures: Failures::default(),
            gone: None,
            ends: false,
        };
        Self {
            index: Index::new(me, scopes, fastrand::u64(..)),
            executor,
        }
    }

    /// Sends the name of each quorum whose object is deleted from now on to `gone`.
    pub(super) fn report_gone(&mut self, gone: mpsc::UnboundedSender<String>) {
        self.executor.gone = Some(gone);
    }

    /// Runs until the index decides that the process ends. Cancel safe between two events.
    ///
    /// # Errors
    /// Returns an error if a task of a quorum ends unexpectedly.
    pub(super) async fn run(
        &mut self,
        incoming: &mut mpsc::Receiver<Incoming>,
        changes: &mut mpsc::UnboundedReceiver<Change>,
    ) -> Result<(), QuorumEnded> {
        let mut tick = time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut arrived, mut changed) = (Vec::with_capacity(AT_ONCE), Vec::with_capacity(AT_ONCE));
        while !self.executor.ends {
            let executor = &mut self.executor;
            let inputs = tokio::select! {
                // Changes of leases come first: people and other controllers wait for the statuses that report them.
                biased;
                _ = changes.recv_many(&mut changed, AT_ONCE) => changed.drain(..).map(Input::Lease).collect(),
                Some(end) = executor.tasks.writes.ended() => vec![end],
                end = executor.quorums.ended() => vec![Input::QuorumClosed(end?)],
                Some(end) = executor.tasks.jobs.ended() => vec![executor.ended(end)],
                _ = tick.tick() => executor.tick(),
                _ = incoming.recv_many(&mut arrived, AT_ONCE) => {
                    arrived.drain(..).filter_map(|one| executor.translate(one)).collect()
                }
            };
            self.turn(inputs);
        }
        Ok(())
    }

    /// Passes the inputs to the index and performs its effects.
    fn turn(&mut self, mut inputs: Vec<Input>) {
        loop {
            let started = clock::now();
            for input in inputs {
                self.index.handle(input, &world(&self.executor));
            }
            self.index.settle(&world(&self.executor));
            let effects = self.index.take_effects();
            if effects.iter().any(|effect| matches!(effect, Effect::Publish(_))) {
                let took = clock::now().since(started);
                self.executor.state.telemetry.reconciled("kubernetes", "ok", took);
            }
            inputs = self.execute(effects);
            // Writes that exceed their share of the rate limit wait for the next tick.
            while self.executor.kubernetes.rate_limiter.may_report(clock::now())
                && self.index.write_next(&world(&self.executor))
            {
                self.executor.kubernetes.rate_limiter.count_report(clock::now());
            }
            let effects = self.index.take_effects();
            inputs.extend(self.execute(effects));
            if inputs.is_empty() {
                return;
            }
        }
    }

    /// Performs the effects and returns the results of those that end at once.
    fn execute(&mut self, effects: Vec<Effect>) -> Vec<Input> {
        let ends = effects
            .into_iter()
            .filter_map(|effect| self.executor.execute(effect));
        ends.collect()
    }
}

/// Returns the current time and the views of the executor.
fn world(executor: &Executor) -> World<'_> {
    World {
        now: clock::now(),
        unix: clock::unix_time(),
        views: executor,
    }
}

impl Executor {
    fn translate(&mut self, incoming: Incoming) -> Option<Input> {
        Some(match incoming {
            Incoming::Lock(scope, observation) => {
                let what = match &*scope {
                    "" => "LeaderLocks".to_owned(),
                    scope => format!("LeaderLocks of namespace {scope}"),
                };
                self.report_failure(&what, &observation);
                Input::Lock(scope, observation)
            }
            Incoming::Quorum(observation) => {
                self.report_failure("RedisQuorums", &observation);
                Input::Quorum(observation)
            }
            Incoming::Sibling(observation) => {
                self.report_failure("the pods of the operator", &observation);
                self.siblings.observe(&observation, clock::now());
                return None;
            }
            Incoming::Coordinator(observation) => {
                self.report_failure("the Lease of the coordinator", &observation);
                Input::Coordinator(observation)
            }
            Incoming::NodeGuard(part, observation) => {
                self.report_failure(&format!("the pods of the {part}"), &observation);
                Input::NodeGuards(self.guards.observe(part, &observation))
            }
            Incoming::Secret(key, observation) => {
                return self
                    .secrets
                    .observe(&key, observation)
                    .then_some(Input::SecretsChanged);
            }
            Incoming::Report(report) => Input::Report(report),
            Incoming::Template(read) => Input::Template(read),
        })
    }

    fn report_failure<K>(&mut self, what: &str, observation: &Observation<K>) {
        if let Observation::Failed(trouble) = observation
            && self.failures.is_news(what, &trouble.text, clock::now())
        {
            tracing::warn!(
                reason = trouble.text,
                "{what} cannot be watched now; the last known state stays in force"
            );
        }
    }

    /// Passes the answers on to the target tasks, which use the same answers as the index.
    fn ended(&self, end: Input) -> Input {
        if let Input::SiblingsAnswered(round) = &end
            && !round.is_heartbeat()
        {
            self.sibling_answers.send_replace(Arc::new(round.clone()));
        }
        end
    }

    fn tick(&self) -> Vec<Input> {
        let targets = self.tasks.targets.iter();
        let broken = targets.filter(|(_, task)| task.is_broken());
        let broken = broken.map(|(key, _)| Input::TargetTaskEnded(key.clone()));
        broken.chain([Input::Tick]).collect()
    }
}
