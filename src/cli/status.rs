//! `redlock status`.

use clap::Args;

use super::{
    Exit, Failure, PlaceArgs,
    place::{self, Place},
    session::{self, Output},
};
use crate::{
    inspect::status::{self, Failed, Wanted, gather_declared},
    lease::LockName,
    masters::Agreement,
};

/// Show who holds each lock by each master's own account, and how the masters are.
///
/// With a kubeconfig: the LeaderLocks of a namespace, each with what the masters of its RedisQuorum say; where these
/// cannot be read from here, what the objects say, marked as such. Exits with 69 when no majority of the masters can
/// be read, and 77 when rights, user or password are the reason.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock status -n billing                  # the LeaderLocks of a namespace
  redlock status -n billing nightly-report -o json
  redlock status -A --context eu-1
  redlock status billing/nightly-report --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003")]
pub(super) struct StatusArgs {
    /// Locks to show, with every master's account; all when none is named. Names of LeaderLocks with a kubeconfig, else
    /// names on the masters.
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
    if let Place::Cluster(cluster, given) = args.place.place(args.all_namespaces).await? {
        let wanted = Wanted {
            names: args.locks.iter().map(ToString::to_string).collect(),
            all_namespaces: args.all_namespaces,
            quorum: args.place.kubernetes.quorum.clone(),
            registers: args.registers,
        };
        let status = gather_declared(&cluster, &given, &wanted).await;
        let status = status.map_err(|error| place::failure(&error))?;
        args.output.write(|| status.text(), &status)?;
        return Ok(match status.failed() {
            None => Exit::Ok,
            Some(Failed::Reach) => Exit::NoQuorum,
            Some(Failed::Configuration) => Exit::Config,
            Some(Failed::Rights) => Exit::Auth,
        });
    }
    let session = session::open(&args.place.quorum, Agreement::AllFound).await?;
    let status = status::gather(&session, &args.locks, args.registers).await;
    session.close().await;
    args.output.write(|| status.text(), &status)?;
    Ok(session::exit(status.reach))
}
