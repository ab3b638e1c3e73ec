//! `redlock drain`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Exit, Failure, empty::entries, session};
use crate::inspect::{cluster::ClusterOptions, drain};

/// Stop the operator of this cluster and all workloads under its locks.
///
/// Before an uninstall: scales the operator's Deployment down, so that its last replica stops the workloads under the
/// locks that it holds, releases the locks and removes its finalizers. Removes the remaining finalizers, which would
/// keep LeaderLocks and their namespaces forever. Exits with 1 when a workload may still run: the output names its
/// lock, and the lease expires by itself.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock drain -n redlock --deployment redlock-operator
  redlock drain -n redlock --deployment redlock-operator --timeout 5m")]
pub(super) struct DrainArgs {
    /// The Deployment of the operator.
    #[arg(long, value_name = "NAME")]
    deployment: String,
    /// The Deployment was removed before: if it does not exist, only remove the remaining finalizers.
    #[arg(long)]
    gone: bool,
    /// Namespace of the Deployment; defaults to that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Namespaces whose LeaderLocks the operator follows; defaults to all namespaces.
    #[arg(
        long,
        env = "REDLOCK_WATCH_NAMESPACES",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    watch_namespaces: Vec<String>,
    /// Node fencing is installed: fail while pods of any namespace mount its volume.
    #[arg(long)]
    fencing: bool,
    /// How long the operator may take to end: the grace period of its pods, and some seconds for each replica.
    #[arg(long, value_name = "DURATION", value_parser = session::duration, default_value = "2m")]
    timeout: Duration,
    /// The kubeconfig. Defaults to KUBECONFIG, ~/.kube/config or, in a pod, its ServiceAccount.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; defaults to the current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

pub(super) async fn run(args: DrainArgs) -> Result<Exit, Failure> {
    let options = ClusterOptions {
        kubeconfig: args.kubeconfig,
        context: args.context,
        namespace: args.namespace,
    };
    let cluster = options.open().await?;
    let options = drain::DrainOptions {
        deployment: args.deployment,
        gone: args.gone,
        namespaces: entries(&args.watch_namespaces),
        fencing: args.fencing,
        timeout: args.timeout,
    };
    let end = drain::drain(&cluster, &options, session::print_progress).await?;
    session::print(&end.text())?;
    Ok(if end.is_clean() { Exit::Ok } else { Exit::Unhealthy })
}
