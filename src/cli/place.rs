//! The place that a command reads: masters that are named, or the objects of a cluster.

use std::path::PathBuf;

use clap::Args;

use super::{Exit, Failure, QuorumArgs};
use crate::inspect::cluster::{Blame, Cluster, ClusterError, ClusterOptions, Given};

/// The cluster whose objects are read. These options take precedence over an exported REDLOCK_MASTERS.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesArgs {
    /// The kubeconfig. Defaults to KUBECONFIG, ~/.kube/config or, in a pod, its ServiceAccount.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["masters", "config"])]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; defaults to the current context. `status` and `top` take several, one --context for
    /// each.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["masters", "config"])]
    pub context: Vec<String>,
    /// Namespace of the LeaderLock; defaults to that of the context.
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["masters", "config"])]
    pub namespace: Option<String>,
    /// The RedisQuorum; defaults to the one that the lock names, or to the only one.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["masters", "config"])]
    pub quorum: Option<String>,
}

/// The connection flags of a command that accepts either.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    #[command(flatten)]
    pub quorum: QuorumArgs,
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
}

/// The place that the flags name.
#[derive(Debug)]
pub(super) enum Place {
    /// LOCK is the name on the masters.
    Masters,
    /// LOCK is the name of an object.
    Cluster(Box<Cluster>, Box<Given>),
}

const NOWHERE: &str = "no masters given: give --masters URL,… or --config FILE, set REDLOCK_MASTERS, or use a \
    kubeconfig (--kubeconfig FILE, KUBECONFIG or ~/.kube/config)";

/// The name of a context, and its cluster, which was not contacted yet.
pub(super) type ClusterNamed = (String, ClusterOptions);

impl KubernetesArgs {
    fn typed(&self) -> bool {
        let one = self.kubeconfig.is_some() || self.namespace.is_some() || self.quorum.is_some();
        one || !self.context.is_empty()
    }

    fn options(&self, context: Option<&String>) -> ClusterOptions {
        ClusterOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: context.cloned(),
            namespace: self.namespace.clone(),
        }
    }
}

impl PlaceArgs {
    /// Returns the place that the flags name.
    ///
    /// # Errors
    /// Returns an error if neither masters nor a cluster are named, several contexts are, or a kubeconfig is
    /// unusable.
    pub(super) async fn place(&self, all_namespaces: bool) -> Result<Place, Failure> {
        let Some(clusters) = self.clusters(all_namespaces)? else {
            return Ok(Place::Masters);
        };
        let [(_, options)] = &clusters[..] else {
            let message = format!(
                "--context: {} were given, and this command takes one; `redlock status` and `redlock top` take several",
                self.kubernetes.context.join(", ")
            );
            return Err(Failure::new(Exit::Usage, message));
        };
        let given = self.given()?;
        let cluster = options.open().await?;
        Ok(Place::Cluster(Box::new(cluster), Box::new(given)))
    }

    /// Returns the clusters, each once, in the order of their contexts; `None` if masters are named.
    pub(super) fn clusters(&self, all_namespaces: bool) -> Result<Option<Vec<ClusterNamed>>, Failure> {
        if !all_namespaces && !self.kubernetes.typed() && self.quorum.named() {
            return Ok(None);
        }
        let all = &self.kubernetes.context;
        if all.is_empty() {
            let options = self.kubernetes.options(None);
            if !options.is_somewhere() {
                return Err(Failure::new(Exit::Usage, NOWHERE));
            }
            return Ok(Some(vec![("(current)".to_owned(), options)]));
        }
        let once = |(index, context): &(usize, &String)| !all[..*index].contains(context);
        let contexts = all.iter().enumerate().filter(once);
        let named = contexts.map(|(_, context)| (context.clone(), self.kubernetes.options(Some(context))));
        Ok(Some(named.collect()))
    }

    /// Returns the credentials and the cluster for connections to the masters of any cluster.
    pub(super) fn given(&self) -> Result<Given, Failure> {
        let connection = &self.quorum.connection;
        Ok(Given {
            credentials: connection.credentials()?,
            tls: connection.tls()?,
            cluster: connection.cluster.clone(),
        })
    }

    /// Returns the place for a command that changes masters permanently, which requires that the quorum of a cluster is
    /// named.
    pub(super) async fn named_place(&self) -> Result<Place, Failure> {
        if self.kubernetes.quorum.is_none() && !self.quorum.named() {
            let needed = "no masters given: give --masters URL,… or --config FILE, set REDLOCK_MASTERS, or give \
                --quorum NAME with a kubeconfig";
            return Err(Failure::new(Exit::Usage, needed));
        }
        self.place(false).await
    }
}

/// Uses the exit code of the reason why a cluster cannot be used.
impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::caused(exit(error.blame()), &error)
    }
}

pub(super) const fn exit(blame: Blame) -> Exit {
    match blame {
        Blame::Usage => Exit::Usage,
        Blame::Rights => Exit::Auth,
        Blame::Configuration => Exit::Config,
    }
}
