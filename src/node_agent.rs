//! `redlock node-agent`: runs the agent of a node with the locks of the API server, and serves its CSI driver to the kubelet.
//!
//! The agent starts before it has reached the API server: while no API server answers, it restores the pods
//! of its table, and freezes them at the end of their permits. Locks of new pods are resolved once the
//! objects are listed.

mod declared;
mod error;
mod events;
mod http;
mod pod_object;
mod resolver;
mod volumes;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use futures_util::FutureExt;
use redlock_node::agent::{self, Agent, AgentTask};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{error::NodeAgentError, resolver::ReadAccess};
use self::{resolver::KubeResolver, volumes::Gate};
use crate::{
    controller::{
        clients::Clients,
        cluster::cluster_id,
        events::{Reporter, recorder},
        rate_limiter::RateLimiter,
    },
    http_server::{ServedAddress, serve_on_thread},
    operator::{
        error::{ProcessError, listen},
        process_limits::{HttpClients, set_process_limits},
        signals::Signals,
    },
    targets::RuntimeClasses,
};

/// The rate limit for events of one node. A node that is cut off from the masters freezes all its pods at
/// once, and the node agents of all nodes may write the events of their pods at the same time.
const REQUESTS_PER_SECOND: u32 = 10;

/// The settings of the command line.
pub(crate) struct Options {
    pub(crate) node_name: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) cgroup_root: PathBuf,
    pub(crate) kubelet_dir: PathBuf,
    /// The runtime classes whose pods are fenced.
    pub(crate) runtime_classes: RuntimeClasses,
    pub(crate) listen: SocketAddr,
    /// The name of this cluster; its UID is read from the cluster.
    pub(crate) cluster_name: String,
    /// The namespaces to follow; all if empty.
    pub(crate) namespaces: Vec<String>,
    /// Reads credentials and certificates again at each call.
    pub(crate) access: ReadAccess,
}

/// Fences the pods of this node until SIGTERM or SIGINT, and then until the guardian or another agent guards them, or no
/// pod needs this process.
///
/// # Errors
/// Returns an error if a setting cannot be used at the start, or if a task ends.
pub(crate) async fn run(options: Options) -> Result<(), NodeAgentError> {
    let mut signals = Signals::listen().map_err(ProcessError::Signals)?;
    let (clients, contact) = Clients::infer()?;
    set_process_limits(HttpClients {
        addresses: 1,
        long_answers: 0,
    });
    let listener = listen(options.listen)?;
    let resolver = Arc::new(KubeResolver::new(
        clients.urgent.clone(),
        options.access,
        &options.namespaces,
        options.runtime_classes,
    ));
    let node = agent::Options {
        state_dir: options.state_dir,
        cgroup_root: options.cgroup_root,
        kubelet_dir: Some(options.kubelet_dir.clone()),
    };
    let (agent, task) = Agent::start(node, resolver.clone())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = options.node_name,
        cluster = options.cluster_name,
        listen = %listener.local_addr().unwrap_or(options.listen),
        "node agent started"
    );
    let mut tasks = Tasks::default();
    tasks.spawn("asks the API server whether it answers", contact.map(Ok));
    let (of_cluster, client) = (resolver.clone(), clients.work.clone());
    tasks.spawn("reads the UID of the cluster", async move {
        of_cluster.set_cluster(cluster_id(&client, &options.cluster_name).await?);
        std::future::pending().await
    });
    resolver.follow(&clients.work, &mut tasks);
    let routes = http::routes(agent.clone())?;
    serve(&mut tasks, ServedAddress { listener, routes });
    record(&mut tasks, &agent, &options.node_name, &clients);
    let driver = redlock_csi::Options::new(options.node_name, options.kubelet_dir);
    let mut running = Running::start(tasks, agent, task, driver);
    let end = tokio::select! {
        name = signals.next() => {
            tracing::info!(signal = name, "the node agent stops once its pods do not need it");
            Ok(())
        }
        error = running.ended() => Err(error),
    };
    let stopped = running.stop().await;
    end.and(stopped)?;
    tracing::info!("node agent ended");
    Ok(())
}

/// Starts the HTTP server.
fn serve(tasks: &mut Tasks, address: ServedAddress) {
    let served = serve_on_thread(vec![address]);
    tasks.spawn("serves HTTP", served.map(|end| end.map_err(NodeAgentError::from)));
}

/// Starts the event tasks.
fn record(tasks: &mut Tasks, agent: &Agent, node: &str, clients: &Clients) {
    let reporter = Reporter {
        controller: "redlock.dev/node-agent",
        instance: node.to_owned(),
    };
    let rate_limiter = Arc::new(RateLimiter::new(REQUESTS_PER_SECOND));
    let (events, recording) = recorder(clients.work.clone(), reporter, rate_limiter);
    tasks.spawn("writes events", recording.map(Ok));
    tasks.spawn(
        "reports the changes of pods",
        events::emit(agent.changes(), events, node.to_owned()).map(Ok),
    );
}

/// The tasks of the process that need no orderly shutdown.
#[derive(Default)]
struct Tasks(JoinSet<NodeAgentError>);

impl Tasks {
    /// Starts a task that never ends by itself; `what` describes it in an error, as a verb with its object.
    fn spawn(
        &mut self,
        what: &'static str,
        work: impl Future<Output = Result<(), NodeAgentError>> + Send + 'static,
    ) {
        self.0.spawn(async move {
            match work.await {
                Ok(()) => ended(what, "it returned".to_owned()),
                Err(error) => error,
            }
        });
    }
}

/// The parts of the process.
struct Running {
    tasks: Tasks,
    agent: Agent,
    task: AgentTask,
    driver: JoinHandle<Result<(), redlock_csi::ServeError>>,
    shutdown: CancellationToken,
}

impl Running {
    fn start(tasks: Tasks, agent: Agent, task: AgentTask, options: redlock_csi::Options) -> Self {
        let shutdown = CancellationToken::new();
        let gate = Gate::new(agent.clone());
        Self {
            tasks,
            agent,
            task,
            driver: tokio::spawn(redlock_csi::serve(gate, options, shutdown.clone())),
            shutdown,
        }
    }

    /// Waits for a part that ends by itself. Cancel safe.
    async fn ended(&mut self) -> NodeAgentError {
        tokio::select! {
            Some(end) = self.tasks.0.join_next() => end.unwrap_or_else(|broken| ended("works", broken.to_string())),
            end = self.task.ended() => end.map_or_else(NodeAgentError::from, |()| {
                ended("fences pods", "it returned".to_owned())
            }),
            end = &mut self.driver => driver(end).err().unwrap_or_else(|| {
                ended(DRIVER, "it returned".to_owned())
            }),
        }
    }

    /// Removes the sockets before the agent ends, so that the kubelet starts no pod without an agent to
    /// follow it.
    async fn stop(mut self) -> Result<(), NodeAgentError> {
        self.shutdown.cancel();
        let served = if self.driver.is_finished() {
            Ok(())
        } else {
            driver(self.driver.await)
        };
        self.agent.shut_down();
        let fenced = self.task.ended().await.map_err(NodeAgentError::from);
        self.tasks.0.shutdown().await;
        served.and(fenced)
    }
}

const DRIVER: &str = "serves the CSI driver";

fn driver(end: Result<Result<(), redlock_csi::ServeError>, JoinError>) -> Result<(), NodeAgentError> {
    match end {
        Ok(end) => Ok(end?),
        Err(broken) => Err(ended(DRIVER, broken.to_string())),
    }
}

fn ended(task: &'static str, reason: String) -> NodeAgentError {
    ProcessError::Task { task, reason }.into()
}
