//! The process: owns the folder, the quorums and the HTTP side, and ends when any of them does.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

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
        error::{ProcessError, listen},
        guarded::Details,
        http,
        quorum::Candidate,
        signals::Signals,
        state::{InUse, State},
    },
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
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl OperatorError {
    /// Whether somebody has to change a flag, a file or an address.
    #[must_use]
    pub const fn is_of_configuration(&self) -> bool {
        match self {
            Self::Folder(_) => true,
            Self::Process(error) => error.is_of_configuration(),
        }
    }
}

/// Contends for every lock that the folder declares, until SIGTERM or SIGINT.
///
/// # Errors
/// A folder or an address that cannot be used at the start; any task that ends.
pub async fn run(options: Options) -> Result<(), OperatorError> {
    let mut signals = Signals::listen().map_err(ProcessError::Signals)?;
    let loaded = match folder::read(&options.folder).await {
        Ok(loaded) => loaded?,
        Err(broken) => return Err(ended("reads the folder", Err(broken)).into()),
    };
    let listener = listen(options.listen).await?;
    let (identity, cluster) = (options.identity.clone(), options.cluster.clone());
    let state = State::new(
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
            serving: tokio::spawn(http::serve(listener, state, Details::default())),
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
                end = self.reconciler.quorum_ended() => end.map_err(ProcessError::from)?,
                _ = look.tick() => self.state.look(),
                end = &mut self.following => return Err(ended("follows the folder", end).into()),
                end = &mut self.serving => return Err(ended("serves HTTP", end).into()),
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

fn ended(task: &'static str, end: Result<io::Result<()>, JoinError>) -> ProcessError {
    let reason = match end {
        Ok(Ok(())) => "it returned".to_owned(),
        Ok(Err(cause)) => cause.to_string(),
        Err(broken) => broken.to_string(),
    };
    ProcessError::Task { task, reason }
}
