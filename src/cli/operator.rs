//! `redlock operator`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{ArgAction, Args};

use super::{
    ConnectionArgs, Exit, Failure,
    empty::{entries, variable},
    process::{LogArgs, ServeArgs, address, ended, host_name},
};
use crate::{
    controller,
    lease::HolderIdentity,
    standalone,
    targets::{AllowedField, LeaseFence, ReleaseName},
};

/// Contend for every declared lock.
///
/// In a cluster, or with KUBECONFIG, the RedisQuorum and LeaderLock objects of the API server are followed; the UID of
/// the cluster is that of its kube-system namespace.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock operator --cluster eu-1 --listen 127.0.0.1:8080
  redlock operator --standalone examples/standalone --listen 127.0.0.1:8080")]
pub(super) struct OperatorArgs {
    /// Read RedisQuorum and LeaderLock manifests from this folder, and follow it; no Kubernetes.
    #[arg(long, value_name = "DIR", conflicts_with = "watch_namespaces")]
    standalone: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeArgs,
    /// RedisQuorum manifests that are applied at the start and whenever the file changes. RedisQuorums that are removed
    /// from the file stay.
    #[arg(
        long,
        env = "REDLOCK_QUORUMS_FILE",
        value_name = "FILE",
        conflicts_with = "standalone"
    )]
    quorums_file: Option<PathBuf>,
    /// Create this Secret with a random `password`, unless it exists: for masters that start together with the
    /// operator.
    #[arg(
        long,
        env = "REDLOCK_NEW_PASSWORD_SECRET",
        value_name = "NAMESPACE/NAME",
        value_parser = new_secret,
        conflicts_with = "standalone"
    )]
    new_password_secret: Option<controller::NewSecret>,
    /// Labels of the pods of this operator, as a selector: a replica that is replaced leaves running targets to another
    /// ready replica. Needs POD_NAMESPACE and POD_NAME, from the downward API.
    #[arg(
        long,
        env = "REDLOCK_POD_SELECTOR",
        value_name = "SELECTOR",
        conflicts_with = "standalone"
    )]
    pod_selector: Option<String>,
    /// Name of the Lease, in POD_NAMESPACE, by which the replicas elect the one that stops the targets of locks that no
    /// replica of this cluster holds. Without it, every replica does.
    #[arg(
        long,
        env = "REDLOCK_COORDINATION_LEASE",
        value_name = "NAME",
        requires = "pod_selector"
    )]
    coordination_lease: Option<String>,
    /// Address of /metrics and /locks, if not that of the probes: 127.0.0.1:8081 keeps both from the network.
    #[arg(
        long,
        env = "REDLOCK_LISTEN_DETAILS",
        value_name = "ADDR",
        value_parser = address,
        conflicts_with = "standalone"
    )]
    listen_details: Option<SocketAddr>,
    /// Serve /metrics and /locks only to clients whose bearer token the API server accepts and that may `get` the path
    /// there (a rule with nonResourceURLs).
    #[arg(
        long,
        env = "REDLOCK_REQUIRE_TOKEN",
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = false,
        conflicts_with = "standalone"
    )]
    require_token: bool,
    /// Identity of this candidate; defaults to the host name.
    #[arg(long, env = "REDLOCK_IDENTITY", value_name = "NAME")]
    identity: Option<HolderIdentity>,
    /// Emit metrics for each lock.
    #[arg(
        long,
        env = "REDLOCK_LOCK_METRICS",
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true
    )]
    lock_metrics: bool,
    /// The API server protects the Leases that the operator holds (an admission policy of the chart). Without this
    /// flag, the operator renews them and emits warnings.
    #[arg(
        long,
        env = "REDLOCK_LEASE_FENCE",
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = false,
        conflicts_with = "standalone"
    )]
    lease_fence: bool,
    /// Name of this installation of the operator: part of the holder identity in the Leases that it holds, by which the
    /// admission policy of the chart recognises them.
    #[arg(
        long,
        env = "REDLOCK_RELEASE",
        value_name = "NAME",
        conflicts_with = "standalone"
    )]
    release: Option<ReleaseName>,
    /// Fields that the action Patch may set, such as kustomizations.kustomize.toolkit.fluxcd.io:/spec/suspend.
    #[arg(
        long,
        env = "REDLOCK_TARGET_FIELDS",
        value_name = "RESOURCE.GROUP:PATH,…",
        value_delimiter = ',',
        conflicts_with = "standalone"
    )]
    target_fields: Vec<AllowedField>,
    /// Runtime classes whose containers are processes of the node, in the cgroup of their pod: a pod of any other class
    /// is not fenced.
    #[arg(
        long,
        env = "REDLOCK_FENCING_RUNTIME_CLASSES",
        value_name = "NAME,…",
        value_delimiter = ',',
        conflicts_with = "standalone"
    )]
    fencing_runtime_classes: Vec<String>,
    /// The most requests per second to the API server. Stops that must finish before a lease ends are exempt.
    #[arg(
        long,
        env = "REDLOCK_API_REQUESTS_PER_SECOND",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(10..=100_000),
        default_value_t = 200,
        conflicts_with = "standalone"
    )]
    api_requests_per_second: u32,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn run(args: OperatorArgs) -> Result<Exit, Failure> {
    args.log.start()?;
    let identity = args.identity.map_or_else(host_name, Ok)?;
    let Some(folder) = args.standalone else {
        let options = controller::Options {
            listen: args.serve.listen,
            listen_details: args.listen_details,
            require_token: args.require_token,
            identity,
            cluster_name: args.connection.name_of_the_cluster()?,
            namespaces: entries(&args.serve.watch_namespaces),
            siblings: args
                .pod_selector
                .map(|selector| siblings(selector, args.coordination_lease))
                .transpose()?,
            lock_metrics: args.lock_metrics,
            lease_fence: LeaseFence {
                enforced: args.lease_fence,
                release: args.release,
            },
            allowed_fields: args.target_fields.into_iter().collect(),
            runtime_classes: entries(&args.fencing_runtime_classes),
            api_requests_per_second: args.api_requests_per_second,
            quorums_file: args.quorums_file,
            new_password: args.new_password_secret,
        };
        let end = controller::run(options).await;
        return ended(end, controller::OperatorError::is_of_configuration);
    };
    let options = standalone::Options {
        folder,
        listen: args.serve.listen,
        identity,
        credentials: args.connection.credentials()?,
        tls: args.connection.tls()?,
        cluster: args.connection.cluster,
        lock_metrics: args.lock_metrics,
    };
    let end = standalone::run(options).await;
    ended(end, standalone::OperatorError::is_of_configuration)
}

fn new_secret(text: &str) -> Result<controller::NewSecret, String> {
    let parts = text
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let (namespace, name) = parts.ok_or("write NAMESPACE/NAME, such as redlock/masters")?;
    Ok(controller::NewSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns this replica's pod, from the downward API, with the selector of its siblings.
fn siblings(selector: String, coordination_lease: Option<String>) -> Result<controller::Siblings, Failure> {
    let pod = |name| {
        variable(name)?.ok_or_else(|| {
            let message = format!("--pod-selector needs {name}: set it from the downward API");
            Failure::new(Exit::Config, message)
        })
    };
    Ok(controller::Siblings {
        namespace: pod("POD_NAMESPACE")?,
        own: pod("POD_NAME")?,
        selector,
        coordination_lease,
    })
}
