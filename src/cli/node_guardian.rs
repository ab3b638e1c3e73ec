//! `redlock node-guardian`.

use std::path::PathBuf;

use clap::Args;
use redlock_node::guardian::{self, Options, Signals};

use super::{
    Exit, Failure,
    process::{LogArgs, ended},
};

/// Freeze the pods of fenced locks at the end of their permits, even where the node agent does not run.
///
/// For a DaemonSet of its own beside the node agent. Reads the table that the agent writes, and needs no access to
/// Kubernetes or to the masters. Asks for real-time scheduling (capability SYS_NICE) and for locked memory (IPC_LOCK),
/// and reports in the log what it does not get. SIGTERM ends the process with 0 once another guardian runs, no pod has a
/// record, or each permit has ended and no process of a pod runs.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  redlock node-guardian --state-dir /run/redlock --kubelet-dir /var/lib/kubelet")]
pub(super) struct NodeGuardianArgs {
    /// The table that is shared with the node agent: a directory on tmpfs.
    #[arg(long, value_name = "DIR", default_value = "/run/redlock")]
    state_dir: PathBuf,
    /// Where the cgroup2 file system of the node is mounted.
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// The directory of the kubelet. At its start, the guardian freezes the pods that have a volume there and no entry in
    /// the table. Without it the guardian freezes by the table alone.
    #[arg(long, value_name = "DIR")]
    kubelet_dir: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: NodeGuardianArgs) -> Result<Exit, Failure> {
    // Blocked before the log starts a thread.
    let signals = Signals::block().map_err(|error| Failure::caused(Exit::Software, &error))?;
    args.log.start()?;
    let options = Options {
        state_dir: args.state_dir,
        cgroup_root: args.cgroup_root,
        kubelet_dir: args.kubelet_dir,
    };
    ended(guardian::run(&options, &signals), |_| true)
}
