//! `redlock break`.

use clap::Args;

use super::{Exit, Failure, PlaceArgs, place::Place, session};
use crate::{
    inspect::{Reach, Session, break_lock::Plan},
    lease::LockName,
    masters::Agreement,
};

/// Force the holder of a lock to stop, and keep every candidate out for the duration of the longest lease.
///
/// Deletes no lease: the masters refuse the next renewal of the holder, and no candidate acquires the lock before the
/// reservation ends. Without --yes, the command only prints the planned action, and exits with 64.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock break -n billing nightly-report --yes --reason 'node lost, INC-42'
  redlock break billing/nightly-report --yes --reason 'node lost' --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003")]
pub(super) struct BreakArgs {
    /// The lock: a LeaderLock with a kubeconfig, else its name on the masters.
    #[arg(value_name = "LOCK", value_parser = session::lock)]
    lock: LockName,
    /// Confirm that the lock is broken.
    #[arg(long, requires = "reason")]
    yes: bool,
    /// Reason for breaking the lock, recorded in the output.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) async fn run(args: BreakArgs) -> Result<Exit, Failure> {
    let reason = args.reason.as_deref().unwrap_or_default().trim();
    if args.yes && reason.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "--reason is empty: give the reason why the lock is broken",
        ));
    }
    let (session, lock) = open(&args).await?;
    let plan = Plan::make(&session, &lock).await;
    session::print_progress(&plan.text());
    if !args.yes {
        session.close().await;
        let message = "nothing was done: give --yes and --reason TEXT to break the lock";
        return Err(Failure::new(Exit::Usage, message));
    }
    let broken = plan.carry_out(&session, reason).await;
    session.close().await;
    let broken = broken.map_err(|error| Failure::caused(Exit::Software, &error))?;
    session::print_progress(&broken.text);
    Ok(match plan.before().reach {
        _ if broken.majority => Exit::Ok,
        Reach::Refused => Exit::Auth,
        _ => Exit::NoQuorum,
    })
}

/// Returns the masters, and the name of the lock on them.
async fn open(args: &BreakArgs) -> Result<(Session, LockName), Failure> {
    let (cluster, given) = match args.place.place(false).await? {
        Place::Masters => {
            let session = session::open(&args.place.quorum, Agreement::Majority).await?;
            return Ok((session, args.lock.clone()));
        }
        Place::Cluster(cluster, given) => (cluster, given),
    };
    let asked = args.place.kubernetes.quorum.as_deref();
    let (quorum, declared) = cluster.declared(args.lock.as_str(), asked).await?;
    let session = cluster.session(&quorum, &given).await?;
    let object = &declared.object.metadata;
    let name = object.name.as_deref().unwrap_or_default();
    let command = format!("redlock break -n {} {name}", cluster.namespace());
    match session.unreachable(&declared.object.spec.quorum_ref.name, &command) {
        None => {
            session::print_progress(&format!(
                "LeaderLock {}/{name} is lock {}\n",
                cluster.namespace(),
                declared.lock_name
            ));
            Ok((session, declared.lock_name))
        }
        Some(away) => {
            session.close().await;
            Err(Failure::new(session::exit(away.reach), away.text))
        }
    }
}
