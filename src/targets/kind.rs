//! Where objects of a kind are found.

use kube::{Client, api::ApiResource, core::GroupVersionKind, discovery};

use super::TargetError;
use crate::api::target::TargetRef;

/// Asks the API server once: which resource the kind of an object is does not change.
pub(super) async fn resource(client: &Client, reference: &TargetRef) -> Result<ApiResource, TargetError> {
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
