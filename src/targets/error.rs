//! What went wrong with the API server.

use thiserror::Error;

/// The API server did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TargetError {
    #[error("{what}: {reason}")]
    Api {
        what: String,
        reason: String,
        /// It said no; otherwise it may still do it.
        refusal: bool,
    },
    #[error("{what}: {reason}{grant}")]
    Forbidden {
        what: String,
        reason: String,
        /// The rule that is missing, to be pasted, where the action knows it.
        grant: String,
    },
    #[error("apiVersion {api_version:?} of kind {kind} cannot be one: write GROUP/VERSION, such as apps/v1")]
    ApiVersion { api_version: String, kind: String },
    #[error(
        "no version of kind {kind} of {api_version} is served by the API server: whether the target runs is unknown; it \
         is followed once the kind is served"
    )]
    UnknownKind { api_version: String, kind: String },
    #[error(
        "{what}: kind {kind} is not served as {api_version} any more ({reason}): whether the target runs is unknown until \
         the object is found again"
    )]
    NotServed {
        what: String,
        api_version: String,
        kind: String,
        reason: String,
    },
    #[error(
        "kind {kind} of {api_version} has no scale subresource: action Scale switches nothing without; \
         CronJobs and Jobs are switched by Suspend"
    )]
    NoScale { api_version: String, kind: String },
}

impl TargetError {
    /// The reason of what is not permitted.
    pub(crate) const FORBIDDEN: &str = "Forbidden";

    /// Whether what was asked for will not be done any more.
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::Api { refusal, .. } => *refusal,
            Self::Forbidden { .. }
            | Self::ApiVersion { .. }
            | Self::UnknownKind { .. }
            | Self::NotServed { .. }
            | Self::NoScale { .. } => true,
        }
    }

    /// Whether discovery answered, and the kind cannot be used.
    pub(crate) const fn is_about_kind(&self) -> bool {
        matches!(
            self,
            Self::ApiVersion { .. } | Self::UnknownKind { .. } | Self::NoScale { .. }
        )
    }

    /// The reason of a condition.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => "TargetUnreachable",
            Self::Forbidden { .. } => Self::FORBIDDEN,
            Self::ApiVersion { .. } | Self::UnknownKind { .. } | Self::NotServed { .. } => "KindUnknown",
            Self::NoScale { .. } => "NoScaleSubresource",
        }
    }

    pub(crate) fn of(what: impl Into<String>, error: &kube::Error) -> Self {
        let what = what.into();
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::Forbidden {
                what,
                reason: status.message.clone(),
                grant: String::new(),
            },
            kube::Error::Api(status) => Self::Api {
                what,
                reason: status.message.clone(),
                refusal: (400..500).contains(&status.code),
            },
            other => Self::Api {
                what,
                reason: deepest(other),
                refusal: false,
            },
        }
    }

    /// The same with the rule that would allow it.
    pub(crate) fn granting(self, rule: impl FnOnce() -> String) -> Self {
        match self {
            Self::Forbidden { what, reason, .. } => Self::Forbidden {
                what,
                reason,
                grant: format!("\n{}", rule()),
            },
            other => other,
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
