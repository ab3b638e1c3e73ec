//! `redlock reseal`.

use clap::Args;

use super::{Exit, Failure, PlaceArgs, session};
use crate::masters::{self, Agreement, Progress, ResealError};

/// Seal masters again after sealed masters were lost permanently, so that no majority can be read any more.
///
/// Discards the data that only the lost masters have: the last tokens and claimed slots. Tokens and slots continue
/// above all values that may have been granted. Takes the full wait (65 s by default), and refuses while a majority of
/// sealed masters can be read.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  redlock reseal --accept-loss --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003
  redlock reseal --accept-loss --quorum default")]
pub(super) struct ResealArgs {
    /// Accept the loss of the data that only the lost masters have.
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) async fn run(args: ResealArgs) -> Result<Exit, Failure> {
    if !args.accept_loss {
        return Err(Failure::caused(Exit::Usage, &ResealError::LossNotAccepted));
    }
    let (config, bare) = session::masters_config(&args.place).await?;
    let session = session::open_as(config, bare.then_some(Agreement::AllFound)).await?;
    session::print_progress(&format!("quorum: {}\n", session.masters.fingerprint()));
    let result = masters::reseal(&session.masters, true, |progress| on_progress(&progress)).await;
    session.close().await;
    let report = result.map_err(|error| Failure::caused(exit(&error), &error))?;
    for master in &report.sealed {
        session::print_progress(&format!("  {master}: sealed\n"));
    }
    for (master, why) in &report.not_sealed {
        session::print_progress(&format!("  {master}: not sealed: {why}\n"));
    }
    Ok(if report.not_sealed.is_empty() {
        Exit::Ok
    } else {
        Exit::Unhealthy
    })
}

fn on_progress(progress: &Progress) {
    let left = progress.left.as_secs_f64().ceil();
    session::print_progress(&format!(
        "sealing {}, {left} s left\n",
        progress.masters.join(", ")
    ));
}

fn exit(error: &ResealError) -> Exit {
    match error {
        ResealError::LossNotAccepted => Exit::Usage,
        // All masters that can be sealed are sealed already, which counts as success.
        ResealError::NothingUnsealed { missing } if missing.is_empty() => Exit::Ok,
        ResealError::NothingUnsealed { .. } | ResealError::Unsettled { .. } => Exit::NoQuorum,
        ResealError::OrdinaryWayOpen { .. } => Exit::Unhealthy,
        ResealError::OtherFingerprint { .. } => Exit::Config,
    }
}
