//! Reads the identity of this cluster: the name given to the operator, and the UID of the kube-system namespace.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time;

use super::error::ConfigurationError;
use crate::{lease::ClusterId, targets::deepest};

const NAMESPACE: &str = "kube-system";
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// Returns the identity of this cluster. Retries until the API server answers: a restart of the pod would not
/// make it answer sooner.
///
/// # Errors
///
/// Returns an error if the name is not a valid cluster name.
pub(crate) async fn cluster_id(client: &Client, name: &str) -> Result<ClusterId, ConfigurationError> {
    let id = |uid: &str| {
        ClusterId::new(name, uid).map_err(|source| ConfigurationError::ClusterName {
            name: name.to_owned(),
            source,
        })
    };
    // Validates the name before the first request.
    id("uid")?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut pause = SHORTEST;
    loop {
        let reason = match namespaces.get(NAMESPACE).await {
            Ok(namespace) => match namespace.metadata.uid {
                Some(uid) => return id(&uid),
                None => "the namespace has no UID".to_owned(),
            },
            Err(kube::Error::Api(status)) => status.message.clone(),
            Err(error) => deepest(&error),
        };
        tracing::warn!(reason, "namespace {NAMESPACE} cannot be read; retrying");
        time::sleep(pause).await;
        pause = LONGEST.min(pause * 2);
    }
}
