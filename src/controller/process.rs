//! The process: its clients, watches and HTTP side; ends when any of them does, or on a signal.

use std::{fmt, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use kube::{Api, Resource, core::DeserializeGuard, runtime::watcher};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinError, JoinSet},
    time,
};

use super::{
    clients::Clients,
    cluster::cluster_id,
    core::{Core, Seen},
    declared::{self, Declared},
    events,
    observe::{Observation, follow},
    pace::Pace,
    password::{self, NewSecret},
    reviews::Reviews,
    siblings::Siblings,
};
use crate::{
    api::LeaderLock,
    lease::{ClusterId, HolderIdentity, identity::IdentityError},
    operator::{
        error::{ProcessError, listen},
        fleet::Fleet,
        guarded::{Details, Reviewer},
        http,
        quorum::Candidate,
        signals::Signals,
        state::{InUse, State},
    },
};

/// How often the locks are looked at for what passes between two scrapes.
const LOOK: Duration = Duration::from_secs(1);
/// A watch that brings ten thousand objects waits for the core, not in its memory.
const INBOX: usize = 1_024;
/// Objects in one page of a list: of the size of a few megabytes.
const PAGE: u32 = 500;

/// What is asked for on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    /// Where `/metrics` and `/locks` are served, if not there.
    pub listen_details: Option<SocketAddr>,
    /// They are served to those only whose bearer token the API server accepts.
    pub require_token: bool,
    pub identity: HolderIdentity,
    /// Name of this cluster; its UID is read from it.
    pub cluster_name: String,
    /// Only these namespaces are followed; all, where none is named.
    pub namespaces: Vec<String>,
    /// The other replicas; where they are not known, nobody is there to take what runs.
    pub siblings: Option<Siblings>,
    /// Tell metrics of single locks.
    pub lock_metrics: bool,
    /// As many requests a second go to the API server.
    pub api_requests_per_second: u32,
    /// RedisQuorums to apply.
    pub quorums_file: Option<PathBuf>,
    /// A Secret to make with a random password.
    pub new_password: Option<NewSecret>,
}

/// Why the process ends before it was told to.
#[derive(Debug, Error)]
pub enum OperatorError {
    #[error(
        "finding the API server: not in a pod, and the kubeconfig cannot be used ({0}); set KUBECONFIG, run in a pod, or give --standalone DIR"
    )]
    NoCluster(String),
    #[error("setting up the client of the API server")]
    Client(#[source] Box<kube::Error>),
    #[error("{}", declared::advice(file))]
    QuorumsFile { file: PathBuf, source: io::Error },
    #[error("--cluster {name:?}")]
    ClusterName { name: String, source: IdentityError },
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl OperatorError {
    /// Whether somebody has to change a flag, a file or an address.
    #[must_use]
    pub const fn is_of_configuration(&self) -> bool {
        match self {
            Self::NoCluster(_) | Self::Client(_) | Self::QuorumsFile { .. } | Self::ClusterName { .. } => {
                true
            }
            Self::Process(error) => error.is_of_configuration(),
        }
    }
}

/// Contends for every lock that the cluster declares, until SIGTERM or SIGINT.
///
/// # Errors
/// No API server to talk to or an address that cannot be used at the start; any task that ends.
pub async fn run(options: Options) -> Result<(), OperatorError> {
    let mut signals = Signals::listen().map_err(ProcessError::Signals)?;
    let declared = match options.quorums_file.clone() {
        Some(file) => Some(
            Declared::open(file.clone())
                .await
                .map_err(|source| OperatorError::QuorumsFile { file, source })?,
        ),
        None => None,
    };
    let (clients, contact) = Clients::infer().await?;
    let listener = listen(options.listen).await?;
    let details = Details {
        listener: match options.listen_details {
            Some(address) => Some(listen(address).await?),
            None => None,
        },
        reviewer: options
            .require_token
            .then(|| Arc::new(Reviews::new(clients.urgent.clone())) as Arc<dyn Reviewer>),
    };
    let cluster = tokio::select! {
        cluster = cluster_id(&clients.work, &options.cluster_name) => cluster?,
        _ = signals.next() => return Ok(()),
    };
    let identity = options.identity.clone();
    let state = State::new(
        "operator",
        identity,
        cluster.clone(),
        options.lock_metrics,
        InUse::awaiting_caches(),
    )?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = %options.identity,
        %cluster,
        listen = %listener.local_addr().unwrap_or(options.listen),
        "operator started"
    );
    let client = clients.work.clone();
    let mut operator = Operator::start(&options, clients, (listener, details), cluster, state);
    operator.work("asks the API server whether it answers", contact);
    if let Some(wanted) = options.new_password.clone() {
        operator.work("makes a password", password::make(client.clone(), wanted));
    }
    if let Some(declared) = declared {
        let (tell, gone) = mpsc::unbounded_channel();
        operator.core.tell_gone(tell);
        operator.work("applies declared RedisQuorums", declared.apply(client, gone));
    }
    let end = operator.run(&mut signals).await;
    operator.stop().await;
    if end.is_ok() {
        tracing::info!("operator ended");
    }
    end
}

struct Operator {
    core: Core,
    state: Arc<State>,
    seen: mpsc::Receiver<Seen>,
    changes: mpsc::UnboundedReceiver<crate::operator::relay::Change>,
    /// Each returns what it did, when it ends.
    tasks: JoinSet<(&'static str, io::Result<()>)>,
}

impl Operator {
    fn start(
        options: &Options,
        clients: Clients,
        (listener, details): (TcpListener, Details),
        cluster: ClusterId,
        state: Arc<State>,
    ) -> Self {
        let (inbox, seen) = mpsc::channel(INBOX);
        let (changed, changes) = mpsc::unbounded_channel();
        let candidate = Candidate {
            identity: options.identity.clone(),
            cluster: cluster.clone(),
        };
        let fleet = Fleet::new(candidate, state.telemetry.clone(), Some(changed));
        let pace = Arc::new(Pace::new(options.api_requests_per_second));
        let (events, recording) =
            events::recorder(clients.work.clone(), options.identity.to_string(), pace.clone());
        let mut tasks = JoinSet::new();
        let quorums = Api::all(clients.work.clone());
        watch(&mut tasks, "follows RedisQuorums", quorums, &inbox, Seen::Quorum);
        let scopes = scopes(&options.namespaces);
        for scope in &scopes {
            let locks: Api<DeserializeGuard<LeaderLock>> = if scope.is_empty() {
                Api::all(clients.work.clone())
            } else {
                Api::namespaced(clients.work.clone(), scope)
            };
            let scope = scope.clone();
            let tell = move |observation| Seen::Lock(scope.clone(), observation);
            watch(&mut tasks, "follows LeaderLocks", locks, &inbox, tell);
        }
        if let Some(siblings) = &options.siblings {
            let following = follow(
                siblings.api(&clients.work),
                siblings.config(),
                inbox.clone(),
                Seen::Sibling,
            );
            tasks.spawn(async move {
                following.await;
                ("follows the other replicas", Ok(()))
            });
        }
        let serving = http::serve(listener, state.clone(), details);
        tasks.spawn(async move { ("serves HTTP", serving.await) });
        tasks.spawn(async move {
            recording.await;
            ("writes events", Ok(()))
        });
        let me = (options.identity.clone(), cluster);
        let core = Core::new(
            me,
            (clients, pace),
            state.clone(),
            fleet,
            events,
            inbox,
            (&scopes, options.siblings.as_ref()),
        );
        Self {
            core,
            state,
            seen,
            changes,
            tasks,
        }
    }

    /// Beside the rest, for as long as it.
    fn work(&mut self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            work.await;
            (task, Ok(()))
        });
    }

    async fn run(&mut self, signals: &mut Signals) -> Result<(), OperatorError> {
        let mut look = time::interval(LOOK);
        look.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let state = self.state.clone();
        let looking = async {
            loop {
                look.tick().await;
                state.look();
            }
        };
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "operator stops: gives every lock back");
                Ok(())
            }
            end = self.core.run(&mut self.seen, &mut self.changes) => Err(end.map_or_else(ProcessError::from, |()| {
                ProcessError::Task { task: "decides", reason: "it returned".into() }
            }).into()),
            Some(end) = self.tasks.join_next() => Err(ended(end).into()),
            () = looking => Ok(()),
        }
    }

    /// Gives everything up, in bounded time: that of the longest stop where targets run and no sibling is ready. Further
    /// signals change nothing: whoever signals a process and its group sends two at once.
    async fn stop(self) {
        let Self {
            mut core,
            mut seen,
            mut tasks,
            ..
        } = self;
        // Nobody decides on what comes in any more, but a warden that waits for its report to be taken stops nothing.
        let (reports, mut kept) = mpsc::unbounded_channel();
        let taking = async {
            while let Some(seen) = seen.recv().await {
                if let Seen::Report(report) = seen {
                    // The core has it for as long as it stops.
                    let _ = reports.send(report);
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = core.stop(&mut kept) => {}
            () = taking => {}
        }
        tasks.shutdown().await;
    }
}

/// The namespaces that are followed, each by a watch of its own; the empty one stands for all.
fn scopes(namespaces: &[String]) -> Vec<String> {
    let mut scopes: Vec<String> = namespaces
        .iter()
        .filter(|name| !name.is_empty())
        .cloned()
        .collect();
    scopes.sort();
    scopes.dedup();
    if scopes.is_empty() {
        scopes.push(String::new());
    }
    scopes
}

/// Follows all objects of one kind.
fn watch<K>(
    tasks: &mut JoinSet<(&'static str, io::Result<()>)>,
    task: &'static str,
    api: Api<DeserializeGuard<K>>,
    inbox: &mpsc::Sender<Seen>,
    tell: impl Fn(Observation<K>) -> Seen + Send + 'static,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().page_size(PAGE);
    let following = follow(api, config, inbox.clone(), tell);
    tasks.spawn(async move {
        following.await;
        (task, Ok(()))
    });
}

fn ended(end: Result<(&'static str, io::Result<()>), JoinError>) -> ProcessError {
    let (task, reason) = match end {
        Ok((task, Ok(()))) => (task, "it returned".to_owned()),
        Ok((task, Err(cause))) => (task, cause.to_string()),
        Err(broken) => ("works behind the operator", broken.to_string()),
    };
    ProcessError::Task { task, reason }
}
