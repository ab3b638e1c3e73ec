//! Defines the errors that end a process of the operator without a signal, regardless of the source of its
//! objects.

use std::{io, net::SocketAddr};

use thiserror::Error;
use tokio::net::TcpListener;

use super::{http, quorum::QuorumEnded};
use crate::http_server;

/// An error that does not depend on the source of the objects.
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
    /// Reports whether a flag or an address has to be changed.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Listen { .. })
    }
}

/// The reason why a process of the operator ends without a signal, regardless of the source of its objects.
/// `C` is the type of the errors in its configuration.
#[derive(Debug, Error)]
pub(crate) enum OperatorError<C> {
    #[error(transparent)]
    Configuration(C),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl<C> OperatorError<C> {
    /// Reports whether a flag, a file or an address has to be changed.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        match self {
            Self::Configuration(_) => true,
            Self::Process(error) => error.is_of_configuration(),
        }
    }
}

/// Binds the listener for `/metrics` and the other paths.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, ProcessError> {
    http_server::bind(address).map_err(|source| ProcessError::Listen { address, source })
}
