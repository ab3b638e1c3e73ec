//! `redlock doctor`.

use std::time::Duration;

use clap::Args;

use super::{
    Exit, Failure, PlaceArgs,
    place::Place,
    session::{self, Output},
};
use crate::{
    inspect::{
        Reach,
        doctor::{self, Detail},
    },
    lease::timing,
    masters::Agreement,
};

/// Check each master: reachable, permitted, sealed, configured correctly, fast enough.
///
/// Runs the real scripts on keys of its own below PREFIX:doctor:, and deletes them. Exits with 0 when every check
/// passes (`!` is a warning), 1 when a check fails (`✗`), 69 when no majority votes, 77 when the user or password is
/// not accepted. With a kubeconfig: the masters of a RedisQuorum, the object itself, and the LeaderLocks that name it; with --fencing
/// also node fencing.
///
/// Prints a line for each master and each object, and the findings of each that is not healthy.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock doctor --quorum default
  redlock doctor --quorum default --take-turns
  redlock doctor --quorum default --fencing
  redlock doctor --quorum default --quiet      # problems only, for scripts
  redlock doctor --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003")]
pub(super) struct DoctorArgs {
    /// The shortest lease that the masters must be fast enough for; defaults to 15s, or the longest lease that they
    /// grant.
    #[arg(long, value_name = "DURATION", value_parser = session::duration)]
    lease_duration: Option<Duration>,
    /// Also acquire a real lock under a separate name: two candidates in turn, each with a larger token than the one
    /// before.
    #[arg(long)]
    take_turns: bool,
    /// Also check node fencing: the CSI driver, a ready node agent and node guardian on each node, their version, and that their
    /// Redis user only reads. Needs a kubeconfig.
    #[arg(long, conflicts_with_all = ["masters", "config"])]
    fencing: bool,
    /// Print every check of every master and object.
    #[arg(short, long)]
    verbose: bool,
    /// Print only problems (`✗`), one line each, and nothing when every check passes.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Output format. The JSON contains every check, with or without --verbose and --quiet.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    place: PlaceArgs,
}

/// The lease of a lock that does not declare its timings.
const USUAL: Duration = Duration::from_secs(15);

pub(super) async fn run(args: DoctorArgs) -> Result<Exit, Failure> {
    if let Some(given) = args.lease_duration.filter(|given| *given < timing::MIN_LEASE) {
        let message = format!(
            "--lease-duration {given:?} is too short: the shortest lease is {:?}",
            timing::MIN_LEASE
        );
        return Err(Failure::new(Exit::Config, message));
    }
    let (session, objects, away) = match args.place.place(false).await? {
        Place::Masters if args.fencing => {
            let message = "--fencing needs a kubeconfig: node fencing is checked by the objects of a cluster; give --kubeconfig FILE";
            return Err(Failure::new(Exit::Usage, message));
        }
        Place::Masters => {
            let session = session::open(&args.place.quorum, Agreement::AllFound).await?;
            (session, Vec::new(), None)
        }
        Place::Cluster(cluster, given) => {
            let name = args.place.kubernetes.quorum.as_deref();
            let quorum = cluster.quorum_or_only(name).await?;
            let session = cluster.session(&quorum, &given).await?;
            let name = quorum.metadata.name.clone().unwrap_or_default();
            let away = session.unreachable(&name, &format!("redlock doctor --quorum {name}"));
            let mut objects = doctor::examine_objects(&cluster, &quorum).await;
            if args.fencing {
                objects.extend(doctor::examine_fencing(&cluster, &quorum, &given).await);
            }
            (session, objects, away)
        }
    };
    let longest = session.masters.fingerprint().longest_lease();
    let lease_duration = args.lease_duration.unwrap_or(USUAL.min(longest));
    let mut diagnosis = doctor::examine(&session, lease_duration).await;
    if let Ok(diagnosis) = &mut diagnosis
        && args.take_turns
    {
        diagnosis.take_turns(&session, lease_duration).await;
    }
    session.close().await;
    let mut diagnosis = diagnosis.map_err(|error| Failure::caused(Exit::Config, &error))?;
    diagnosis.add(objects, away.map(|away| away.text));
    let detail = match (args.verbose, args.quiet) {
        (true, _) => Detail::Checks,
        (false, true) => Detail::Problems,
        (false, false) => Detail::Summary,
    };
    args.output.write(|| diagnosis.text(detail), &diagnosis)?;
    Ok(match diagnosis.reach {
        Reach::Majority if diagnosis.healthy => Exit::Ok,
        Reach::Majority => Exit::Unhealthy,
        reach => session::exit(reach),
    })
}
