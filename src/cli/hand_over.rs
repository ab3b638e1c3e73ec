//! `redlock hand-over`.

use std::time::Duration;

use clap::Args;

use super::{
    Exit, Failure, PlaceArgs,
    place::{self, Place},
    session::{self, Output},
};
use crate::{
    inspect::hand_over::{Ending, HandOverError, HandOverOptions, Plan},
    lease::LockName,
};

/// Pass a held lock on to another cluster.
///
/// Requests, by an annotation of the LeaderLock, that the operator replica that holds the lock stops its targets and
/// then ends its lease with a reservation for the other cluster. No third cluster can acquire the lock meanwhile. A
/// target that cannot be stopped in time continues to run, and the holder keeps the lock. A request applies to the
/// present lease only, and is withdrawn when no holder answers. Needs a kubeconfig of the cluster that holds the lock,
/// and get and patch on leaderlocks. Exits with 1 when the other cluster did not acquire the lock.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock hand-over -n billing nightly-report --to us-1
  redlock hand-over -n billing nightly-report --to us-1 --wait 2m -o json")]
pub(super) struct HandOverArgs {
    /// The LeaderLock.
    #[arg(value_name = "LOCK", value_parser = session::lock)]
    lock: LockName,
    /// The cluster that receives the lock: NAME, the cluster name of its operator, or NAME/UID.
    #[arg(long, value_name = "CLUSTER")]
    to: String,
    /// Hand over even if no operator of the other cluster has reported recently. If none runs, the lock stays unheld
    /// until the old lease would have ended.
    #[arg(long)]
    force: bool,
    /// How long to wait for the other cluster to hold it. Default: 30s, plus the time that the targets may take to
    /// stop.
    #[arg(long, value_name = "DURATION", value_parser = session::duration)]
    wait: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    place: PlaceArgs,
}

const MASTERS: &str = "hand-over needs a kubeconfig: only the holder can pass a lock on, and the masters cannot \
    forward the request; `redlock break` makes any holder give up";

pub(super) async fn run(args: HandOverArgs) -> Result<Exit, Failure> {
    let Place::Cluster(cluster, given) = args.place.place(false).await? else {
        return Err(Failure::new(Exit::Usage, MASTERS));
    };
    let options = HandOverOptions {
        lock: args.lock.to_string(),
        quorum: args.place.kubernetes.quorum.clone(),
        to: args.to,
        force: args.force,
        wait: args.wait,
    };
    let plan = Plan::make(&cluster, &given, &options).await?;
    if args.output == Output::Table {
        session::print_progress(&plan.text());
    }
    let end = plan.carry_out(&cluster).await?;
    args.output.write(|| format!("{}\n", end.message), &end)?;
    Ok(match end.result {
        Ending::HandedOver => Exit::Ok,
        // The number of SIGINT.
        Ending::Interrupted => Exit::Signal(2),
        Ending::Refused | Ending::TakenByAnother | Ending::NotTaken | Ending::NotAnswered => Exit::Unhealthy,
    })
}

impl From<HandOverError> for Failure {
    fn from(error: HandOverError) -> Self {
        Self::caused(error.blame().map_or(Exit::Unhealthy, place::exit), &error)
    }
}
