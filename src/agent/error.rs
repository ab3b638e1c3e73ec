//! Why an agent ends before it was told to.

use thiserror::Error;

use crate::{
    lease::timing::TimingError,
    masters::{AdoptError, ConfigError},
    operator::error::ProcessError,
};

/// See the module.
#[derive(Debug, Error)]
pub(crate) enum AgentError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Masters(#[from] ConfigError),
    #[error(transparent)]
    Adopt(AdoptError),
    #[error("the timings (--lease-duration, --stop-grace)")]
    Timings(#[from] TimingError),
}

impl AgentError {
    /// Whether somebody has to change a flag, a file or an address.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        match self {
            Self::Process(error) => error.is_of_configuration(),
            Self::Masters(_) | Self::Adopt(_) | Self::Timings(_) => true,
        }
    }
}
