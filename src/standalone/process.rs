//! The process: owns the folder, the quorums and the HTTP side, and ends when any of them does.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use thiserror::Error;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinError, JoinHandle},
    time::{self, MissedTickBehavior},
};

use super::{
    folder,
    manifests::{LoadError, Loaded},
    reconcile::Reconciler,
};
use crate::{
    lease::{ClusterId, HolderIdentity},
    masters::{Credentials, Tls},
    operator::{
        access::Access,
        http,
        quorum::{Candidate, QuorumEnded},
        signals::Signals,
        state::{InUse, State},
    },
    telemetry::{Origin, Telemetry},
};

/// Whatever happens, the process has ended so long after it was told to: less than the 2 s that it promises.
const ENDING: Duration = Duration::from_millis(1_600);
/// How often the locks are looked at for what passes between two scrapes. This is
/// the error of the time unheld.
const LOOK: Duration = Duration::from_secs(1);

/// What is asked for on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub folder: PathBuf,
    pub listen: SocketAddr,
    pub identity: HolderIdentity,
    pub cluster: ClusterId,
    pub credentials: Credentials,
    pub tls: Tls,
    /// Tell metrics of single locks.
    pub lock_metrics: bool,
}

/// Why the process ends before it was told to.
#[derive(Debug, Error)]
pub enum OperatorError {
    #[error(transparent)]
    Folder(#[from] LoadError),
    #[error("listening on {address} (--listen): {}", http::advice(source))]
    Listen { address: SocketAddr, source: io::Error },
    #[error("setting up the metrics")]
    Metrics(#[source] prometheus::Error),
    #[error("listening for signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Quorum(#[from] QuorumEnded),
    #[error("the task that {task} ended: {reason}")]
    Task { task: &'static str, reason: String },
}

impl OperatorError {
    /// Whether somebody has to change a flag, a file or an address.
    #[must_use]
    pub const fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Listen { .. })
    }
}

/// Contends for every lock that the folder declares, until SIGTERM or SIGINT.
///
/// # Errors
/// A folder or an address that cannot be used at the start; any task that ends.
pub async fn run(options: Options) -> Result<(), OperatorError> {
    let mut signals = Signals::listen().map_err(OperatorError::Signals)?;
    let loaded = match folder::read(&options.folder).await {
        Ok(loaded) => loaded?,
        Err(broken) => return Err(ended("reads the folder", Err(broken))),
    };
    let address = options.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| OperatorError::Listen { address, source })?;
    let origin = Origin {
        component: "operator",
        identity: options.identity.clone(),
        cluster: options.cluster.clone(),
    };
    let telemetry = Telemetry::new(origin, options.lock_metrics).map_err(OperatorError::Metrics)?;
    let state = Arc::new(State {
        identity: options.identity.clone(),
        cluster: options.cluster.clone(),
        telemetry,
        in_use: ArcSwap::from_pointee(InUse::default()),
    });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = %options.identity,
        cluster = %options.cluster,
        folder = %options.folder.display(),
        listen = %listener.local_addr().unwrap_or(address),
        "operator started"
    );
    let candidate = Candidate {
        identity: options.identity,
        cluster: options.cluster,
    };
    let access = Access {
        credentials: options.credentials,
        tls: options.tls,
    };
    let reconciler = Reconciler::new(candidate, access, state.clone());
    let mut operator = Operator::start(options.folder, loaded, listener, reconciler, state);
    let end = operator.run(&mut signals).await;
    let end = operator.stop(end).await;
    if end.is_ok() {
        tracing::info!("operator ended");
    }
    end
}

struct Operator {
    reconciler: Reconciler,
    state: Arc<State>,
    changes: mpsc::Receiver<Result<Loaded, LoadError>>,
    following: JoinHandle<io::Result<()>>,
    serving: JoinHandle<io::Result<()>>,
}

impl Operator {
    fn start(
        folder: PathBuf,
        loaded: Loaded,
        listener: TcpListener,
        mut reconciler: Reconciler,
        state: Arc<State>,
    ) -> Self {
        let (told, changes) = mpsc::channel(1);
        reconciler.folder_changed(Ok(loaded.clone()));
        Self {
            reconciler,
            state: state.clone(),
            changes,
            following: tokio::spawn(folder::follow(folder, loaded, told)),
            serving: tokio::spawn(http::serve(listener, state)),
        }
    }

    async fn run(&mut self, signals: &mut Signals) -> Result<(), OperatorError> {
        let mut look = time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                name = signals.next() => {
                    tracing::info!(signal = name, "operator stops: gives every lock back");
                    return Ok(());
                }
                Some(loaded) = self.changes.recv() => self.reconciler.folder_changed(loaded),
                end = self.reconciler.quorum_ended() => end?,
                _ = look.tick() => self.state.look(),
                end = &mut self.following => return Err(ended("follows the folder", end)),
                end = &mut self.serving => return Err(ended("serves HTTP", end)),
            }
        }
    }

    /// Gives everything up, in bounded time. What ended first is what is told. Further signals change nothing: whoever
    /// signals a process and its group (`timeout`, a shell) sends two at once.
    async fn stop(mut self, end: Result<(), OperatorError>) -> Result<(), OperatorError> {
        if time::timeout(ENDING, self.reconciler.stop()).await.is_err() {
            tracing::warn!("not everything could be given back in time: leases run out by themselves");
        }
        self.following.abort();
        self.serving.abort();
        end
    }
}

fn ended(task: &'static str, end: Result<io::Result<()>, JoinError>) -> OperatorError {
    let reason = match end {
        Ok(Ok(())) => "it returned".to_owned(),
        Ok(Err(cause)) => cause.to_string(),
        Err(broken) => broken.to_string(),
    };
    OperatorError::Task { task, reason }
}
