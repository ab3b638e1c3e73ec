//! Runs one simulated cluster: its API server, its controllers and the replicas of the operator in its pods.

mod operations;
mod work;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use redlock_world::{
    control_plane::reconcile,
    controllers::{ControllerKind, ControllerSettings, Controllers, RunningPod},
    kubernetes::{ApiOptions, ApiServer, DeleteOptions, LatencyRange, ObjectKey, ResourceId},
    network::Network,
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle, time};

use super::{
    candidate::LeaderCandidate,
    manifests::{self, NAMESPACE, OPERATOR_NAMESPACE, OTHER_NAMESPACE},
    observer::is_condition_true,
    replica::{OperatorProcess, ReplicaPod},
};
use crate::{clock, controller::events::timestamp_at};

/// The user of the world at the API servers.
pub(super) const USER: &str = "kubectl";

/// One cluster. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ClusterWorld {
    pub(super) name: String,
    /// The name that the operator is given.
    declared_name: String,
    pub(super) api: ApiServer,
    network: Network,
    state: Arc<Mutex<ClusterState>>,
    /// The candidate of the Lease of a random world.
    candidate: LeaderCandidate,
    /// Notifies that the controllers have to be called although no object has changed.
    crashed: Arc<Notify>,
}

#[derive(Debug)]
struct ClusterState {
    controllers: Controllers,
    /// The processes of the operator, by the UIDs of their pods.
    operators: BTreeMap<String, OperatorProcess>,
    /// The number of processes of the operator started so far.
    started: u32,
}

pub(super) fn now() -> Timestamp {
    timestamp_at(clock::unix_time())
}

impl ClusterWorld {
    pub(super) fn new(name: &str, network: &Network, seed: u64) -> Self {
        Self::with_identity(name, name, network, seed)
    }

    /// Returns a cluster whose operator has the name, and whose namespace kube-system has the UID, of `original`.
    pub(super) fn with_identity(name: &str, original: &str, network: &Network, seed: u64) -> Self {
        let options = ApiOptions {
            cluster_uid: format!("uid-of-{original}"),
            namespaces: [OPERATOR_NAMESPACE, NAMESPACE, OTHER_NAMESPACE]
                .map(str::to_owned)
                .into(),
            ..ApiOptions::new(seed, now)
        };
        let state = ClusterState {
            controllers: Controllers::new(ControllerSettings::default(), seed),
            operators: BTreeMap::new(),
            started: 0,
        };
        let api = ApiServer::new(options);
        api.change_default_faults(|faults| {
            faults.latency = LatencyRange {
                min: Duration::from_millis(1),
                max: Duration::from_millis(6),
            };
            let delay = LatencyRange {
                min: Duration::ZERO,
                max: Duration::from_millis(30),
            };
            faults.watch_delays.insert("*".to_owned(), delay);
        });
        Self {
            name: name.to_owned(),
            declared_name: original.to_owned(),
            api,
            network: network.clone(),
            state: Arc::new(Mutex::new(state)),
            candidate: LeaderCandidate::default(),
            crashed: Arc::default(),
        }
    }

    /// Returns name and UID, as the masters show them.
    pub(super) fn id(&self) -> String {
        format!("{}/uid-of-{}", self.declared_name, self.declared_name)
    }

    pub(super) fn quorum(&self, name: &str) -> Option<Arc<Value>> {
        self.api
            .read(&ObjectKey::new(ResourceId::REDIS_QUORUMS, "", name))
    }

    /// Reports whether the status of a quorum holds the id under which its masters were sealed.
    pub(super) fn knows_quorum(&self, name: &str) -> bool {
        self.quorum(name)
            .is_some_and(|object| object["status"]["quorumId"].is_string())
    }

    /// Returns the reasons of the events.
    pub(super) fn events(&self) -> Vec<String> {
        let events = self.api.all(&ResourceId::EVENTS);
        let reasons = events.iter().map(|event| event["reason"].as_str());
        reasons.flatten().map(str::to_owned).collect()
    }

    /// Returns the clusters that the status of a quorum lists.
    pub(super) fn reporters(&self, quorum: &str) -> Vec<String> {
        let status = self
            .quorum(quorum)
            .map(|object| object["status"]["reporters"].clone());
        let reporters = status.as_ref().and_then(serde_json::Value::as_array);
        let names = reporters
            .into_iter()
            .flatten()
            .map(|reporter| &reporter["cluster"]);
        names.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the controllers and the processes of the pods until the task is aborted.
    pub(super) fn run(&self) -> JoinHandle<()> {
        let cluster = self.clone();
        tokio::spawn(async move {
            loop {
                let seen = cluster.api.revision();
                let next = cluster.turn();
                let pause = next.map_or(Duration::from_secs(60), |at| {
                    Duration::try_from(at.duration_since(now())).unwrap_or_default()
                });
                // A zero timer would not let the clock advance.
                let pause = pause.max(Duration::from_millis(1));
                tokio::select! {
                    biased;
                    _ = cluster.api.changed(seen) => {}
                    () = cluster.crashed.notified() => {}
                    () = time::sleep(pause) => {}
                }
            }
        })
    }

    /// Runs a candidate of a Lease until the task is aborted.
    pub(super) fn run_candidate(&self, lease: &str) -> JoinHandle<()> {
        self.candidate.run(&self.api, &self.name, lease)
    }

    /// Lets the controllers write, and starts and ends the processes of operators.
    fn turn(&self) -> Option<Timestamp> {
        let mut state = self.state();
        let (_, next) = reconcile(&self.api, &mut state.controllers, now());
        self.follow_operators(&mut state);
        next
    }

    fn follow_operators(&self, state: &mut ClusterState) {
        let running: BTreeMap<String, RunningPod> = state
            .controllers
            .running_pods(now())
            .filter(|pod| pod.namespace == OPERATOR_NAMESPACE)
            .map(|pod| (pod.uid.clone(), pod))
            .collect();
        let mut ended = Vec::new();
        for (uid, pod) in &running {
            let key = ObjectKey::new(ResourceId::PODS, &*pod.namespace, &*pod.name);
            let object = self.api.read(&key);
            let deleted = object
                .as_ref()
                .is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
            match state.operators.get(uid) {
                Some(operator) if operator.has_ended() => ended.push(uid.clone()),
                Some(operator) if deleted => operator.terminate(),
                Some(_) => {}
                None => {
                    let ip = object.as_ref().and_then(|pod| pod["status"]["podIP"].as_str());
                    if let Some(ip) = ip.filter(|_| !deleted) {
                        state.started += 1;
                        let operator = self.start_operator(&pod.name, ip, state.started);
                        state.operators.insert(uid.clone(), operator);
                    }
                }
            }
        }
        for uid in ended {
            state.controllers.crash_pod(&uid, now());
            state.operators.remove(&uid);
            self.crashed.notify_one();
        }
        state.operators.retain(|uid, operator| {
            let runs = running.contains_key(uid);
            if !runs {
                operator.kill(&self.api);
            }
            runs
        });
    }

    fn start_operator(&self, name: &str, ip: &str, number: u32) -> OperatorProcess {
        let pod = ReplicaPod {
            cluster: self.declared_name.clone(),
            name: name.to_owned(),
            ip: ip.to_owned(),
        };
        // A process that is restarted in its pod has none of the faults of its predecessor.
        let party = self.network.party(&format!("{}/{name}#{number}", self.name));
        OperatorProcess::start(&pod, &party, &self.api, self.crashed.clone())
    }

    /// Returns the names of the operator's processes in the network.
    pub(super) fn operators(&self) -> Vec<String> {
        let state = self.state();
        let running = state.operators.values().filter(|operator| !operator.has_ended());
        running.map(|operator| operator.party.clone()).collect()
    }

    /// Returns the UIDs of the operator's pods by the names of their processes.
    pub(super) fn operator_pods(&self) -> BTreeMap<String, String> {
        let state = self.state();
        let operators = state.operators.iter();
        operators
            .map(|(uid, operator)| (operator.party.clone(), uid.clone()))
            .collect()
    }

    /// Reports whether the operator has pods, and each of them has a process and is ready.
    pub(super) fn are_operators_ready(&self) -> bool {
        let mut pods = self.api.all(&ResourceId::PODS);
        pods.retain(|pod| pod["metadata"]["namespace"] == OPERATOR_NAMESPACE);
        !pods.is_empty()
            && self.operators().len() == pods.len()
            && pods.iter().all(|pod| is_condition_true(pod, "Ready"))
    }

    /// Ends the processes of a pod at once; the kubelet starts them again.
    pub(super) fn crash_pod(&self, uid: &str) {
        let mut state = self.state();
        state.controllers.crash_pod(uid, now());
        if let Some(operator) = state.operators.remove(uid) {
            operator.kill(&self.api);
        }
        self.crashed.notify_one();
    }

    /// Deletes a pod of the operator, which gets its grace period.
    pub(super) fn delete_operator_pod(&self, name: &str) {
        let key = ObjectKey::new(ResourceId::PODS, OPERATOR_NAMESPACE, name);
        // The pod may be gone.
        let _ = self.api.delete(USER, &key, &DeleteOptions::default());
    }

    /// Replaces all pods of the operator, one after the other.
    pub(super) fn roll_out_operator(&self, version: u32) {
        let key = ObjectKey::new(ResourceId::DEPLOYMENTS, OPERATOR_NAMESPACE, manifests::OPERATOR);
        let annotations = json!({ "version": version.to_string() });
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        self.api.merge(USER, &key, patch).unwrap();
    }

    /// Ends the faults of a process at the API server.
    pub(super) fn heal_api(&self, operator: &str) {
        let healthy = self.api.faults("nobody");
        self.api.change_faults(operator, |faults| *faults = healthy);
        self.api.break_connections(operator);
    }

    /// Returns the declared number of pods of a workload.
    pub(super) fn replicas(&self, workload: &str) -> Option<u64> {
        let object = self.api.read(&manifests::deployment_key(workload))?;
        object["spec"]["replicas"].as_u64()
    }

    /// Installs the operator and a quorum.
    pub(super) fn install(&self, replicas: u32, quorums: &[(&str, &[(String, String)])]) {
        for (name, masters) in quorums {
            let quorum = manifests::quorum(name, masters);
            self.api.create(USER, &ResourceId::REDIS_QUORUMS, quorum).unwrap();
        }
        self.api
            .create(USER, &ResourceId::DEPLOYMENTS, manifests::operator(replicas))
            .unwrap();
    }

    /// Starts or stops a controller of the cluster.
    pub(super) fn set_controller(&self, kind: ControllerKind, runs: bool) {
        let controllers = &mut self.state().controllers;
        if runs {
            controllers.start(kind);
        } else {
            controllers.stop(kind);
        }
        self.crashed.notify_one();
    }
}
