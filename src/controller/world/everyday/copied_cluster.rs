//! A cluster whose objects are a copy of those of another one.

use std::time::Duration;

use tokio::time;

use super::{LATE, SOON, has_condition, running_in, switches, with_running_work};
use crate::controller::world::observer::has_reason;

/// Restores the objects of the active cluster, with the UID of its namespace kube-system, in another cluster. The copy runs
/// the work at first, as its Deployment declares.
pub(super) async fn copied_cluster(seed: u64) -> Result<(), String> {
    let (mut universe, active) = with_running_work(seed, 1).await?;
    active.api.take_history();
    universe.restore_copy(2, "web");
    let original = [active.name.clone()];
    time::sleep(Duration::from_secs(10)).await;
    universe
        .wait("the work runs in the original alone", LATE, |universe| {
            running_in(universe, "web") == original
        })
        .await?;
    universe
        .keep("the copy starts nothing", LATE, |universe| {
            running_in(universe, "web") == original
        })
        .await?;
    let copy = universe.clusters.last().unwrap().clone();
    if !has_reason(&copy, "web", "ClusterCopied") {
        return Err(format!("the copy is not reported\n{}", universe.story()));
    }
    if !has_condition(&active, "web", "Ready") {
        return Err("the original does not report its work".to_owned());
    }
    let switches = switches(&active);
    if !switches.is_empty() {
        return Err(format!("the work of the original was switched: {switches:?}"));
    }
    copy.delete_lock("web");
    universe
        .wait("the object of the copy is gone", SOON, |_| {
            copy.lock("web").is_none()
        })
        .await?;
    Ok(())
}
