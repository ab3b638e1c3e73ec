//! `redlock fence list` and `redlock fence release`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use redlock_node::{
    listing::{self, Options},
    release::{Guardian, Plan, ReleaseError},
    table::TableError,
};

use super::{
    Exit, Failure,
    session::{self, Output},
};
use crate::inspect::fence;

/// Show the fenced pods of a node, and release one by hand.
///
/// Reads and writes the state directory of the node agent and the node guardian on this node: run it by `kubectl exec` in a pod of
/// one of them, or on the node itself as root. No API server, no master and no node agent is needed.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  redlock fence list
  redlock fence release billing/report-0 --yes \\
    --reason 'us-1 is gone, INC-42'"
)]
pub(super) struct FenceArgs {
    #[command(subcommand)]
    command: Fence,
}

#[derive(Debug, Subcommand)]
enum Fence {
    List(ListArgs),
    Release(ReleaseArgs),
}

/// List the fenced pods of this node: state, end of the permit, and why a pod does not run.
///
/// States: waiting (not started, without a permit), running, frozen, killed, released (by hand), unknown (the record cannot be
/// read). PERMIT is the time until its end; negative once it has ended. GUARDED: the node guardian has acknowledged the record.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock fence list
  redlock fence list -o json")]
struct ListArgs {
    /// The table that node agent and node guardian share.
    #[arg(long, value_name = "DIR", default_value = "/run/redlock")]
    state_dir: PathBuf,
    /// The directory of the kubelet, which shows the pods that wait for their start.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
}

/// Let a frozen or killed pod run without a permit.
///
/// Dangerous: another cluster may run the same work. The lock is not acquired, kept or freed. The release ends with the
/// pod, with a reboot of the node, when the masters guarantee the lock to this cluster again, and when they show that
/// another cluster acquired the lock later. Refused for a pod that has a permit or no record. Without --yes, the
/// command only prints what a release risks, and exits with 64.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock fence release billing/report-0
  redlock fence release billing/report-0 --yes \\
    --reason 'us-1 is gone, INC-42'")]
struct ReleaseArgs {
    /// The pod: NAMESPACE/NAME, its name, or its UID.
    #[arg(value_name = "POD")]
    pod: String,
    /// Confirm that the pod runs without a permit.
    #[arg(long, requires = "reason")]
    yes: bool,
    /// Reason for the release, recorded in the event, the log and `redlock fence list`.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The table that node agent and node guardian share.
    #[arg(long, value_name = "DIR", default_value = "/run/redlock")]
    state_dir: PathBuf,
}

pub(super) fn run(args: FenceArgs) -> Result<Exit, Failure> {
    match args.command {
        Fence::List(args) => list(args),
        Fence::Release(args) => release(&args),
    }
}

fn list(args: ListArgs) -> Result<Exit, Failure> {
    let listing = listing::read(&Options {
        state_dir: args.state_dir,
        kubelet_dir: Some(args.kubelet_dir),
    });
    let listing = listing.map_err(|error| no_table(&error))?;
    args.output.write(|| fence::text(&listing), &listing)?;
    Ok(Exit::Ok)
}

fn release(args: &ReleaseArgs) -> Result<Exit, Failure> {
    let reason = args.reason.as_deref().unwrap_or_default().trim();
    if args.yes && reason.is_empty() {
        let message = "--reason is empty: give the reason why the pod is released";
        return Err(Failure::new(Exit::Usage, message));
    }
    let plan = Plan::make(&args.state_dir, &args.pod).map_err(|error| failure(&error))?;
    session::print_progress(&fence::risks(&plan));
    if !args.yes {
        let message = "nothing was done: give --yes and --reason TEXT to release the pod";
        return Err(Failure::new(Exit::Usage, message));
    }
    let released = plan.carry_out(reason).map_err(|error| failure(&error))?;
    session::print_progress(&fence::released(&plan, released, reason));
    Ok(
        if released.thawed && released.guardian != Guardian::NotAcknowledged {
            Exit::Ok
        } else {
            Exit::Unhealthy
        },
    )
}

fn no_table(error: &TableError) -> Failure {
    let failure = Failure::caused(Exit::Config, error);
    let message = format!(
        "{failure}; run the command in a pod of the node agent or the node guardian, or as root on their node, or give \
         --state-dir DIR"
    );
    Failure::new(Exit::Config, message)
}

fn failure(error: &ReleaseError) -> Failure {
    let exit = match error {
        ReleaseError::Table(error) => return no_table(error),
        ReleaseError::NoRecord { .. } => Exit::Config,
        ReleaseError::Several { .. } => Exit::Usage,
        ReleaseError::Turn(_) | ReleaseError::Cgroup(_) => Exit::Software,
        ReleaseError::Unreadable { .. }
        | ReleaseError::Permitted { .. }
        | ReleaseError::AlreadyReleased { .. }
        | ReleaseError::Changed { .. }
        | ReleaseError::OutcomeUnknown
        | ReleaseError::NotTaken => Exit::Unhealthy,
    };
    Failure::caused(exit, error)
}
