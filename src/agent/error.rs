//! The reasons why an agent ends before it is asked to.

use thiserror::Error;

use crate::{
    lease::timing::TimingError,
    masters::{AdoptError, ConfigError},
    operator::error::ProcessError,
};

/// The reason why an agent ends before it is asked to.
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
    /// Reports whether a flag, a file or an address must be changed.
    #[must_use]
    pub(crate) const fn is_of_configuration(&self) -> bool {
        match self {
            Self::Process(error) => error.is_of_configuration(),
            Self::Masters(_) | Self::Adopt(_) | Self::Timings(_) => true,
        }
    }
}
