//! The process: owns the folder, the quorums and the HTTP server, and ends when one of them fails.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::{sync::mpsc, time};

use super::{
    folder,
    manifests::{LoadError, Loaded},
    reconcile::Reconciler,
};
use crate::{
    http_server::{ServedAddress, serve_on_thread},
    lease::{ClusterId, HolderIdentity},
    masters::{Credentials, Tls},
    operator::{
        access::Access,
        error::{self, ProcessError, listen},
        http::{DetailsPlace, OperatorRoutes},
        process::{Process, ended},
        process_limits::{HttpClients, set_process_limits},
        quorum::Candidate,
        signals::Signals,
        state::{InUse, ProcessState},
    },
};

/// The longest time for the release of the locks at the end, less than the 2 s within which the process must
/// end.
const ENDING: Duration = Duration::from_millis(1_600);

/// The settings of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) folder: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) identity: HolderIdentity,
    pub(crate) cluster: ClusterId,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Tls,
    /// Whether to write metrics of single locks.
    pub(crate) lock_metrics: bool,
}

/// The reason why the process ends without a signal.
pub(crate) type OperatorError = error::OperatorError<LoadError>;

impl From<LoadError> for OperatorError {
    fn from(error: LoadError) -> Self {
        Self::Configuration(error)
    }
}

/// Contends for every lock that the folder declares, until SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error if the folder or the address cannot be used at the start, or if a task ends.
pub(crate) async fn run(options: Options) -> Result<(), OperatorError> {
    let signals = Signals::listen().map_err(ProcessError::Signals)?;
    let loaded = match folder::read(&options.folder).await {
        Ok(loaded) => loaded?,
        Err(broken) => return Err(ended("reads the folder", Err(io::Error::other(broken))).into()),
    };
    set_process_limits(HttpClients {
        addresses: 1,
        long_answers: 0,
    });
    let listener = listen(options.listen)?;
    let (identity, cluster) = (options.identity.clone(), options.cluster.clone());
    let state = ProcessState::new(
        "operator",
        identity,
        cluster,
        options.lock_metrics,
        InUse::default(),
    )?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = %options.identity,
        cluster = %options.cluster,
        folder = %options.folder.display(),
        listen = %listener.local_addr().unwrap_or(options.listen),
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
    let mut reconciler = Reconciler::new(candidate, access, state.clone());
    let mut process = Process::new(signals, state.clone());
    let (sender, changes) = mpsc::channel(1);
    reconciler.folder_changed(Ok(loaded.clone()));
    process.spawn(
        "follows the folder",
        folder::follow(options.folder, loaded, sender),
    );
    let routes = OperatorRoutes::new(state, None, DetailsPlace::WithProbes).public;
    let served = vec![ServedAddress { listener, routes }];
    process.spawn("serves HTTP", serve_on_thread(served));
    let end = contend(&mut process, &mut reconciler, changes).await;
    // Only the first cause of the end is reported. Further signals have no effect, because a sender that
    // signals a process and its group (`timeout`, a shell) sends two at once.
    if time::timeout(ENDING, reconciler.stop()).await.is_err() {
        tracing::warn!("not every lock was released in time: the remaining leases expire by themselves");
    }
    process.shut_down().await;
    if end.is_ok() {
        tracing::info!("operator ended");
    }
    end
}

/// Runs until a signal arrives, or until a task that must not end has ended.
async fn contend(
    process: &mut Process,
    reconciler: &mut Reconciler,
    mut changes: mpsc::Receiver<Result<Loaded, LoadError>>,
) -> Result<(), OperatorError> {
    loop {
        tokio::select! {
            end = process.stopped() => {
                let name = end?;
                tracing::info!(signal = name, "the operator stops and releases every lock");
                return Ok(());
            }
            Some(loaded) = changes.recv() => reconciler.folder_changed(loaded),
            end = reconciler.quorum_ended() => end.map_err(ProcessError::from)?,
        }
    }
}
