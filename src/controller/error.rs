//! Why the operator of a cluster ends by itself.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::declared;
use crate::{lease::identity::IdentityError, operator::error::ProcessError};

/// Why the process ends without a signal.
#[derive(Debug, Error)]
pub(crate) enum OperatorError {
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
    /// Whether a flag, a file or an address has to be changed.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        match self {
            Self::NoCluster(_) | Self::Client(_) | Self::QuorumsFile { .. } | Self::ClusterName { .. } => {
                true
            }
            Self::Process(error) => error.is_of_configuration(),
        }
    }
}
