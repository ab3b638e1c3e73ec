//! What is switched where a lock is held: one file an action.
//!
//! Owns how an object is looked at, started and stopped. Refuses to decide when: whoever calls asks for authority after
//! the last await before a write that starts something.

pub(crate) mod scale;

use kube::{Client, api::ApiResource, core::GroupVersionKind, discovery};
use thiserror::Error;

use crate::api::target::TargetRef;

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

    fn of(what: impl Into<String>, error: &kube::Error) -> Self {
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

/// Where objects of this kind are found.
pub(crate) async fn resource(client: &Client, reference: &TargetRef) -> Result<ApiResource, TargetError> {
    let (api_version, kind) = (reference.api_version.clone(), reference.kind.clone());
    let Ok(version) = reference.api_version.parse::<kube::core::GroupVersion>() else {
        return Err(TargetError::ApiVersion { api_version, kind });
    };
    let kind_of = GroupVersionKind::gvk(&version.group, &version.version, &kind);
    match discovery::pinned_kind(client, &kind_of).await {
        Ok((resource, _)) => Ok(resource),
        Err(kube::Error::Api(status)) if !status.is_not_found() => Err(TargetError::Api {
            what: format!("looking for kind {kind} of {api_version}"),
            reason: status.message,
            refusal: true,
        }),
        Err(kube::Error::Api(_) | kube::Error::Discovery(_)) => {
            Err(TargetError::UnknownKind { api_version, kind })
        }
        Err(error) => Err(TargetError::of(
            format!("looking for kind {kind} of {api_version}"),
            &error,
        )),
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
