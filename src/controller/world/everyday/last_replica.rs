//! An operator that is scaled to zero while the lease of a lost process runs out.

use std::time::Duration;

use tokio::time;

use super::{LATE, SOON, runs_elsewhere, with_running_work, with_slow_work};
use crate::controller::world::observer::{has_reason, running_in, shows_role};

/// Ends all processes of the operator with SIGKILL. Their successors hold no lock yet when they end in the ordinary way: the
/// work is stopped, since no process is left that would stop it later.
pub(super) async fn last_replica(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    let former = active.operator_pods();
    former.values().for_each(|uid| active.crash_pod(uid));
    universe
        .wait("other processes run", SOON, |_| {
            let processes = active.operators();
            processes.iter().all(|process| !former.contains_key(process)) && active.are_operators_ready()
        })
        .await?;
    time::sleep(Duration::from_millis(fastrand::u64(2_000..5_000))).await;
    active.scale_operator(0);
    universe
        .keep("the work runs in one cluster at most", LATE, |universe| {
            running_in(universe, "web").len() < 2
        })
        .await?;
    if runs_elsewhere(&universe, &active) {
        return Ok(());
    }
    Err("the other cluster does not run the work".to_owned())
}

/// Scales the operator to zero while it holds the lock of work that takes 20 s to end: the status shows that the targets are
/// being stopped, and then that they are stopped.
pub(super) async fn shown_last_stop(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_slow_work(seed, 20, 30).await?;
    time::sleep(Duration::from_secs(5)).await;
    cluster.scale_operator(0);
    universe
        .wait("the status shows the stop", Duration::from_secs(3), |_| {
            shows_role(&cluster, "web", "Stopping") && has_reason(&cluster, "web", "Stopping")
        })
        .await?;
    universe
        .wait("the status shows the end", SOON, |_| {
            shows_role(&cluster, "web", "Standby") && has_reason(&cluster, "web", "OperatorStopped")
        })
        .await?;
    match cluster.running_pods("web") {
        0 => Ok(()),
        _ => Err("the status shows stopped targets, and the work runs".to_owned()),
    }
}
