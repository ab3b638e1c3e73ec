//! Judges node fencing by the facts that the API server shows. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
    storage::v1::CSIDriver,
};
use kube::ResourceExt;
use redlock_csi::DRIVER_NAME;

use super::{
    facts::{AGENT, Asked, Facts, GUARDIAN, Metrics, is_of},
    unknown,
};
use crate::inspect::doctor::{Check, Level, ObjectReport};

const INSTALL: &str = "install node fencing by the chart: --set fencing.enabled=true";
const RIGHTS: &str = "run the command as a user that may read it";

/// Reports on the cluster first, then on each node that has a problem.
pub(super) fn of(facts: &Facts) -> Vec<ObjectReport> {
    let mut checks = vec![driver(&facts.driver)];
    checks.extend([AGENT, GUARDIAN].map(|component| set(facts, component)));
    checks.push(version(facts));
    let nodes = match (&facts.nodes, &facts.pods) {
        (Ok(nodes), Ok(_)) => {
            let nodes = nodes.iter().filter(|node| selects(facts.set(AGENT), node));
            let nodes: Vec<ObjectReport> = nodes.map(|node| of_node(facts, node)).collect();
            checks.push(count(&nodes));
            nodes
        }
        (Err(reason), _) | (_, Err(reason)) => {
            checks.push(unknown("nodes", reason, RIGHTS));
            Vec::new()
        }
    };
    checks.extend(unread_metrics(facts));
    let report = ObjectReport {
        kind: "CSIDriver",
        name: DRIVER_NAME.to_owned(),
        checks,
    };
    let noted = |report: &ObjectReport| report.checks.iter().any(|check| check.level != Level::Good);
    [report]
        .into_iter()
        .chain(nodes.into_iter().filter(noted))
        .collect()
}

fn driver(driver: &Asked<Option<CSIDriver>>) -> Check {
    let driver = match driver {
        Ok(Some(driver)) => driver,
        Ok(None) => return Check::but("driver", Level::Bad, "there is no CSIDriver object", INSTALL),
        Err(reason) => return unknown("driver", reason, RIGHTS),
    };
    let spec = &driver.spec;
    let modes = spec.volume_lifecycle_modes.iter().flatten();
    let wrong = [
        ("podInfoOnMount is not true", spec.pod_info_on_mount != Some(true)),
        ("attachRequired is not false", spec.attach_required != Some(false)),
        (
            "volumeLifecycleModes has no Ephemeral",
            !modes.clone().any(|mode| mode == "Ephemeral"),
        ),
    ];
    let wrong: Vec<&str> = wrong
        .into_iter()
        .filter_map(|(text, wrong)| wrong.then_some(text))
        .collect();
    if wrong.is_empty() {
        return Check::good("driver", "the CSIDriver object is that of the chart");
    }
    let hint = "the kubelet then does not pass the pod: upgrade the release, which restores the object";
    Check::but("driver", Level::Bad, wrong.join(", "), hint)
}

fn set(facts: &Facts, component: &'static str) -> Check {
    let sets = match &facts.sets {
        Ok(sets) => sets,
        Err(reason) => return unknown(component, reason, RIGHTS),
    };
    let Some(set) = facts.set(component) else {
        let found = format!("no DaemonSet has the label app.kubernetes.io/component={component}");
        return Check::but(component, Level::Bad, found, INSTALL);
    };
    let several = sets.iter().filter(|other| is_of(*other, component));
    let name = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
    if several.count() > 1 {
        let hint = "two releases with node fencing share the directory of the node: uninstall one";
        return Check::but(
            component,
            Level::Bad,
            format!("{name} is one of several DaemonSets"),
            hint,
        );
    }
    let status = set.status.clone().unwrap_or_default();
    let (wanted, ready) = (status.desired_number_scheduled, status.number_ready);
    Check::good(
        component,
        format!("DaemonSet {name}: {ready} of {wanted} pods are ready"),
    )
}

/// Checks that the DaemonSets of a release have the image of its operator.
fn version(facts: &Facts) -> Check {
    let pods = match &facts.pods {
        Ok(_) => facts.operators(),
        Err(reason) => return unknown("version", reason, RIGHTS),
    };
    let operator: BTreeSet<&str> = pods.flat_map(images).collect();
    let nodes = [AGENT, GUARDIAN].map(|component| facts.set(component));
    let nodes: BTreeSet<&str> = nodes.into_iter().flatten().filter_map(image_of_set).collect();
    let list = |images: &BTreeSet<&str>| images.iter().copied().collect::<Vec<_>>().join(", ");
    if operator.is_empty() {
        let hint = "check the Deployment of the operator";
        return unknown("version", "no pod of the operator was found", hint);
    }
    if nodes.iter().all(|image| operator.contains(image)) && operator.len() == 1 {
        return Check::good("version", format!("all have the image {}", list(&operator)));
    }
    let found = format!(
        "the operator has {}, and the nodes {}",
        list(&operator),
        list(&nodes)
    );
    let hint = "wait for the end of the rollout, or upgrade the release as a whole";
    Check::but("version", Level::Bad, found, hint)
}

fn image_of_set(set: &DaemonSet) -> Option<&str> {
    let containers = &set.spec.as_ref()?.template.spec.as_ref()?.containers;
    containers.first()?.image.as_deref()
}

fn images(pod: &Pod) -> impl Iterator<Item = &str> {
    let containers = pod.spec.iter().flat_map(|spec| spec.containers.first());
    containers.filter_map(|container| container.image.as_deref())
}

/// Reports whether the agent belongs on the node: on any other node, a pod with the volume waits.
fn selects(agent: Option<&DaemonSet>, node: &Node) -> bool {
    let spec = agent.and_then(|agent| {
        agent
            .spec
            .as_ref()?
            .template
            .spec
            .as_ref()?
            .node_selector
            .as_ref()
    });
    let mut selector = spec.into_iter().flatten();
    selector.all(|(label, value)| node.labels().get(label) == Some(value))
}

fn count(nodes: &[ObjectReport]) -> Check {
    let good = |report: &&ObjectReport| !report.checks.iter().any(|check| check.level != Level::Good);
    let good = nodes.iter().filter(good).count();
    let text = format!("{good} of {} are guarded", nodes.len());
    if nodes.is_empty() {
        return Check::but(
            "nodes",
            Level::Warning,
            "no node was found",
            "check the nodeSelector of the DaemonSets",
        );
    }
    if nodes.iter().any(|report| report.checks.iter().any(Check::is_bad)) {
        Check::but("nodes", Level::Bad, text, "see the lines of the nodes below")
    } else if good < nodes.len() {
        Check::but("nodes", Level::Warning, text, "see the lines of the nodes below")
    } else {
        Check::good("nodes", text)
    }
}

fn of_node(facts: &Facts, node: &Node) -> ObjectReport {
    let name = node.name_any();
    let mut checks = Vec::new();
    if !node_is_ready(node) {
        let hint = "its pods are frozen at the end of their permits by the processes of the node itself";
        checks.push(Check::but(
            "ready",
            Level::Warning,
            "the node is not ready: its pods are not checked",
            hint,
        ));
    } else {
        checks.extend([AGENT, GUARDIAN].map(|component| guard(facts, component, &name)));
        checks.push(match &facts.registered {
            Ok(registered) if registered.contains(&name) => Check::good("registered", "the kubelet knows the driver"),
            Ok(_) => {
                let hint = "pods with the volume wait on this node: check fencing.kubeletDir of the chart, and the log of the node agent";
                Check::but("registered", Level::Bad, "the CSINode has no such driver", hint)
            }
            Err(reason) => unknown("registered", reason, RIGHTS),
        });
        if let Some(Ok(metrics)) = facts.agents.get(&name) {
            checks.extend(reported(metrics));
        }
    }
    ObjectReport {
        kind: "Node",
        name,
        checks,
    }
}

fn guard(facts: &Facts, component: &'static str, node: &str) -> Check {
    let here = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    let pods: Vec<&Pod> = facts.pods(component).filter(here).collect();
    let Some(pod) = pods.iter().find(|pod| not_ready(pod).is_none()).or(pods.first()) else {
        let hint = "kubectl describe daemonset shows why it has no pod there: a quota, a taint or a Pod Security Standard";
        return Check::but(component, Level::Bad, "no pod on this node", hint);
    };
    match not_ready(pod) {
        None => Check::good(component, format!("pod {} is ready", pod.name_any())),
        Some(reason) => {
            let found = format!("pod {} is not ready{reason}", pod.name_any());
            Check::but(component, Level::Bad, found, "see its events and its log")
        }
    }
}

/// Returns the reason why a pod is not ready; `None` for a ready pod.
fn not_ready(pod: &Pod) -> Option<String> {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    match conditions.clone().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(
            ready
                .message
                .as_ref()
                .map_or_else(String::new, |text| format!(": {text}")),
        ),
        None => Some(String::new()),
    }
}

fn node_is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .clone()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Judges the facts that the agent of a node reports.
fn reported(metrics: &Metrics) -> impl Iterator<Item = Check> + use<> {
    let cgroup2 = metrics.cgroup2.map(|cgroup2| {
        if cgroup2 {
            return Check::good("cgroup v2", "the node uses it");
        }
        let hint = "a pod cannot be frozen as a whole: boot the node with systemd.unified_cgroup_hierarchy=1";
        Check::but("cgroup v2", Level::Bad, "the node uses cgroup v1", hint)
    });
    let guardian = match (metrics.guardian_up, metrics.degraded) {
        (Some(false), _) => {
            let hint = "both must mount the same /run/redlock of the node: see the log of the node guardian";
            Some(Check::but(
                "guardian",
                Level::Bad,
                "the agent sees no report of the guardian",
                hint,
            ))
        }
        (Some(true), Some(true)) => {
            let hint = "a freeze may be late on a busy node: its log names the capability, SYS_NICE or IPC_LOCK, or the file system";
            let found = "the guardian has no real-time scheduling, no locked memory, or no tmpfs";
            Some(Check::but("guardian", Level::Warning, found, hint))
        }
        (Some(true), Some(false)) => Some(Check::good(
            "guardian",
            "SCHED_FIFO, locked memory and a tmpfs; reports each second",
        )),
        _ => None,
    };
    [cgroup2, guardian].into_iter().flatten()
}

fn unread_metrics(facts: &Facts) -> Option<Check> {
    let unread: Vec<&String> = facts
        .agents
        .values()
        .filter_map(|metrics| metrics.as_ref().err())
        .collect();
    let reason = unread.first()?;
    let found = format!(
        "the metrics of {} of {} node agents cannot be read: {reason}",
        unread.len(),
        facts.agents.len()
    );
    let hint = "grant get on pods/proxy: without the metrics, cgroup v2 and the scheduling of the guardians are not checked; \
                `redlock fence list` in a pod of the node shows the same";
    Some(unknown("metrics", &found, hint))
}

#[cfg(test)]
mod tests;
