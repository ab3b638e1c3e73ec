//! Masters that answer and refuse every write.

use std::time::Duration;

use redlock_world::masters::WriteRefusal;

use super::{LATE, SOON, has_condition, manifests, with_running_work};
use crate::controller::world::{
    cluster::ClusterWorld,
    observer::{has_reason, quorum_condition, status_text},
    universe::Universe,
};

/// The time until statuses and events report it: where renewals are refused, too, the lease ends.
const REPORTED: Duration = Duration::from_secs(90);

fn refuse(universe: &Universe, refusal: Option<WriteRefusal>) {
    for master in universe.masters.iter().take(2) {
        master.refuse_writes(refusal);
    }
}

pub(super) async fn refused_writes(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 1).await?;
    let reported = || quorum_condition(&active, "default", "Ready");
    full_memory(&universe, &active).await?;
    refuse(&universe, Some(WriteRefusal::NoReplicas));
    universe
        .wait("the lock and the quorum report it", REPORTED, |_| {
            has_reason(&active, "web", "WritesRefused")
                && !has_condition(&active, "web", "Ready")
                && reported().as_deref() == Some("WritesRefused")
        })
        .await
        .map_err(|text| format!("{text}: {:?}, {}", reported(), status_text(&active, "web")))?;
    let events = active.events();
    if !events.iter().any(|event| event == "WritesRefused") {
        return Err(format!("no event: {events:?}"));
    }
    refuse(&universe, None);
    universe
        .wait("the work runs again, and nothing is reported", LATE, |_| {
            has_condition(&active, "web", "Ready")
                && active.running_pods("web") == 1
                && reported().as_deref() == Some("MajorityVotes")
        })
        .await?;
    universe
        .keep("it stays so", LATE, |_| has_condition(&active, "web", "Ready"))
        .await
}

/// A full memory refuses new locks. The lease that is held is renewed, and its work is not affected.
async fn full_memory(universe: &Universe, active: &ClusterWorld) -> Result<(), String> {
    refuse(universe, Some(WriteRefusal::OutOfMemory));
    active.create_lock(manifests::lock("new", &[]));
    universe
        .wait("the new lock reports it", REPORTED, |_| {
            has_reason(active, "new", "WritesRefused") && !has_condition(active, "new", "Ready")
        })
        .await?;
    universe
        .keep("the work is not affected", SOON, |_| {
            has_condition(active, "web", "Ready") && active.running_pods("web") == 1
        })
        .await?;
    refuse(universe, None);
    universe
        .wait("the new lock is held", LATE, |_| {
            has_condition(active, "new", "Ready")
        })
        .await?;
    Ok(())
}
