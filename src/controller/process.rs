//! Runs the process: its clients, watches and HTTP side. The process ends when one of them ends, or on a
//! signal.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, core::DeserializeGuard};
use tokio::sync::mpsc;

use super::{
    OperatorError,
    clients::Clients,
    cluster::ThisCluster,
    core::{Core, Incoming, Setup},
    declared::Declared,
    error::ConfigurationError,
    events,
    observe::{Observation, follow, follow_declared},
    password::{self, NewSecret},
    rate_limiter::RateLimiter,
    reviews::Reviews,
    siblings::Siblings,
};
use crate::{
    api::{LeaderLock, readable::ReadInParts},
    http_server::{ServedAddress, serve_on_thread},
    lease::HolderIdentity,
    operator::{
        error::{ProcessError, listen},
        guarded::Reviewer,
        http::{DetailsPlace, OperatorRoutes},
        process::Process,
        process_limits::{HttpClients, set_process_limits},
        quorum::Candidate,
        quorums::RunningQuorums,
        signals::Signals,
        state::{InUse, ProcessState},
    },
    targets::{AllowedFields, LeaseFence, RuntimeClasses},
    transport::Transport,
};

/// The capacity of the core's inbox, which bounds the observations in memory: a watch of ten thousand objects
/// waits for the core.
const INBOX: usize = 1_024;

/// The options of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    /// A separate address for `/metrics` and `/locks`.
    pub(crate) listen_details: Option<SocketAddr>,
    /// Whether `/metrics` and `/locks` require a bearer token that the API server accepts.
    pub(crate) require_token: bool,
    pub(crate) identity: HolderIdentity,
    /// Name of this cluster; its UID is read from the cluster.
    pub(crate) cluster_name: String,
    /// The namespaces to follow; if empty, all.
    pub(crate) namespaces: Vec<String>,
    /// The other replicas. If they are not known, no sibling can take over running targets.
    pub(crate) siblings: Option<Siblings>,
    /// Whether metrics of single locks are exported.
    pub(crate) lock_metrics: bool,
    pub(crate) lease_fence: LeaseFence,
    /// The fields that the action Patch may set.
    pub(crate) allowed_fields: AllowedFields,
    /// The runtime classes whose pods are fenced.
    pub(crate) runtime_classes: RuntimeClasses,
    /// The maximum number of requests to the API server per second.
    pub(crate) api_requests_per_second: u32,
    /// A file of RedisQuorums to apply.
    pub(crate) quorums_file: Option<PathBuf>,
    /// A Secret to create with a random password.
    pub(crate) new_password: Option<NewSecret>,
}

/// Contends for every lock that the cluster declares, until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the configuration cannot be used, signals, metrics or an address cannot be set up at
/// the start, or a task ends.
pub(crate) async fn run(options: Options) -> Result<(), OperatorError> {
    let signals = Signals::listen().map_err(ProcessError::Signals)?;
    let declared = match options.quorums_file.clone() {
        Some(file) => Some(
            Declared::open(file.clone())
                .await
                .map_err(|source| ConfigurationError::QuorumsFile { file, source })?,
        ),
        None => None,
    };
    set_process_limits(HttpClients {
        addresses: 1 + u64::from(options.listen_details.is_some()),
        long_answers: 0,
    });
    let (clients, contact) = Clients::infer()?;
    let front = HttpFront::listen(&options, &clients)?;
    let surroundings = Surroundings {
        signals,
        clients,
        contact,
        front,
        transport: Transport::default(),
    };
    run_in(options, surroundings, declared).await
}

/// The edges of the process: signals, connections and listeners.
pub(super) struct Surroundings<C> {
    pub(super) signals: Signals,
    pub(super) clients: Clients,
    /// Detects and replaces silent connections of the clients.
    pub(super) contact: C,
    pub(super) front: HttpFront,
    pub(super) transport: Transport,
}

/// Runs the process between these edges.
pub(super) async fn run_in<C>(
    options: Options,
    surroundings: Surroundings<C>,
    declared: Option<Declared>,
) -> Result<(), OperatorError>
where
    C: Future<Output = ()> + Send + 'static,
{
    let Surroundings {
        mut signals,
        clients,
        contact,
        front,
        transport,
    } = surroundings;
    let coordination = options.siblings.as_ref().and_then(Siblings::coordination);
    let this = tokio::select! {
        this = ThisCluster::read(&clients.work, &options.cluster_name, coordination) => this?,
        _ = signals.next() => return Ok(()),
    };
    let (identity, cluster) = (options.identity.clone(), this.id.clone());
    let state = ProcessState::new(
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
        listen = front.address,
        "operator started"
    );
    let client = clients.work.clone();
    let process = Process::new(signals, state);
    let mut operator = Operator::start(&options, clients, front, transport, this, process);
    let process = &mut operator.process;
    process.spawn("asks the API server whether it answers", contact.map(Ok));
    if let Some(wanted) = options.new_password.clone() {
        process.spawn(
            "creates the Secret with the password",
            password::make(client.clone(), wanted).map(Ok),
        );
    }
    if let Some(declared) = declared {
        let (sender, gone) = mpsc::unbounded_channel();
        operator.core.report_gone(sender);
        process.spawn(
            "applies declared RedisQuorums",
            declared.apply(client, gone).map(Ok),
        );
    }
    let end = operator.run().await;
    operator.stop().await;
    if end.is_ok() {
        tracing::info!("operator ended");
    }
    end
}

/// Serves the routes of the operator. Drop of the future stops the server.
pub(super) type ServeRoutes = Box<dyn FnOnce(OperatorRoutes) -> BoxFuture<'static, io::Result<()>> + Send>;

/// The HTTP side of the process.
pub(super) struct HttpFront {
    /// The address of the probes, for the log.
    pub(super) address: String,
    pub(super) details: DetailsPlace,
    /// The reviewer of tokens for `/metrics` and `/locks`; `None` gives access to all clients.
    pub(super) reviewer: Option<Arc<dyn Reviewer>>,
    pub(super) serve: ServeRoutes,
}

impl HttpFront {
    /// Binds the addresses, which a thread of its own serves.
    fn listen(options: &Options, clients: &Clients) -> Result<Self, ProcessError> {
        let public = listen(options.listen)?;
        let details = options.listen_details.map(listen).transpose()?;
        let reviews = || Arc::new(Reviews::new(clients.urgent.clone())) as Arc<dyn Reviewer>;
        let address = public.local_addr().unwrap_or(options.listen).to_string();
        let place = if details.is_some() {
            DetailsPlace::Separate
        } else {
            DetailsPlace::WithProbes
        };
        let serve = move |routes: OperatorRoutes| {
            let served = [(Some(public), Some(routes.public)), (details, routes.details)];
            let served = served.into_iter().filter_map(|(listener, routes)| {
                let (listener, routes) = (listener?, routes?);
                Some(ServedAddress { listener, routes })
            });
            serve_on_thread(served.collect()).boxed()
        };
        Ok(Self {
            address,
            details: place,
            reviewer: options.require_token.then(reviews),
            serve: Box::new(serve),
        })
    }

    /// Serves what `state` shows.
    fn serve(self, state: Arc<ProcessState>) -> BoxFuture<'static, io::Result<()>> {
        (self.serve)(OperatorRoutes::new(state, self.reviewer, self.details))
    }
}

struct Operator {
    core: Core,
    seen: mpsc::Receiver<Incoming>,
    changes: mpsc::UnboundedReceiver<crate::operator::metrics_watcher::Change>,
    process: Process,
}

impl Operator {
    fn start(
        options: &Options,
        clients: Clients,
        front: HttpFront,
        transport: Transport,
        ThisCluster { id: cluster, copy }: ThisCluster,
        mut process: Process,
    ) -> Self {
        let state = process.state.clone();
        let (inbox, seen) = mpsc::channel(INBOX);
        let (changed, changes) = mpsc::unbounded_channel();
        let candidate = Candidate {
            identity: options.identity.clone(),
            cluster: cluster.clone(),
        };
        let running = RunningQuorums::new(candidate, transport, state.telemetry.clone(), Some(changed));
        let rate_limiter = Arc::new(RateLimiter::new(options.api_requests_per_second));
        let (events, recording) = events::recorder(
            clients.work.clone(),
            events::Reporter {
                controller: "redlock.dev/operator",
                instance: options.identity.to_string(),
            },
            rate_limiter.clone(),
        );
        let scopes = scopes(&options.namespaces);
        follow_objects(&mut process, options, &clients, &scopes, &inbox);
        process.spawn("serves HTTP", front.serve(state.clone()));
        process.spawn("writes events", recording.map(Ok));
        let core = Core::new(Setup {
            identity: options.identity.clone(),
            cluster,
            copy,
            clients,
            rate_limiter,
            state,
            quorums: running,
            events,
            inbox,
            scopes: &scopes,
            siblings: options.siblings.as_ref(),
            lease_fence: options.lease_fence.clone(),
            allowed_fields: options.allowed_fields.clone(),
            runtime_classes: options.runtime_classes.clone(),
        });
        Self {
            core,
            seen,
            changes,
            process,
        }
    }

    async fn run(&mut self) -> Result<(), OperatorError> {
        tokio::select! {
            end = self.process.stopped() => {
                let name = end?;
                tracing::info!(signal = name, "the operator stops and releases every lock");
                Ok(())
            }
            end = self.core.run(&mut self.seen, &mut self.changes) => Ok(end.map_err(ProcessError::from)?),
        }
    }

    /// Gives up all locks in bounded time: the time of the longest stop, if targets run and no sibling is
    /// ready. Further signals change nothing, because a signal to both the process and its group arrives
    /// twice.
    async fn stop(self) {
        let Self {
            mut core,
            mut seen,
            process,
            ..
        } = self;
        // The index handles no more observations, but a target task stops nothing until its report is received.
        let (reports, mut kept) = mpsc::unbounded_channel();
        let taking = async {
            while let Some(seen) = seen.recv().await {
                if let Incoming::Report(report) = seen {
                    // The core receives reports until its stop is complete.
                    let _ = reports.send(report);
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = core.stop(&mut kept) => {}
            () = taking => {}
        }
        process.shut_down().await;
    }
}

/// Returns the scopes to follow, each with its own watch; an empty scope stands for all namespaces.
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

/// Follows the objects that the operator acts on, and the pods of the other replicas.
fn follow_objects(
    process: &mut Process,
    options: &Options,
    clients: &Clients,
    scopes: &[String],
    inbox: &mpsc::Sender<Incoming>,
) {
    let quorums = Api::all(clients.work.clone());
    watch(process, "follows RedisQuorums", quorums, inbox, Incoming::Quorum);
    for scope in scopes {
        let locks: Api<DeserializeGuard<LeaderLock>> = if scope.is_empty() {
            Api::all(clients.work.clone())
        } else {
            Api::namespaced(clients.work.clone(), scope)
        };
        let scope = scope.clone();
        let wrap = move |observation| Incoming::Lock(scope.clone(), observation);
        watch(process, "follows LeaderLocks", locks, inbox, wrap);
    }
    if let Some(siblings) = &options.siblings {
        let following = follow(
            siblings.api(&clients.work),
            siblings.config(),
            inbox.clone(),
            Incoming::Sibling,
        );
        process.spawn("follows the other replicas", following.map(Ok));
        if let Some((namespace, name)) = siblings.coordination() {
            let leases: Api<DeserializeGuard<Lease>> = Api::namespaced(clients.work.clone(), &namespace);
            let config = kube::runtime::watcher::Config::default().fields(&format!("metadata.name={name}"));
            let following = follow(leases, config, inbox.clone(), Incoming::Coordinator);
            process.spawn("follows the Lease of the coordinator", following.map(Ok));
        }
    }
}

/// Follows all objects of one kind.
fn watch<K>(
    process: &mut Process,
    task: &'static str,
    api: Api<DeserializeGuard<K>>,
    inbox: &mpsc::Sender<Incoming>,
    wrap: impl Fn(Observation<K>) -> Incoming + Send + 'static,
) where
    K: ReadInParts<DynamicType: Clone> + Clone + Send + 'static,
{
    let following = follow_declared(api, inbox.clone(), wrap);
    process.spawn(task, following.map(Ok));
}
