//! The metrics of a node agent: the pods of its node, as the agent reports them at the scrape.

use prometheus::{Registry, TextEncoder};
use redlock_node::agent::{BOUNDS, Latency, PodReport, Report, ReportedState};

use super::{
    process_families,
    text::{Text, labels},
};
use crate::lease::BootInstant;

/// The states of `redlock_fence_state`. A pod that is about to start or was refused counts as waiting.
const STATES: [ReportedState; 7] = [
    ReportedState::Waiting,
    ReportedState::Running,
    ReportedState::Frozen,
    ReportedState::NotFrozen,
    ReportedState::Unconfirmed,
    ReportedState::Killed,
    ReportedState::Released,
];

/// All metrics of a node agent.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    registry: Registry,
}

impl NodeMetrics {
    /// # Errors
    /// Returns an error if the library does not accept a metric.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process))?;
        Ok(Self { registry })
    }

    /// Returns the text of one scrape.
    ///
    /// # Errors
    /// Returns an error if the library cannot write a metric.
    pub(crate) fn scrape(&self, report: &Report, now: BootInstant) -> Result<String, prometheus::Error> {
        let mut text = Text::new(TextEncoder::new().encode_to_string(&self.registry.gather())?);
        process_families(&mut text, "node-agent");
        pods(&mut text, &report.pods);
        node(&mut text, report, now);
        latency(&mut text, &report.latency);
        Ok(text.into_string())
    }
}

fn pods(text: &mut Text, pods: &[PodReport]) {
    let name = "redlock_fence_permit_seconds";
    text.family(
        name,
        "gauge",
        "Time until the permit of a pod ends; 0 without one.",
    );
    for pod in pods {
        text.sample(name, &of(pod), pod.permit.unwrap_or_default().as_secs_f64());
    }
    let name = "redlock_fence_state";
    text.family(name, "gauge", "1 for the present state of a pod.");
    for pod in pods {
        for state in STATES {
            let labels = format!("{},{}", of(pod), labels(&[("state", state.name())]));
            text.sample(name, &labels, u8::from(shown(pod.state) == state));
        }
    }
    let name = "redlock_fence_guarded";
    text.family(
        name,
        "gauge",
        "1 if the node guardian has acknowledged the record of a pod, and both processes of the node can freeze it.",
    );
    for pod in pods {
        text.sample(name, &of(pod), u8::from(pod.guarded));
    }
}

/// Writes the series of a node that `redlock doctor --fencing` reads.
fn node(text: &mut Text, report: &Report, now: BootInstant) {
    let guardian = report.guardian.as_ref().filter(|guardian| guardian.runs(now));
    let name = "redlock_fence_guardian_up";
    text.family(name, "gauge", "1 if the node guardian has reported within 3 s.");
    text.sample(name, "", u8::from(guardian.is_some()));
    let name = "redlock_fence_guardian_degraded";
    let about = "What the kernel refused to the node guardian: real-time scheduling, locked memory, a tmpfs. Absent without a guardian.";
    text.family(name, "gauge", about);
    if let Some(guardian) = guardian {
        text.sample(name, "", guardian.degraded.len());
    }
    let name = "redlock_fence_able";
    let about = "1 if the process can write to the cgroups of the node, and so freeze pods. Absent for a guardian that does not run.";
    text.family(name, "gauge", about);
    let agent = labels(&[("component", "node-agent")]);
    text.sample(name, &agent, u8::from(report.cannot_freeze.is_none()));
    if let Some(guardian) = guardian {
        let of_guardian = labels(&[("component", "node-guardian")]);
        text.sample(name, &of_guardian, u8::from(guardian.node_unable.is_none()));
    }
    let name = "redlock_fence_cgroup2";
    text.family(
        name,
        "gauge",
        "1 if the node uses cgroup v2. Absent where that cannot be read.",
    );
    if let Some(cgroup2) = report.cgroup2 {
        text.sample(name, "", u8::from(cgroup2));
    }
}

const fn shown(state: ReportedState) -> ReportedState {
    match state {
        ReportedState::Waiting
        | ReportedState::Confirming
        | ReportedState::Storing
        | ReportedState::Refused => ReportedState::Waiting,
        ReportedState::Running
        | ReportedState::Frozen
        | ReportedState::NotFrozen
        | ReportedState::Unconfirmed
        | ReportedState::Killed
        | ReportedState::Released => state,
    }
}

/// Returns the labels of a pod. The lock is in the namespace of the pod.
fn of(pod: &PodReport) -> String {
    let lock = pod.lock.split_once('/').map_or(&*pod.lock, |(_, name)| name);
    labels(&[
        ("pod_namespace", &pod.pod.namespace),
        ("pod", &pod.pod.name),
        ("lock", lock),
    ])
}

fn latency(text: &mut Text, latency: &Latency) {
    let name = "redlock_fence_latency_seconds";
    text.family(
        name,
        "histogram",
        "Time from the moment at which a freeze is due until it is written.",
    );
    let bucket = format!("{name}_bucket");
    let mut below = 0;
    for (bound, count) in BOUNDS.iter().zip(latency.counts) {
        below += count;
        let bound = bound.as_secs_f64().to_string();
        text.sample(&bucket, &labels(&[("le", &bound)]), below);
    }
    text.sample(&bucket, &labels(&[("le", "+Inf")]), latency.count);
    text.sample(&format!("{name}_sum"), "", latency.sum.as_secs_f64());
    text.sample(&format!("{name}_count"), "", latency.count);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_node::table::PodName;

    use super::*;

    #[test]
    fn a_scrape_shows_each_pod_with_its_state_and_its_permit() {
        let pod = |name: &str, state, permit| PodReport {
            pod: PodName {
                namespace: "team".to_owned(),
                name: name.to_owned(),
                uid: format!("uid-{name}"),
            },
            lock: "team/report".to_owned(),
            state,
            permit,
            guarded: state == ReportedState::Running,
        };
        let latency = Latency {
            counts: [1, 0, 2, 0, 0, 0, 0, 0],
            count: 4,
            sum: Duration::from_millis(500),
            max: Duration::from_millis(400),
        };
        let report = Report {
            pods: vec![
                pod("a", ReportedState::Running, Some(Duration::from_millis(1_500))),
                pod("b", ReportedState::Storing, None),
                pod("c", ReportedState::Released, None),
                pod("d", ReportedState::NotFrozen, None),
            ],
            quorums: Vec::new(),
            guardian: None,
            cgroup2: Some(true),
            cannot_freeze: Some("Read-only file system".to_owned()),
            latency,
        };
        let text = NodeMetrics::new()
            .unwrap()
            .scrape(&report, BootInstant::default())
            .unwrap();
        for line in [
            r#"redlock_fence_permit_seconds{pod_namespace="team",pod="a",lock="report"} 1.5"#,
            r#"redlock_fence_permit_seconds{pod_namespace="team",pod="b",lock="report"} 0"#,
            r#"redlock_fence_state{pod_namespace="team",pod="a",lock="report",state="running"} 1"#,
            r#"redlock_fence_state{pod_namespace="team",pod="a",lock="report",state="frozen"} 0"#,
            r#"redlock_fence_state{pod_namespace="team",pod="b",lock="report",state="waiting"} 1"#,
            r#"redlock_fence_state{pod_namespace="team",pod="c",lock="report",state="released"} 1"#,
            r#"redlock_fence_guarded{pod_namespace="team",pod="b",lock="report"} 0"#,
            r#"redlock_fence_latency_seconds_bucket{le="0.0001"} 1"#,
            r#"redlock_fence_latency_seconds_bucket{le="0.001"} 3"#,
            r#"redlock_fence_latency_seconds_bucket{le="+Inf"} 4"#,
            r#"redlock_fence_state{pod_namespace="team",pod="d",lock="report",state="not_frozen"} 1"#,
            r#"redlock_fence_state{pod_namespace="team",pod="d",lock="report",state="frozen"} 0"#,
            r#"redlock_fence_able{component="node-agent"} 0"#,
            "redlock_fence_guardian_up 0",
            "redlock_fence_cgroup2 1",
            "redlock_fence_latency_seconds_sum 0.5",
            "redlock_fence_latency_seconds_count 4",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in:\n{text}"
            );
        }
    }
}
