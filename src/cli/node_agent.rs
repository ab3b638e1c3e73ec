//! `redlock node-agent`.

use std::path::PathBuf;

use clap::Args;
use redlock_node::spec::Access;

use super::{
    ConnectionArgs, Exit, Failure,
    empty::entries,
    process::{LogArgs, ServeArgs, ended},
};
use crate::node_agent::{self, NodeAgentError};

/// Start the pods of fenced locks on this node by permits of the masters, and freeze them when the permits end.
///
/// For a DaemonSet, as the chart creates it with fencing.enabled. Serves the CSI driver fencing.redlock.dev to the kubelet, follows
/// the LeaderLocks and RedisQuorums of the API server, and reads the masters by a user that only reads. Writes cgroup.freeze
/// and cgroup.kill of the pods that mount the volume. SIGTERM removes the sockets, and ends the process with 0 once `redlock
/// node-guardian` or another node agent guards the pods; without one, the process freezes them at the end of their permits first.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  redlock node-agent --node-name node-1 --cluster eu-1 --state-dir /run/redlock")]
pub(super) struct NodeAgentArgs {
    /// Name of the Node object, from spec.nodeName by the downward API.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// The table that is shared with the node guardian: a directory on tmpfs.
    #[arg(long, value_name = "DIR", default_value = "/run/redlock")]
    state_dir: PathBuf,
    /// Where the cgroup2 file system of the node is mounted.
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// The directory of the kubelet (its --root-dir), at the same path as the kubelet sees it.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
    /// Runtime classes whose containers are processes of the node, in the cgroup of their pod: a pod of any other class
    /// is not fenced.
    #[arg(
        long,
        env = "REDLOCK_FENCING_RUNTIME_CLASSES",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    fencing_runtime_classes: Vec<String>,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn run(args: NodeAgentArgs) -> Result<Exit, Failure> {
    args.log.start()?;
    let connection = args.connection;
    let cluster_name = connection.name_of_the_cluster()?;
    // A file that is missing at the start is a mistake in the mounts.
    access(&connection)?;
    let options = node_agent::Options {
        node_name: args.node_name,
        state_dir: args.state_dir,
        cgroup_root: args.cgroup_root,
        kubelet_dir: args.kubelet_dir,
        runtime_classes: entries(&args.fencing_runtime_classes),
        listen: args.serve.listen,
        cluster_name,
        namespaces: entries(&args.serve.watch_namespaces),
        access: Box::new(move || access(&connection).map_err(|failure| failure.to_string())),
    };
    ended(
        node_agent::run(options).await,
        NodeAgentError::is_of_configuration,
    )
}

fn access(connection: &ConnectionArgs) -> Result<Access, Failure> {
    Ok(Access {
        credentials: connection.credentials()?,
        tls: connection.tls()?,
    })
}
