//! `redlock operator`.

use std::{env, fs, net::SocketAddr, path::PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::{ConnectionArgs, Exit, Failure};
use crate::{controller, lease::HolderIdentity, standalone, telemetry::logs};

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
    #[arg(long, value_name = "DIR")]
    standalone: Option<PathBuf>,
    /// Follow LeaderLocks in these namespaces only; all namespaces unless told.
    #[arg(
        long,
        env = "REDLOCK_WATCH_NAMESPACES",
        value_name = "NAME,…",
        value_delimiter = ',',
        conflicts_with = "standalone"
    )]
    watch_namespaces: Vec<String>,
    /// Labels of the pods of this operator, as a selector: a replica that is replaced leaves running targets to a ready
    /// one of them. Needs POD_NAMESPACE and POD_NAME, from the downward API.
    #[arg(
        long,
        env = "REDLOCK_POD_SELECTOR",
        value_name = "SELECTOR",
        conflicts_with = "standalone"
    )]
    pod_selector: Option<String>,
    /// Address of /metrics, /livez, /readyz and /locks.
    #[arg(
        long,
        env = "REDLOCK_LISTEN",
        value_name = "ADDR",
        value_parser = address,
        default_value = "127.0.0.1:8080"
    )]
    listen: SocketAddr,
    /// Identity of this candidate; the host name unless told.
    #[arg(long, env = "REDLOCK_IDENTITY", value_name = "NAME")]
    identity: Option<HolderIdentity>,
    /// Give metrics of every single lock.
    #[arg(
        long,
        env = "REDLOCK_LOCK_METRICS",
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true
    )]
    lock_metrics: bool,
    /// As many requests a second go to the API server at most, but for what has to be stopped before a lease ends.
    #[arg(
        long,
        env = "REDLOCK_API_REQUESTS_PER_SECOND",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(10..=100_000),
        default_value_t = 200,
        conflicts_with = "standalone"
    )]
    api_requests_per_second: u32,
    /// How events are written to the standard error.
    #[arg(long, env = "REDLOCK_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Which events: error, warn, info, debug or trace, or target=level,…; else RUST_LOG, else info.
    #[arg(long, env = "REDLOCK_LOG_LEVEL", value_name = "LEVEL", value_parser = level)]
    log_level: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl From<LogFormat> for logs::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

pub(super) async fn run(args: OperatorArgs) -> Result<Exit, Failure> {
    let level = args
        .log_level
        .or_else(|| env::var("RUST_LOG").ok().filter(|level| !level.is_empty()))
        .unwrap_or_else(|| "info".to_owned());
    logs::start(args.log_format.into(), &level).map_err(|e| Failure::caused(Exit::Usage, &e))?;
    let identity = args.identity.map_or_else(host_name, Ok)?;
    let Some(folder) = args.standalone else {
        let cluster = args.connection.cluster;
        if cluster.uid() != cluster.name() {
            let message = format!(
                "--cluster {cluster}: in a cluster the UID is that of its kube-system namespace; give --cluster {}",
                cluster.name()
            );
            return Err(Failure::new(Exit::Config, message));
        }
        let options = controller::Options {
            listen: args.listen,
            identity,
            cluster_name: cluster.name().to_owned(),
            namespaces: args.watch_namespaces,
            siblings: args.pod_selector.map(siblings).transpose()?,
            lock_metrics: args.lock_metrics,
            api_requests_per_second: args.api_requests_per_second,
        };
        let end = controller::run(options).await;
        return end.map(|()| Exit::Ok).map_err(|error| {
            let configuration = error.is_of_configuration();
            Failure::caused(exit(configuration), &error)
        });
    };
    let options = standalone::Options {
        folder,
        listen: args.listen,
        identity,
        credentials: args.connection.credentials()?,
        tls: args.connection.tls()?,
        cluster: args.connection.cluster,
        lock_metrics: args.lock_metrics,
    };
    let end = standalone::run(options).await;
    end.map(|()| Exit::Ok).map_err(|error| {
        let configuration = error.is_of_configuration();
        Failure::caused(exit(configuration), &error)
    })
}

/// This replica's pod, from the downward API.
fn siblings(selector: String) -> Result<controller::Siblings, Failure> {
    let pod = |name| {
        let missing = || {
            Failure::new(
                Exit::Config,
                format!("--pod-selector needs {name}: set it from the downward API"),
            )
        };
        env::var(name)
            .ok()
            .filter(|value| !value.is_empty())
            .ok_or_else(missing)
    };
    Ok(controller::Siblings {
        namespace: pod("POD_NAMESPACE")?,
        own: pod("POD_NAME")?,
        selector,
    })
}

const fn exit(of_configuration: bool) -> Exit {
    if of_configuration {
        Exit::Config
    } else {
        Exit::Software
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "it is no address: write IP:PORT, such as 127.0.0.1:8080 or [::]:8080".to_owned())
}

/// A single word that is no level would be taken for a target, and nothing be written at all.
fn level(text: &str) -> Result<String, String> {
    let is_known = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    if text.split(',').all(is_known) {
        Ok(text.to_owned())
    } else {
        Err("use error, warn, info, debug or trace, or target=level,…".to_owned())
    }
}

fn host_name() -> Result<HolderIdentity, Failure> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    HolderIdentity::parse(name.trim())
        .map_err(|e| Failure::new(Exit::Config, format!("the host name: {e}; or give --identity")))
}
