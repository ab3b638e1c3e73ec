//! Reads the identity of this cluster: the name given to the operator, and the UID of the kube-system namespace.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{Api, Client};
use tokio::time;

use super::{coordination::ClusterCopy, error::ConfigurationError};
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
    // Validates the name before the first request.
    named(name, "uid")?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut retries = ReadRetries::default();
    loop {
        let reason = match namespaces.get(NAMESPACE).await {
            Ok(namespace) => match namespace.metadata.uid {
                Some(uid) => return named(name, &uid),
                None => "the namespace has no UID".to_owned(),
            },
            Err(kube::Error::Api(status)) => status.message.clone(),
            Err(error) => deepest(&error),
        };
        retries.wait(&format!("namespace {NAMESPACE}"), &reason).await;
    }
}

fn named(name: &str, uid: &str) -> Result<ClusterId, ConfigurationError> {
    ClusterId::new(name, uid).map_err(|source| ConfigurationError::ClusterName {
        name: name.to_owned(),
        source,
    })
}

/// The pauses between the attempts to read an object without which the process cannot begin.
struct ReadRetries {
    pause: Duration,
}

impl Default for ReadRetries {
    fn default() -> Self {
        Self { pause: SHORTEST }
    }
}

impl ReadRetries {
    /// Reports a failed attempt, and waits until the next one.
    async fn wait(&mut self, what: &str, reason: &str) {
        tracing::warn!(reason, "{what} cannot be read; retrying");
        time::sleep(self.pause).await;
        self.pause = LONGEST.min(self.pause * 2);
    }
}

/// The cluster of this process.
#[derive(Debug)]
pub(super) struct ThisCluster {
    pub(super) id: ClusterId,
    /// The mark in its UID, if the cluster is a copy of another one.
    pub(super) copy: Option<ClusterCopy>,
}

impl ThisCluster {
    /// Reads the identity of this cluster, and the Lease of the coordinator with these namespace and name. Retries until the
    /// API server answers.
    pub(super) async fn read(
        client: &Client,
        name: &str,
        coordination: Option<(String, String)>,
    ) -> Result<Self, ConfigurationError> {
        let id = cluster_id(client, name).await?;
        let copy = match coordination {
            Some((namespace, lease)) => cluster_copy(client, &namespace, &lease).await,
            None => None,
        };
        let id = match &copy {
            Some(copy) => named(name, &copy.uid(id.uid()))?,
            None => id,
        };
        Ok(Self { id, copy })
    }
}

/// Returns the mark of a copy in the Lease of the coordinator. Retries until the API server answers; returns
/// `None` without the permission.
async fn cluster_copy(client: &Client, namespace: &str, name: &str) -> Option<ClusterCopy> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let mut retries = ReadRetries::default();
    loop {
        match leases.get_opt(name).await {
            Ok(lease) => return ClusterCopy::of(&lease?),
            Err(kube::Error::Api(status)) if status.is_forbidden() => return None,
            Err(error) => {
                let what = format!("the Lease {namespace}/{name}");
                retries.wait(&what, &deepest(&error)).await;
            }
        }
    }
}
