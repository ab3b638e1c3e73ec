//! Defines the errors that end the node agent without a signal.

use std::io;

use redlock_csi::ServeError;
use redlock_node::agent::AgentError;
use thiserror::Error;

use crate::{controller::ConfigurationError, operator::error::ProcessError};

#[derive(Debug, Error)]
pub(crate) enum NodeAgentError {
    #[error(
        "finding the API server: not in a pod, and the kubeconfig cannot be used ({0}); set KUBECONFIG, or run in a pod"
    )]
    NoCluster(String),
    #[error(transparent)]
    Configuration(ConfigurationError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Driver(#[from] ServeError),
    #[error("serving HTTP")]
    Http(#[from] io::Error),
}

impl From<ConfigurationError> for NodeAgentError {
    fn from(error: ConfigurationError) -> Self {
        match error {
            ConfigurationError::NoCluster(reason) => Self::NoCluster(reason),
            other => Self::Configuration(other),
        }
    }
}

impl NodeAgentError {
    /// Reports whether a flag, a mount or an address has to be changed.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        match self {
            Self::NoCluster(_) | Self::Configuration(_) => true,
            Self::Process(error) => error.is_of_configuration(),
            Self::Agent(error) => matches!(error, AgentError::Table(_) | AgentError::Kubelet(_)),
            Self::Driver(error) => matches!(error, ServeError::Socket(_)),
            Self::Http(_) => false,
        }
    }
}
