//! `redlock status`.

use clap::Args;
use futures_util::future::join_all;

use super::{
    Exit, Failure, PlaceArgs,
    place::{ClusterNamed, Place},
    session::{self, Output},
};
use crate::{
    inspect::{
        cluster::Given,
        status::{self, ClusterShown, ClustersStatus, Extent, Failed, Wanted, gather_declared},
    },
    lease::LockName,
    masters::Agreement,
};

/// Show the holder of each lock as each master reports it, and the state of the masters.
///
/// With a kubeconfig: the LeaderLocks of a namespace, each as the masters of its RedisQuorum report it. Where these
/// masters cannot be read from here, it shows the status of the objects, marked as such. Exits with 69 when no majority
/// of the masters can be read, and 77 when the user, password or permissions are not accepted.
///
/// With several --context: one table of the LeaderLocks of all these clusters. A cluster that cannot be read has a row
/// in state unknown, with the reason below the table; the command then exits with 80, or as above if no cluster can be
/// read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock status -n billing                  # the LeaderLocks of a namespace
  redlock status -n billing nightly-report -o json
  redlock status -A --context eu-1 --context us-1   # one table of both clusters
  redlock status billing/nightly-report --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003")]
pub(super) struct StatusArgs {
    /// Locks to show, with the state on each master; all locks when none is named. Names of LeaderLocks with a
    /// kubeconfig, else names on the masters.
    #[arg(value_name = "LOCK", value_parser = session::lock)]
    locks: Vec<LockName>,
    /// The LeaderLocks of all namespaces.
    #[arg(
        short = 'A',
        long,
        conflicts_with_all = ["namespace", "locks", "masters", "config"],
        help_heading = "Kubernetes"
    )]
    all_namespaces: bool,
    /// Show each master's registers, too.
    #[arg(long)]
    registers: bool,
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) async fn run(args: StatusArgs) -> Result<Exit, Failure> {
    if args.place.kubernetes.context.len() > 1 {
        return several(&args).await;
    }
    if let Place::Cluster(cluster, given) = args.place.place(args.all_namespaces).await? {
        let status = gather_declared(&cluster, &given, &args.wanted()).await?;
        args.output.write(|| status.text(), &status)?;
        return Ok(status.failed().map_or(Exit::Ok, exit));
    }
    let session = session::open(&args.place.quorum, Agreement::AllFound).await?;
    let status = status::gather(&session, &args.locks, args.registers).await;
    session.close().await;
    args.output.write(|| status.text(), &status)?;
    Ok(session::exit(status.reach))
}

async fn several(args: &StatusArgs) -> Result<Exit, Failure> {
    if args.registers {
        let message = "--registers shows one cluster: give one --context";
        return Err(Failure::new(Exit::Usage, message));
    }
    let clusters = args.place.clusters(args.all_namespaces)?.unwrap_or_default();
    let status = of_clusters(&clusters, &args.place.given()?, &args.wanted()).await;
    args.output.write(|| status.text(), &status)?;
    Ok(exit_of(status.extent()))
}

impl StatusArgs {
    fn wanted(&self) -> Wanted {
        Wanted {
            names: self.locks.iter().map(ToString::to_string).collect(),
            all_namespaces: self.all_namespaces,
            quorum: self.place.kubernetes.quorum.clone(),
            registers: self.registers,
        }
    }
}

/// Reads all clusters at the same time: one that does not answer only delays the table by its time limit.
pub(super) async fn of_clusters(clusters: &[ClusterNamed], given: &Given, wanted: &Wanted) -> ClustersStatus {
    let each = clusters.iter().map(async |(context, options)| {
        let found = async { gather_declared(&options.open().await?, given, wanted).await };
        ClusterShown::of(context.clone(), found.await)
    });
    ClustersStatus {
        clusters: join_all(each).await,
    }
}

pub(super) const fn exit_of(extent: Extent) -> Exit {
    match extent {
        Extent::All => Exit::Ok,
        Extent::Part => Exit::Partial,
        Extent::Nothing(failed) => exit(failed),
    }
}

const fn exit(failed: Failed) -> Exit {
    match failed {
        Failed::Reach => Exit::NoQuorum,
        Failed::Configuration => Exit::Config,
        Failed::Rights => Exit::Auth,
    }
}
