//! The API server as a person reaches it: objects by their names, with that person's own rights.
//!
//! Owns the connection, the objects that are read, and the errors of a refusal. Masters are opened from here and
//! reached directly: the API server passes nothing on to them.

mod error;
mod masters;
mod objects;

use std::{env, path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

pub use error::{Blame, ClusterError};
pub use masters::Given;
pub use objects::{DeclaredLock, Unread};
pub(in crate::inspect) use objects::{check_quorum, plan};

/// A person waits at a terminal: an API server that takes longer to answer counts as unreachable.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(15);

/// Which cluster, and which namespace of it.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Instead of what KUBECONFIG names, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub namespace: Option<String>,
}

/// A cluster that can be asked.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    /// Typed, not the context's: one that does not exist is a slip of the pen.
    namespace_given: bool,
}

// A client shows nothing of use.
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
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        self.kubeconfig.is_some()
            || set("KUBECONFIG")
            || set("KUBERNETES_SERVICE_HOST")
            || env::home_dir().is_some_and(|home| home.join(".kube/config").is_file())
    }

    /// Reads the kubeconfig; sends no request yet.
    ///
    /// # Errors
    /// A kubeconfig that is missing or cannot be used, or a context that it does not have.
    pub async fn open(&self) -> Result<Cluster, ClusterError> {
        let mut config = self.config().await?;
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

    async fn config(&self) -> Result<Config, ClusterError> {
        let kubeconfig = match &self.kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => match Kubeconfig::read() {
                // Without one, a pod has a way of its own; a context that was named needs a kubeconfig.
                Err(_) if self.in_pod() => return Config::incluster().map_err(ClusterError::pod),
                read => read,
            },
        };
        let kubeconfig = kubeconfig.map_err(ClusterError::kubeconfig)?;
        if let Some(context) = &self.context {
            let known: Vec<&str> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
            if !known.contains(&context.as_str()) {
                return Err(ClusterError::NoContext {
                    context: context.clone(),
                    known: known.join(", "),
                });
            }
        }
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(ClusterError::kubeconfig)
    }

    fn in_pod(&self) -> bool {
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        self.context.is_none() && !set("KUBECONFIG") && set("KUBERNETES_SERVICE_HOST")
    }
}
