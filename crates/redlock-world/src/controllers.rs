//! The controllers of a cluster: workloads, pods and garbage.
//!
//! [`Controllers::reconcile`] reads objects and returns writes. It keeps only timers, the processes of pods and the state
//! of its random generator, so equal calls have equal answers. The caller calls it after each change and at the time that
//! it returns, applies the writes in their order, and calls it again until it returns none. At rest it returns none. A
//! write that had no effect is computed again; see [`Controllers::refused`].
//!
//! The API server is expected to assign UIDs, versions, generations and creation times; to set `deletionTimestamp` and
//! `deletionGracePeriodSeconds`; to remove a pod at once that has no node; to set the finalizers `orphan` and
//! `foregroundDeletion` for the propagation policies; and to remove an object that is being deleted with its last
//! finalizer.

mod cron_job;
mod cron_schedule;
mod daemon_set;
mod deployment;
mod garbage;
mod job;
mod kubelet;
mod namespaces;
mod nodes;
mod object;
mod pod_process;
mod pod_template;
mod replica_set;
mod scheduler;
mod selector;
mod settings;
mod stateful_set;
mod worker;
mod write;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use job::CountedPods;
use kubelet::Kubelet;
use nodes::Nodes;
use scheduler::Scheduler;
use worker::{Turn, Worker};

pub use settings::{ControllerSettings, DelayRange, PodTimes, StopBehaviour};
use write::ControllerPlan;
pub use write::{ControllerWrite, ControllerWriter, PlannedWrite, Propagation};

/// Read access to the objects of a cluster.
pub trait ClusterObjects {
    /// Returns all objects of a kind, such as `Deployment`, in the order of namespace and name.
    fn list(&self, kind: &str) -> Vec<Arc<Value>>;

    /// Returns all kinds that the API server serves, also those without objects, except Events.
    fn kinds(&self) -> Vec<String>;

    /// Returns a number that grows with each change of any object; `None` if it is not known, so the objects are read
    /// at each call.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Like `revision`, for the objects of one kind.
    fn revision_of(&self, _kind: &str) -> Option<u64> {
        None
    }
}

/// A controller that can be stopped and started by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    GarbageCollector,
    Namespace,
    NodeLifecycle,
    Scheduler,
    /// The kubelets of all nodes. For one node, see [`Controllers::lose_node`].
    Kubelet,
}

impl ControllerKind {
    pub const ALL: [Self; 11] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::CronJob,
        Self::GarbageCollector,
        Self::Namespace,
        Self::NodeLifecycle,
        Self::Scheduler,
        Self::Kubelet,
    ];

    /// Reports whether it is part of kube-controller-manager.
    pub fn is_of_manager(self) -> bool {
        !matches!(self, Self::Scheduler | Self::Kubelet)
    }

    /// Returns the kinds of objects that it reads; `None` if it reads all.
    const fn reads(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Deployment => Some(&["Deployment", "ReplicaSet", "Pod"]),
            Self::ReplicaSet => Some(&["ReplicaSet", "Pod"]),
            Self::StatefulSet => Some(&["StatefulSet", "Pod", "PersistentVolumeClaim"]),
            Self::DaemonSet => Some(&["DaemonSet", "Pod"]),
            Self::Job => Some(&["Job", "Pod"]),
            Self::CronJob => Some(&["CronJob", "Job"]),
            Self::GarbageCollector | Self::Namespace => None,
            Self::NodeLifecycle | Self::Scheduler | Self::Kubelet => Some(&["Pod"]),
        }
    }
}

/// The writes of one call, in order.
#[derive(Debug, Default)]
pub struct Reconciled {
    pub writes: Vec<PlannedWrite>,
    /// The time of the next call at the latest; `None` if only a change of the objects needs one.
    pub next: Option<Timestamp>,
}

/// A pod whose processes run on a node, also if the API server no longer has the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
}

/// All controllers, the scheduler and the kubelets of one cluster.
#[derive(Debug)]
pub struct Controllers {
    settings: ControllerSettings,
    random: fastrand::Rng,
    workers: BTreeMap<ControllerKind, Worker>,
    nodes: Nodes,
    counted: CountedPods,
    scheduler: Scheduler,
    kubelet: Kubelet,
}

impl Controllers {
    pub fn new(settings: ControllerSettings, seed: u64) -> Self {
        Self {
            nodes: Nodes {
                names: settings.nodes.clone(),
                lost: BTreeMap::new(),
            },
            settings,
            random: fastrand::Rng::with_seed(seed),
            workers: ControllerKind::ALL
                .into_iter()
                .map(|kind| (kind, Worker::default()))
                .collect(),
            counted: CountedPods::default(),
            scheduler: Scheduler::default(),
            kubelet: Kubelet::default(),
        }
    }

    /// Returns the writes of the controllers now, and the time at which they must be called again without a change.
    pub fn reconcile(&mut self, objects: &dyn ClusterObjects, now: Timestamp) -> Reconciled {
        let mut reconciled = Reconciled::default();
        for kind in ControllerKind::ALL {
            let revision = revision(objects, kind);
            let turn = self.worker(kind).turn(revision, now);
            let turn = match turn {
                Turn::Decide => {
                    let plan = self.decide(kind, objects, now);
                    let (settings, random) = (&self.settings, &mut self.random);
                    let delayed = kind != ControllerKind::Kubelet;
                    let pick = |range: &DelayRange, random: &mut fastrand::Rng| {
                        if delayed {
                            range.pick(random)
                        } else {
                            std::time::Duration::ZERO
                        }
                    };
                    let worker = self.workers.entry(kind).or_default();
                    worker.decided(plan, revision, now, |reaction| {
                        pick(
                            if reaction {
                                &settings.reaction
                            } else {
                                &settings.latency
                            },
                            random,
                        )
                    })
                }
                turn @ (Turn::Write(_) | Turn::Wait(_)) => turn,
            };
            let next = match turn {
                Turn::Write(writes) => {
                    let planned = |(writer, write)| PlannedWrite {
                        by: kind,
                        writer,
                        write,
                    };
                    reconciled.writes.extend(writes.into_iter().map(planned));
                    Some(object::later(now, self.settings.retry))
                }
                Turn::Wait(next) => next,
                Turn::Decide => None,
            };
            reconciled.next = [reconciled.next, next].into_iter().flatten().min();
        }
        reconciled
    }

    fn worker(&mut self, kind: ControllerKind) -> &mut Worker {
        self.workers.entry(kind).or_default()
    }

    fn decide(
        &mut self,
        kind: ControllerKind,
        objects: &dyn ClusterObjects,
        now: Timestamp,
    ) -> ControllerPlan {
        let random = &mut self.random;
        match kind {
            ControllerKind::Deployment => deployment::reconcile(objects, now),
            ControllerKind::ReplicaSet => replica_set::reconcile(objects, random),
            ControllerKind::StatefulSet => stateful_set::reconcile(objects),
            ControllerKind::DaemonSet => daemon_set::reconcile(objects, &self.nodes.names, random),
            ControllerKind::Job => job::reconcile(objects, &mut self.counted, random, now),
            ControllerKind::CronJob => cron_job::reconcile(objects, now),
            ControllerKind::GarbageCollector => garbage::reconcile(objects),
            ControllerKind::Namespace => namespaces::reconcile(objects),
            ControllerKind::NodeLifecycle => self.nodes.reconcile(objects, now),
            ControllerKind::Scheduler => {
                let (nodes, delay) = (self.nodes.ready(now), &self.settings.pods.scheduling);
                self.scheduler
                    .reconcile(objects, &nodes, || delay.pick(random), now)
            }
            ControllerKind::Kubelet => {
                let times = &self.settings.pods;
                self.kubelet.reconcile(objects, &self.nodes, times, random, now)
            }
        }
    }

    /// Delays the next decision of a controller, since a write of it was refused: the API server is away, or forbids the
    /// write. A conflict, or an object that is gone, needs no call; the controller decides again at once.
    pub fn refused(&mut self, kind: ControllerKind, now: Timestamp) {
        let until = object::later(now, self.settings.retry);
        self.worker(kind).back_off(until);
    }

    /// Stops a controller. Its writes that are on their way are lost.
    pub fn stop(&mut self, kind: ControllerKind) {
        self.worker(kind).stop();
    }

    /// Starts a controller that was stopped; it reads all objects.
    pub fn start(&mut self, kind: ControllerKind) {
        self.worker(kind).start();
    }

    /// Cuts a node off from the API server: its processes run on, and nothing is reported or stopped.
    pub fn lose_node(&mut self, node: &str, now: Timestamp) {
        self.nodes.lost.entry(node.to_owned()).or_insert(now);
        self.refresh();
    }

    /// Ends all processes of a node, which is lost from then on. A kubelet restarts the containers of a pod with
    /// `restartPolicy: Always` once the node is back.
    pub fn crash_node(&mut self, node: &str, now: Timestamp) {
        let here = self
            .kubelet
            .processes
            .values_mut()
            .filter(|process| process.node == node);
        here.for_each(|process| process.kill(now));
        self.lose_node(node, now);
    }

    /// Ends the processes of one pod, as a crash does. Returns false if they do not run.
    pub fn crash_pod(&mut self, uid: &str, now: Timestamp) -> bool {
        let process = self
            .kubelet
            .processes
            .get_mut(uid)
            .filter(|process| process.runs(now));
        let Some(process) = process else { return false };
        process.kill(now);
        self.worker(ControllerKind::Kubelet).refresh();
        true
    }

    /// Connects a lost node again.
    pub fn return_node(&mut self, node: &str) {
        self.nodes.lost.remove(node);
        self.refresh();
    }

    /// Changes the time that pods need to stop.
    pub fn set_stop_behaviour(&mut self, stop: StopBehaviour) {
        self.settings.pods.stop = stop;
    }

    /// Returns the pods whose processes run now, on lost nodes and of removed pods included.
    pub fn running_pods(&self, now: Timestamp) -> impl Iterator<Item = RunningPod> + '_ {
        let running = self
            .kubelet
            .processes
            .iter()
            .filter(move |(_, process)| process.runs(now));
        running.map(|(uid, process)| RunningPod {
            namespace: process.namespace.clone(),
            name: process.name.clone(),
            uid: uid.clone(),
            node: process.node.clone(),
        })
    }

    /// Makes every controller read all objects again.
    fn refresh(&mut self) {
        self.workers.values_mut().for_each(Worker::refresh);
    }
}

/// Returns the revision of the objects that a controller reads.
fn revision(objects: &dyn ClusterObjects, kind: ControllerKind) -> Option<u64> {
    match kind.reads() {
        Some(kinds) => kinds.iter().map(|kind| objects.revision_of(kind)).sum(),
        None => objects.revision(),
    }
}

#[cfg(test)]
mod tests;
