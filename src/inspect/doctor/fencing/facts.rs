//! Reads the objects of node fencing from the API server. A part that cannot be read contains the reason.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
    storage::v1::{CSIDriver, CSINode},
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope};
use redlock_csi::DRIVER_NAME;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{
    inspect::cluster::{Cluster, ClusterError},
    targets::list_all,
};

pub(super) const AGENT: &str = "node-agent";
pub(super) const GUARDIAN: &str = "node-guardian";
const OPERATOR: &str = "operator";
const NAME: &str = "app.kubernetes.io/name=redlock-operator";
const COMPONENT: &str = "app.kubernetes.io/component";
/// Time limit for reading the metrics of one node agent, through the API server.
const SCRAPE: Duration = Duration::from_secs(5);
const PORT: &str = "http";
/// The number of node agents that are asked at the same time.
const AT_ONCE: usize = 16;

pub(super) type Asked<T> = Result<T, String>;

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) driver: Asked<Option<CSIDriver>>,
    pub(super) sets: Asked<Vec<DaemonSet>>,
    /// Pods of the operator and of both DaemonSets.
    pub(super) pods: Asked<Vec<Pod>>,
    pub(super) nodes: Asked<Vec<Node>>,
    /// The nodes on which the kubelet knows the driver.
    pub(super) registered: Asked<Vec<String>>,
    /// The metrics of the agent of each node.
    pub(super) agents: BTreeMap<String, Asked<Metrics>>,
}

/// The metrics of a node agent. `None` for a metric that this agent does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Metrics {
    pub(super) cgroup2: Option<bool>,
    pub(super) guardian_up: Option<bool>,
    /// Whether the kernel refused something to the guardian.
    pub(super) degraded: Option<bool>,
}

impl Facts {
    pub(super) fn set(&self, component: &str) -> Option<&DaemonSet> {
        let sets = self.sets.as_ref().ok()?;
        sets.iter().find(|set| is_of(*set, component))
    }

    /// Returns the pods of a component; no pod if they could not be read.
    pub(super) fn pods(&self, component: &str) -> impl Iterator<Item = &Pod> {
        let pods = self.pods.as_ref().ok();
        pods.into_iter()
            .flatten()
            .filter(move |pod| is_of(*pod, component))
    }

    pub(super) fn operators(&self) -> impl Iterator<Item = &Pod> {
        self.pods(OPERATOR)
    }
}

pub(super) async fn read(cluster: &Cluster) -> Facts {
    let client = cluster.client();
    let driver = Api::<CSIDriver>::all(client.clone()).get_opt(DRIVER_NAME).await;
    let labels = format!("{NAME},{COMPONENT} in ({AGENT},{GUARDIAN},{OPERATOR})");
    let pods: Asked<Vec<Pod>> = everywhere(cluster, &labels).await;
    let agents: Vec<Pod> = pods
        .iter()
        .flatten()
        .filter(|pod| is_of(*pod, AGENT))
        .cloned()
        .collect();
    let (csi_nodes, nodes) = (
        Api::<CSINode>::all(client.clone()),
        Api::<Node>::all(client.clone()),
    );
    let registered = list_all(&csi_nodes, ListParams::default(), |node: CSINode| {
        let has = node.spec.drivers.iter().any(|driver| driver.name == DRIVER_NAME);
        has.then(|| node.name_any())
    });
    let registered = registered.await;
    let nodes = list_all(&nodes, ListParams::default(), Some).await;
    Facts {
        driver: driver.map_err(|error| refused("get of the CSIDriver", &error)),
        sets: everywhere(cluster, &labels).await,
        nodes: nodes.map_err(|error| refused("list of nodes", &error)),
        registered: registered.map_err(|error| refused("list of CSINodes", &error)),
        agents: scrapes(&client, agents).await,
        pods,
    }
}

/// Lists the objects of all namespaces, or of that of the context if the others may not be read.
async fn everywhere<K>(cluster: &Cluster, labels: &str) -> Asked<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let which = ListParams::default().labels(labels);
    let (client, kind) = (cluster.client(), K::plural(&()));
    let all = list_all(&Api::<K>::all(client.clone()), which.clone(), Some).await;
    let found = match all {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            list_all(&Api::<K>::namespaced(client, cluster.namespace()), which, Some).await
        }
        all => all,
    };
    found.map_err(|error| refused(&format!("list of {kind}"), &error))
}

fn refused(doing: &str, error: &kube::Error) -> String {
    ClusterError::asked(doing, None, error).to_string()
}

/// Returns the metrics of the agents, by node.
async fn scrapes(client: &Client, agents: Vec<Pod>) -> BTreeMap<String, Asked<Metrics>> {
    let scrapes = agents.into_iter().filter_map(|pod| {
        let node = pod.spec.as_ref()?.node_name.clone()?;
        let client = client.clone();
        Some(async move { (node, scrape(&client, &pod).await) })
    });
    stream::iter(scrapes).buffer_unordered(AT_ONCE).collect().await
}

async fn scrape(client: &Client, pod: &Pod) -> Asked<Metrics> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT));
    let port = port
        .ok_or_else(|| format!("pod {name} has no port {PORT}"))?
        .container_port;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match timeout(SCRAPE, client.request_text(request)).await {
        Ok(Ok(text)) => Ok(Metrics::parse(&text)),
        Ok(Err(error)) => Err(refused(&format!("metrics of pod {name}"), &error)),
        Err(_) => Err(format!(
            "metrics of pod {name}: no answer within {} s",
            SCRAPE.as_secs()
        )),
    }
}

impl Metrics {
    fn parse(text: &str) -> Self {
        let flag = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<f64>().ok())
                .map(|value| value > 0.0)
        };
        Self {
            cgroup2: flag("redlock_fence_cgroup2"),
            guardian_up: flag("redlock_fence_guardian_up"),
            degraded: flag("redlock_fence_guardian_degraded"),
        }
    }
}

pub(super) fn is_of(object: &impl ResourceExt, component: &str) -> bool {
    object
        .labels()
        .get(COMPONENT)
        .is_some_and(|found| found == component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_no_agent_reports_is_unknown() {
        let text = "# TYPE redlock_fence_cgroup2 gauge\nredlock_fence_cgroup2 1\nredlock_fence_guardian_up 0\n\
                    redlock_fence_guardian_degraded_more 1\nredlock_fence_guardian_degraded x\n";
        let wanted = Metrics {
            cgroup2: Some(true),
            guardian_up: Some(false),
            degraded: None,
        };
        assert_eq!(Metrics::parse(text), wanted);
        assert_eq!(Metrics::parse(""), Metrics::default());
    }
}
