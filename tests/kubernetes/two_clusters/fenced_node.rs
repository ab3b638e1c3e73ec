//! The node of a cluster: agent and guardian as processes, a kubelet whose pods are processes, and their
//! networks.

use std::path::PathBuf;
use std::sync::Arc;

use redlock_testkit::{ChildGuard, Proxy, free_port};

use super::writers::Writers;
use crate::common::cgroups::own;
use crate::common::http;
use crate::fixture::{BOUND, Kubelet, PooledPlane};
use crate::node::{AGENT_ACCOUNT, Node};
use nix::sys::signal::Signal;

/// One of the two processes that freeze pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Agent,
    Guardian,
}

pub struct FencedNode {
    // Dropped in this order: processes before their cgroups.
    _kubelet: Kubelet,
    agent: Option<ChildGuard>,
    guardian: Option<ChildGuard>,
    pub writers: Arc<Writers>,
    node: Arc<Node>,
    cluster: &'static str,
    /// The agent's connection to the API server.
    pub api: Proxy,
    pub kubelet_api: Proxy,
    /// `None` if nothing is fenced.
    kubeconfig: Option<PathBuf>,
    port: u16,
    log: Vec<String>,
}

impl FencedNode {
    pub async fn start(
        cluster: &'static str,
        plane: &PooledPlane,
        seed: u64,
        namespace: &str,
        fenced: bool,
    ) -> Self {
        let own = own().unwrap_or_else(|why| panic!("cgroups of version 2 are required: {why}"));
        let node = Arc::new(Node::below(&own));
        let (api, kubelet_api) = (Proxy::to(plane.address()).await, Proxy::to(plane.address()).await);
        let server = format!("https://127.0.0.1:{}", api.port());
        let kubeconfig = if fenced {
            let made = plane.service_account_kubeconfig(namespace, AGENT_ACCOUNT, Some(server));
            Some(made.await)
        } else {
            None
        };
        let writers = Writers::new(cluster, Arc::clone(&node));
        let client = plane.admin_at(kubelet_api.port());
        let mut started = Self {
            _kubelet: Kubelet::start_with(client, seed, writers.runtime()),
            agent: None,
            guardian: None,
            writers,
            node,
            cluster,
            api,
            kubelet_api,
            kubeconfig,
            port: free_port().unwrap(),
            log: Vec::new(),
        };
        for part in [Part::Guardian, Part::Agent] {
            started.start_part(part);
        }
        started
    }

    const fn slot(&mut self, part: Part) -> &mut Option<ChildGuard> {
        match part {
            Part::Agent => &mut self.agent,
            Part::Guardian => &mut self.guardian,
        }
    }

    pub fn process(&self, part: Part) -> &ChildGuard {
        let process = match part {
            Part::Agent => &self.agent,
            Part::Guardian => &self.guardian,
        };
        process.as_ref().expect("it runs")
    }

    pub const fn is_fenced(&self) -> bool {
        self.kubeconfig.is_some()
    }

    pub fn start_part(&mut self, part: Part) {
        let Some(kubeconfig) = &self.kubeconfig else {
            return;
        };
        let started = match part {
            Part::Agent => self.node.agent(self.cluster, kubeconfig, self.port),
            Part::Guardian => self.node.guardian(),
        };
        *self.slot(part) = Some(started);
    }

    pub fn kill_part(&mut self, part: Part) {
        if let Some(mut process) = self.slot(part).take() {
            process.kill();
            self.log.append(&mut process.stderr());
        }
    }

    /// Ends the agent with SIGTERM, which the guardian outlives.
    pub fn stop_agent(&mut self) {
        let process = self.agent.take();
        self.stop(Part::Agent, process);
    }

    /// Starts another guardian, as a DaemonSet with a surge does, and then ends the older one with SIGTERM.
    pub fn replace_guardian(&mut self) {
        let older = self.guardian.take();
        self.start_part(Part::Guardian);
        self.stop(Part::Guardian, older);
    }

    fn stop(&mut self, part: Part, process: Option<ChildGuard>) {
        if let Some(mut process) = process {
            process.signal(Signal::SIGTERM);
            let (status, took) = process.wait(BOUND);
            assert!(
                status.success(),
                "{part:?} of {}: {status} after {took:?}",
                self.cluster
            );
            self.log.append(&mut process.stderr());
        }
    }

    /// Reports whether agent and guardian run, and guard each pod.
    pub fn is_ready(&self) -> bool {
        let answer = http::get(self.port, "/readyz");
        let runs = self.agent.is_some() && self.guardian.is_some();
        !self.is_fenced() || runs && answer.is_ok_and(|(status, _)| status == 200)
    }

    /// Returns all log lines of agent and guardian.
    pub fn log(&self) -> Vec<String> {
        let running = [&self.agent, &self.guardian].into_iter().flatten();
        let running = running.flat_map(ChildGuard::stderr).collect();
        [self.log.clone(), running].concat()
    }
}
