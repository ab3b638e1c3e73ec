//! `redlock init`.

use std::time::Duration;

use clap::Args;

use super::{Exit, Failure, PlaceArgs, session};
use crate::{
    inspect::Session,
    lease::timing,
    masters::{self, InitError, MasterStatus},
};

/// Seal new masters at once, so that they vote.
///
/// The caller states that no lease can be live on any of the masters. The command refuses to start unless every master
/// is reachable and has no keys under the prefix. New masters need this command, or `firstStart: Immediate` in their
/// RedisQuorum: a process that never saw a quorum does not know which leases are valid, and waits for more than a day.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  redlock init --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003
  redlock init --quorum default      # the masters of a RedisQuorum")]
pub(super) struct InitArgs {
    /// The longest lease that these masters will ever grant; it cannot be changed later. Defaults to 60s.
    #[arg(long, value_name = "DURATION", value_parser = session::duration)]
    max_lease_duration: Option<Duration>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) async fn run(args: InitArgs) -> Result<Exit, Failure> {
    let (mut config, bare) = session::masters_config(&args.place).await?;
    if let Some(longest) = args.max_lease_duration {
        if longest < timing::MIN_LEASE {
            let message = format!(
                "--max-lease-duration {longest:?} is too short: the shortest lease is {:?}",
                timing::MIN_LEASE
            );
            return Err(Failure::new(Exit::Config, message));
        }
        config.longest_lease = longest;
    }
    let urls: Vec<String> = config.masters.iter().map(|m| masters::redact(&m.url)).collect();
    let session = Session::open(config, None)
        .await
        .map_err(|e| Failure::caused(Exit::Config, &e))?;
    session::print_progress(&format!(
        "initialising {} masters: {}\nquorum: {}\n",
        urls.len(),
        urls.join(", "),
        session.masters.fingerprint()
    ));
    let result = masters::init(&session.masters).await;
    let auth = session.masters.status().iter().any(MasterStatus::auth);
    session.close().await;
    let report = result.map_err(|error| Failure::caused(exit(&error, auth), &error))?;
    for (name, url) in report.sealed.iter().zip(&urls) {
        session::print_progress(&format!("  {name} ({url}): sealed\n"));
    }
    session::print_progress(&format!(
        "all {} masters vote; fencing tokens begin above {}\n",
        report.sealed.len(),
        report.counter
    ));
    if bare {
        session::print_progress(&format!(
            "the masters have the names {}: a RedisQuorum that uses them needs the same names in spec.masters\n",
            report.sealed.join(", ")
        ));
    }
    Ok(Exit::Ok)
}

const fn exit(error: &InitError, auth: bool) -> Exit {
    match error {
        InitError::Unreachable { .. } if auth => Exit::Auth,
        InitError::Ineligible { .. } | InitError::InUse { .. } => Exit::Config,
        _ => Exit::NoQuorum,
    }
}
