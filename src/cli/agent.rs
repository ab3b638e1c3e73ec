//! `redlock agent`.

use std::time::Duration;

use clap::Args;

use super::{
    Exit, Failure, QuorumArgs,
    empty::variable,
    process::{LogArgs, ended, host_name},
    session,
};
use crate::{
    agent::{self, AgentError, ListenAddress, Quorum},
    lease::{HolderIdentity, LockName},
};

/// Contend for a lock on behalf of an app, and report to the app over HTTP whether it may act.
///
/// For a container in the app's pod; needs no access to Kubernetes. The app reads /v1/lock (role, holder, token, and
/// the time for which the app may act), /v1/active (200 active, 409 standby, 503 unknown) or /v1/watch (an event at
/// each change), and gives up the lock by POST to /v1/step-down; / answers like the retired leader-elector sidecar.
///
/// Retries masters that cannot be reached. Until then the agent holds no lock, and /readyz reports the reason. SIGTERM
/// releases the lock, after the stop grace if it is held, and ends the process with 0.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock agent billing/api           # the masters of REDLOCK_MASTERS
  redlock agent billing/api --stop-grace 10s \\
    --config examples/standalone/quorum.yaml")]
pub(super) struct AgentArgs {
    /// The lock, by its name on the masters: for a LeaderLock, NAMESPACE/NAME unless its spec.lockName differs.
    #[arg(value_name = "LOCK", value_parser = session::users_lock)]
    lock: LockName,
    /// Address of the HTTP API for the app; localhost:PORT stands for 127.0.0.1 and ::1. Every client that reaches the
    /// address may read; only clients on the same machine or in the same pod may request a step-down.
    #[arg(
        long,
        env = "REDLOCK_LISTEN",
        value_name = "ADDR",
        default_value = "localhost:4040"
    )]
    listen: ListenAddress,
    /// Duration of a lease: after a crash, no candidate is active for this long. Defaults to 15s, or stop grace + 25s,
    /// or the longest lease of the quorum.
    #[arg(
        long,
        env = "REDLOCK_LEASE_DURATION",
        value_name = "DURATION",
        value_parser = session::duration
    )]
    lease_duration: Option<Duration>,
    /// The time that the app needs to stop. The app is notified this long before the lease can end, and the lock is not
    /// released sooner.
    #[arg(
        long,
        env = "REDLOCK_STOP_GRACE",
        value_name = "DURATION",
        value_parser = session::duration
    )]
    stop_grace: Option<Duration>,
    /// Identity of this candidate. Defaults to POD_NAMESPACE/POD_NAME/POD_UID from the downward API, else the host
    /// name.
    #[arg(long, env = "REDLOCK_IDENTITY", value_name = "NAME")]
    identity: Option<HolderIdentity>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    quorum: QuorumArgs,
}

pub(super) async fn run(args: AgentArgs) -> Result<Exit, Failure> {
    args.log.start()?;
    let (name, config) = args.quorum.named_masters_config()?;
    let options = agent::Options {
        lock: args.lock,
        listen: args.listen,
        identity: args.identity.map_or_else(of_the_pod, Ok)?,
        lease_duration: args.lease_duration,
        stop_grace: args.stop_grace.unwrap_or_default(),
        quorum: Quorum {
            bare: name.is_none(),
            name: name.unwrap_or_else(|| "default".to_owned()),
            config,
        },
    };
    let end = agent::run(options).await;
    ended(end, AgentError::is_of_configuration)
}

const OF_THE_POD: [&str; 3] = ["POD_NAMESPACE", "POD_NAME", "POD_UID"];

/// Returns the identity in the form that the operator expects when it labels the pod of the holder. If no
/// variable of the downward API is set, returns the host name.
fn of_the_pod() -> Result<HolderIdentity, Failure> {
    let parts = OF_THE_POD.map(variable);
    let parts: Vec<Option<String>> = parts.into_iter().collect::<Result<_, _>>()?;
    let missing: Vec<&str> = OF_THE_POD
        .into_iter()
        .zip(&parts)
        .filter_map(|(name, value)| value.is_none().then_some(name))
        .collect();
    if missing.len() == parts.len() {
        return host_name();
    }
    if !missing.is_empty() {
        let message = format!(
            "{} of the downward API is not set, while others are: set {}, or give --identity",
            missing.join(" and "),
            OF_THE_POD.join(", ")
        );
        return Err(Failure::new(Exit::Config, message));
    }
    let identity = parts.into_iter().flatten().collect::<Vec<_>>().join("/");
    HolderIdentity::parse(&identity).map_err(|e| {
        let message = format!("{}: {e}; or give --identity", OF_THE_POD.join(", "));
        Failure::new(Exit::Config, message)
    })
}
