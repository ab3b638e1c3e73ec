//! The kubelets of all nodes: start and stop the processes of pods, and report them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan, ControllerWriter, PodTimes, StopBehaviour,
    nodes::Nodes,
    object::{
        Condition, FieldPath, annotation, condition, count, is_deleting, is_pod_over, is_true, later,
        status_of, text, uid, written,
    },
    pod_process::{PodDelays, PodProcess, grace},
};

/// Set to `false`, it makes the readiness probe of a pod fail.
const READY: &str = "world/ready";

/// The last report about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodReport {
    Waiting,
    Running {
        ready: bool,
        restarts: u32,
    },
    /// `None` if no container was ever started.
    Ended {
        exit_code: Option<i64>,
    },
}

/// The processes of the pods by their UID.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    pub(super) processes: BTreeMap<String, PodProcess>,
}

impl Kubelet {
    pub(super) fn reconcile(
        &mut self,
        objects: &dyn ClusterObjects,
        nodes: &Nodes,
        times: &PodTimes,
        random: &mut fastrand::Rng,
        now: Timestamp,
    ) -> ControllerPlan {
        let mut plan = ControllerPlan::default();
        let pods = objects.list("Pod");
        for pod in &pods {
            let node = text(pod, "/spec/nodeName");
            if nodes.lost.contains_key(node) {
                continue;
            }
            if node.is_empty() {
                // The API server removes such a pod at once; the pod garbage collector removes one that is left.
                if is_deleting(pod) {
                    plan.remove_pod(ControllerWriter::ControllerManager, pod);
                }
                continue;
            }
            self.sync(pod, times, random, now, &mut plan);
        }
        let known: BTreeSet<&str> = pods.iter().map(|pod| uid(pod)).collect();
        self.forget(&known, nodes, times, random, now);
        let connected = |process: &&PodProcess| !nodes.lost.contains_key(&process.node);
        let next = self
            .processes
            .values()
            .filter(connected)
            .filter_map(|process| process.next(now));
        if let Some(next) = next.min() {
            plan.wake_at(next);
        }
        plan
    }

    fn sync(
        &mut self,
        pod: &Value,
        times: &PodTimes,
        random: &mut fastrand::Rng,
        now: Timestamp,
        plan: &mut ControllerPlan,
    ) {
        let kubelet = || ControllerWriter::Kubelet(text(pod, "/spec/nodeName").to_owned());
        let known = self.processes.get_mut(uid(pod));
        let process = match known {
            Some(process) => process,
            None if is_pod_over(pod) => {
                // Its processes have ended before this kubelet knew the pod.
                if is_deleting(pod) {
                    plan.remove_pod(kubelet(), pod);
                }
                return;
            }
            None => {
                let process = PodProcess::new(pod, delays(times, random), now);
                self.processes.entry(uid(pod).to_owned()).or_insert(process)
            }
        };
        if is_deleting(pod) {
            let default = i64::try_from(process.grace().as_secs()).unwrap_or(30);
            let grace = grace(pod, "/metadata/deletionGracePeriodSeconds", default);
            process.stop(Some(pod), grace, || stop_time(times, grace, random), now);
        } else if process.is_crashed(now) && !is_pod_over(pod) {
            process.restart(delays(times, random), now);
        }
        let report = report(process, pod, now);
        let before = plan.writes.len();
        if reported(pod) != Some(report) {
            plan.update_status("Pod", pod, status(pod, process, report, now));
            plan.writes
                .iter_mut()
                .skip(before)
                .for_each(|(writer, _)| *writer = kubelet());
        }
        let is_reported = plan.writes.len() == before;
        let removed = process.end().map(|end| later(end.at, process.removal));
        if is_reported && is_deleting(pod) && removed.is_some_and(|removed| removed <= now) {
            plan.remove_pod(kubelet(), pod);
        }
    }

    /// Stops the processes of pods that were removed from the API server while they ran, and forgets those that have
    /// ended. The processes on a lost node run on.
    fn forget(
        &mut self,
        known: &BTreeSet<&str>,
        nodes: &Nodes,
        times: &PodTimes,
        random: &mut fastrand::Rng,
        now: Timestamp,
    ) {
        self.processes.retain(|uid, process| {
            if known.contains(uid.as_str()) {
                return true;
            }
            if !nodes.lost.contains_key(&process.node) {
                let grace = process.grace();
                process.stop(None, grace, || stop_time(times, grace, random), now);
            }
            !process.has_ended(now)
        });
    }
}

fn delays(times: &PodTimes, random: &mut fastrand::Rng) -> PodDelays {
    PodDelays {
        startup: times.startup.pick(random),
        readiness: times.readiness.pick(random),
        removal: times.removal.pick(random),
    }
}

fn stop_time(times: &PodTimes, grace: Duration, random: &mut fastrand::Rng) -> Duration {
    match times.stop {
        StopBehaviour::AtOnce => times.at_once.pick(random),
        StopBehaviour::WholeGrace => Duration::MAX,
        StopBehaviour::Random => grace.mul_f64(random.f64()),
    }
}

fn report(process: &PodProcess, pod: &Value, now: Timestamp) -> PodReport {
    match process.end().filter(|end| end.at <= now) {
        Some(end) => {
            let started = process.starts < end.at || process.restarts > 0;
            PodReport::Ended {
                exit_code: started.then_some(end.exit_code),
            }
        }
        None if process.starts > now && process.restarts == 0 => PodReport::Waiting,
        None => PodReport::Running {
            restarts: process.restarts,
            ready: process.readies <= now && annotation(pod, READY) != Some("false"),
        },
    }
}

/// Returns what the status of a pod reports.
fn reported(pod: &Value) -> Option<PodReport> {
    let ready = condition(pod.get("status"), "ContainersReady");
    match text(pod, "/status/phase") {
        "Running" => {
            let (ready, containers) = (is_true(pod, "Ready"), is_true(pod, "ContainersReady"));
            let restarts = count(pod, "/status/containerStatuses/0/restartCount");
            let restarts = u32::try_from(restarts).unwrap_or(0);
            (ready == containers).then_some(PodReport::Running { ready, restarts })
        }
        "Succeeded" | "Failed" => {
            let by_kubelet = |ready: &&Value| {
                let reason = ready["reason"].as_str().unwrap_or_default();
                matches!(reason, "PodCompleted" | "PodFailed")
            };
            ready.filter(by_kubelet)?;
            let state = pod.at("/status/containerStatuses/0/state");
            let code = state.and_then(|state| state.at("/terminated/exitCode"));
            Some(PodReport::Ended {
                exit_code: code.and_then(Value::as_i64),
            })
        }
        "Unknown" => None,
        _ => ready.map(|_| PodReport::Waiting),
    }
}

fn status(pod: &Value, process: &PodProcess, report: PodReport, now: Timestamp) -> Value {
    let mut status = status_of(pod);
    if status["startTime"].is_null() {
        status["startTime"] = json!(written(now));
        status["hostIP"] = json!("10.0.0.1");
    }
    let (phase, ready, reason) = match report {
        PodReport::Waiting => ("Pending", false, "ContainersNotReady"),
        PodReport::Running { ready: true, .. } => ("Running", true, ""),
        PodReport::Running { ready: false, .. } => ("Running", false, "ContainersNotReady"),
        PodReport::Ended { exit_code: Some(0) } => ("Succeeded", false, "PodCompleted"),
        PodReport::Ended { .. } => ("Failed", false, "PodFailed"),
    };
    status["phase"] = json!(phase);
    if phase == "Running" && status["podIP"].is_null() {
        status["podIP"] = json!(address(uid(pod)));
    }
    let conditions = [
        Condition::new("PodScheduled", true, "", ""),
        Condition::new("Initialized", true, "", ""),
        Condition::new("ContainersReady", ready, reason, ""),
        Condition::new("Ready", ready, reason, ""),
    ];
    for condition in conditions {
        condition.set(&mut status, now);
    }
    status["containerStatuses"] = containers(pod, process, report);
    status
}

fn containers(pod: &Value, process: &PodProcess, report: PodReport) -> Value {
    let started = written(process.starts);
    let (state, ready, has_id) = match report {
        PodReport::Waiting => (json!({"waiting": {"reason": "ContainerCreating"}}), false, false),
        PodReport::Running { ready, .. } => (json!({"running": {"startedAt": started}}), ready, true),
        PodReport::Ended { exit_code: None } => {
            (json!({"waiting": {"reason": "ContainerCreating"}}), false, false)
        }
        PodReport::Ended {
            exit_code: Some(exit_code),
        } => {
            let end = process.end().map(|end| written(end.at));
            let reason = if exit_code == 0 { "Completed" } else { "Error" };
            let terminated =
                json!({"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": end});
            (json!({"terminated": terminated}), false, true)
        }
    };
    let all = pod.at("/spec/containers").and_then(Value::as_array);
    let container = |container: &Value| {
        let container_name = text(container, "/name");
        let mut status = json!({
            "name": container_name,
            "image": text(container, "/image"),
            "imageID": "",
            "ready": ready,
            "started": ready || matches!(report, PodReport::Running { .. }),
            "restartCount": process.restarts,
            "state": state.clone(),
        });
        if has_id {
            status["containerID"] = json!(format!("containerd://{}-{container_name}", uid(pod)));
        }
        status
    };
    all.into_iter().flatten().map(container).collect()
}

/// Returns an address that depends on the UID only.
fn address(uid: &str) -> String {
    let sum = uid.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let [_, high, low, last] = sum.to_be_bytes();
    format!("10.{high}.{low}.{last}")
}
