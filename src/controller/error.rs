//! Defines the errors that prevent the operator of a cluster from starting.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::declared;
use crate::{lease::identity::IdentityError, operator::error};

/// The reason why the process ends without a signal.
pub(crate) type OperatorError = error::OperatorError<ConfigurationError>;

/// A flag, a file or an environment that cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigurationError {
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
}

impl From<ConfigurationError> for OperatorError {
    fn from(error: ConfigurationError) -> Self {
        Self::Configuration(error)
    }
}
