//! `redlock status`.

use clap::Args;

use super::{
    Exit, Failure, QuorumArgs,
    session::{self, Output},
};
use crate::{inspect::status, lease::LockName, masters::Agreement};

/// Show who holds each lock by each master's own account, and how the masters are.
///
/// Exits with 69 when no majority of the masters can be read, and 77 when user or password are the reason.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  redlock status --masters redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003
  redlock status billing/nightly-report -o json")]
pub(super) struct StatusArgs {
    /// Locks to show, with every master's account; all when none is named.
    #[arg(value_name = "LOCK", value_parser = session::lock)]
    locks: Vec<LockName>,
    /// Show each master's registers, too.
    #[arg(long)]
    registers: bool,
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    quorum: QuorumArgs,
}

pub(super) async fn run(args: StatusArgs) -> Result<Exit, Failure> {
    let session = session::open(&args.quorum, Agreement::AllFound).await?;
    let status = status::gather(&session, &args.locks, args.registers).await;
    session.close().await;
    args.output.write(|| status.text(), &status)?;
    Ok(session::exit(status.reach))
}
