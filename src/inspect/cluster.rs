//! Access to the API server for a user: objects by their names, with the user's own rights.
//!
//! Owns the connection, the objects that are read, and the errors of a refusal. Masters are opened here and
//! reached directly, not through the API server.

mod error;
mod masters;
mod objects;

use std::{env, path::PathBuf, time::Duration};

use kube::{Client, Config};

pub use error::{Blame, ClusterError};
pub use masters::Given;
pub use objects::{DeclaredLock, Unread};
pub(in crate::inspect) use objects::{check_quorum, plan};

use crate::operator::{
    api_server::{configure, no_kubeconfig, read_kubeconfig},
    given::given,
};

/// A user waits at a terminal: an API server that takes longer to answer counts as unreachable.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(15);

fn set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| given(&value).is_some())
}

/// The cluster, and a namespace of it.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// The kubeconfig, instead of the one that KUBECONFIG names, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub namespace: Option<String>,
}

/// A connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    /// Whether the user gave the namespace. A given namespace that does not exist is a typing error.
    namespace_given: bool,
}

// The debug output of a client is of no use.
impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl ClusterOptions {
    /// Reports whether the flags name a cluster, or this machine has a kubeconfig or is a pod.
    #[must_use]
    pub fn is_somewhere(&self) -> bool {
        self.kubeconfig.is_some()
            || set("KUBECONFIG")
            || set("KUBERNETES_SERVICE_HOST")
            || env::home_dir().is_some_and(|home| home.join(".kube/config").is_file())
    }

    /// Reads the kubeconfig; sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig is missing or cannot be used, or does not have the context.
    pub async fn open(&self) -> Result<Cluster, ClusterError> {
        let mut config = self.config()?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(READ);
        config.write_timeout = Some(CONNECT);
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|e| ClusterError::Client(Box::new(e)))?;
        Ok(Cluster {
            client,
            namespace,
            namespace_given: self.namespace.is_some(),
        })
    }

    fn config(&self) -> Result<Config, ClusterError> {
        let kubeconfig = match read_kubeconfig(self.kubeconfig.as_deref()) {
            // Without a kubeconfig, a pod uses its service account. A named context needs a kubeconfig.
            Err(error) if self.in_pod() && no_kubeconfig(&error) => {
                return Config::incluster().map_err(ClusterError::pod);
            }
            read => read.map_err(|error| ClusterError::kubeconfig(error.into()))?,
        };
        if let Some(context) = &self.context {
            let known: Vec<&str> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
            if !known.contains(&context.as_str()) {
                return Err(ClusterError::NoContext {
                    context: context.clone(),
                    known: known.join(", "),
                });
            }
        }
        configure(kubeconfig, self.context.as_deref()).map_err(ClusterError::kubeconfig)
    }

    fn in_pod(&self) -> bool {
        self.kubeconfig.is_none() && self.context.is_none() && set("KUBERNETES_SERVICE_HOST")
    }
}
