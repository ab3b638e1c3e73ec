//! `redlock operator`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{ConnectionArgs, Exit, Failure};

/// Contend for every declared lock.
#[derive(Args, Debug)]
pub(super) struct OperatorArgs {
    /// Read RedisQuorum and LeaderLock manifests from this folder, and follow it; no Kubernetes.
    #[arg(long, value_name = "DIR")]
    standalone: PathBuf,
    /// Address of /metrics, /livez, /readyz and /locks.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Identity of this candidate; the host name unless told.
    #[arg(long, env = "REDLOCK_IDENTITY")]
    identity: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn run(_args: OperatorArgs) -> Result<Exit, Failure> {
    Ok(Exit::Ok)
}
