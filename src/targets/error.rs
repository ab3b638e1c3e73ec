//! What went wrong with the API server.

use thiserror::Error;

/// The API server did not do what it was asked for.
#[derive(Debug, Error)]
pub(crate) enum TargetError {
    #[error("{what}: {reason}")]
    Api {
        what: String,
        reason: String,
        /// It said no; otherwise it may still do it.
        refusal: bool,
    },
    #[error("apiVersion {api_version:?} of kind {kind} cannot be one")]
    ApiVersion { api_version: String, kind: String },
    #[error("kind {kind} of {api_version} is not known to the API server")]
    UnknownKind { api_version: String, kind: String },
}

impl TargetError {
    /// Whether what was asked for will not be done any more.
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::Api { refusal, .. } => *refusal,
            Self::ApiVersion { .. } | Self::UnknownKind { .. } => true,
        }
    }

    /// The reason of a condition.
    pub(crate) const fn reason(&self) -> &'static str {
        "TargetUnreachable"
    }

    pub(crate) fn of(what: impl Into<String>, error: &kube::Error) -> Self {
        let reason = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => deepest(other),
        };
        Self::Api {
            what: what.into(),
            reason,
            refusal: matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code)),
        }
    }
}

/// The cause that says something: what wraps it only says that something failed.
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
