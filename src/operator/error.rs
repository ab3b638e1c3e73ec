//! Why a process of the operator ends before it was told to, wherever its objects come from.

use std::{io, net::SocketAddr};

use thiserror::Error;
use tokio::net::TcpListener;

use super::{http, quorum::QuorumEnded};

/// See the module.
#[derive(Debug, Error)]
pub(crate) enum ProcessError {
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

impl ProcessError {
    /// Whether somebody has to change a flag or an address.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Listen { .. })
    }
}

/// Where `/metrics` and its like are answered.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, ProcessError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| ProcessError::Listen { address, source })
}
