//! The errors when the API server or one of its objects cannot be used: one line, with the expected value.

use kube::config::{InClusterError, KubeconfigError};
use thiserror::Error;

use crate::{
    api::validate::FieldError,
    masters::AdoptError,
    operator::{
        access::SecretError,
        api_server::{ApiServerError, chain},
    },
};

/// The person that must correct the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The user of the command.
    Usage,
    /// The administrator of the rights.
    Rights,
    /// The author of the file or the object, or the administrator of the server.
    Configuration,
}

#[derive(Debug, Error)]
pub enum ClusterError {
    #[error("kubeconfig: {0}; give --kubeconfig FILE, or set KUBECONFIG")]
    Kubeconfig(String),
    #[error("{0}")]
    Proxy(String),
    #[error("--context {context:?}: the kubeconfig has no such context; it has: {known}")]
    NoContext { context: String, known: String },
    #[error("in this pod: {0}")]
    Pod(#[source] InClusterError),
    #[error("setting up the client of the API server")]
    Client(#[source] Box<kube::Error>),
    #[error("{doing}: not allowed: {message}{instead}")]
    Forbidden {
        doing: String,
        message: String,
        /// A way that does not need the right, beginning with `; `.
        instead: String,
    },
    #[error("{doing}: the API server does not accept the credentials: {message}; log in again")]
    Unauthenticated { doing: String, message: String },
    #[error("{doing}: the API server cannot be reached: {reason}")]
    Unreachable { doing: String, reason: String },
    #[error("{doing}: the API server refused: {message}")]
    Refused { doing: String, message: String },
    #[error("{doing}: the API server has no such kind: install it with `redlock crd | kubectl apply -f -`")]
    NotInstalled { doing: String },
    #[error("there is no {0}")]
    NotFound(String),
    #[error("there is no namespace {0:?}")]
    NoNamespace(String),
    #[error("there is no RedisQuorum in this cluster")]
    NoQuorum,
    #[error("the cluster has several RedisQuorums: {0}; give --quorum NAME")]
    WhichQuorum(String),
    #[error("LeaderLock {lock} uses RedisQuorum {actual}, not {asked}: omit --quorum")]
    OtherQuorum {
        lock: String,
        actual: String,
        asked: String,
    },
    #[error(
        "{0:?} is not the name of a LeaderLock: with a kubeconfig LOCK is the object's name, and --namespace is its \
         namespace; with --masters it is the name on the masters"
    )]
    NotAName(String),
    #[error("{object} cannot be used: {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid { object: String, errors: Vec<FieldError> },
    #[error("{object} cannot be read by this version: {reason}")]
    Unreadable { object: String, reason: String },
    #[error("RedisQuorum {quorum}: {error}")]
    Secret { quorum: String, error: SecretError },
    #[error("RedisQuorum {quorum}")]
    Masters {
        quorum: String,
        #[source]
        source: AdoptError,
    },
}

/// Names the settings of the proxy in an error of the connection to it.
fn with_proxy(reason: String) -> String {
    if ["tunnel error", "SOCKS error"]
        .iter()
        .any(|of_proxy| reason.contains(of_proxy))
    {
        format!("{reason}; check the proxy: proxy-url of the kubeconfig, HTTPS_PROXY and NO_PROXY")
    } else {
        reason
    }
}

impl ClusterError {
    #[must_use]
    pub const fn blame(&self) -> Blame {
        match self {
            Self::NotAName(_) | Self::WhichQuorum(_) | Self::OtherQuorum { .. } => Blame::Usage,
            Self::Forbidden { .. } | Self::Unauthenticated { .. } => Blame::Rights,
            Self::Kubeconfig(_)
            | Self::Proxy(_)
            | Self::NoContext { .. }
            | Self::Pod(_)
            | Self::Client(_)
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::NotInstalled { .. }
            | Self::NotFound(_)
            | Self::NoNamespace(_)
            | Self::NoQuorum
            | Self::Invalid { .. }
            | Self::Unreadable { .. }
            | Self::Secret { .. }
            | Self::Masters { .. } => Blame::Configuration,
        }
    }

    pub(super) fn kubeconfig(error: ApiServerError) -> Self {
        match error {
            ApiServerError::Kubeconfig(KubeconfigError::ReadConfig(cause, path)) => {
                Self::Kubeconfig(format!("{} cannot be read: {cause}", path.display()))
            }
            ApiServerError::Kubeconfig(KubeconfigError::CurrentContextNotSet) => {
                Self::Kubeconfig("no current context is set: give --context NAME".to_owned())
            }
            ApiServerError::Kubeconfig(cause) => Self::Kubeconfig(chain(&cause)),
            ApiServerError::Proxy(error) => Self::Proxy(error.to_string()),
            error @ ApiServerError::Authority { .. } => Self::Kubeconfig(error.to_string()),
        }
    }

    pub(super) fn pod(error: InClusterError) -> Self {
        Self::Pod(error)
    }

    /// Returns the error for an answer of the API server while `doing` an operation; `object` is the requested object,
    /// if it is one.
    pub(in crate::inspect) fn asked(doing: &str, object: Option<&str>, error: &kube::Error) -> Self {
        let doing = doing.to_owned();
        let kube::Error::Api(status) = error else {
            let reason = with_proxy(chain(error));
            return match error {
                kube::Error::Auth(_) => Self::Unauthenticated {
                    doing,
                    message: reason,
                },
                _ => Self::Unreachable { doing, reason },
            };
        };
        let message = status.message.trim().to_owned();
        let named = status
            .details
            .as_ref()
            .is_some_and(|details| !details.name.is_empty());
        match (status.code, object) {
            (401, _) => Self::Unauthenticated { doing, message },
            (403, _) => Self::Forbidden {
                doing,
                message,
                instead: String::new(),
            },
            (404, Some(object)) if named => Self::NotFound(object.to_owned()),
            (404, _) => Self::NotInstalled { doing },
            _ => Self::Refused { doing, message },
        }
    }

    /// Adds a way that does not need the right.
    pub(super) fn or_else(mut self, what: &str) -> Self {
        if let Self::Forbidden { instead, .. } = &mut self {
            *instead = format!("; {what}");
        }
        self
    }
}
