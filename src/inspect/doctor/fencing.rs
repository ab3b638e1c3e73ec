//! `redlock doctor --fencing`: checks that each node is guarded, and that the nodes' Redis user only reads.

mod facts;
mod judge;
mod user;

use super::{Check, ObjectReport};
use crate::{
    api::RedisQuorum,
    inspect::cluster::{Cluster, Given},
};

/// Judges the driver, both DaemonSets, the Redis user, and each node that has a problem.
pub async fn examine_fencing(cluster: &Cluster, quorum: &RedisQuorum, given: &Given) -> Vec<ObjectReport> {
    let facts = facts::read(cluster).await;
    let mut reports = judge::of(&facts);
    let agent = facts.set(facts::AGENT);
    if let (Some(agent), Some(first)) = (agent, reports.first_mut()) {
        first
            .checks
            .push(user::check(cluster, quorum, given, agent).await);
    }
    reports
}

/// Returns a warning with the reason why a fact was not checked.
fn unknown(name: &'static str, reason: &str, hint: &str) -> Check {
    Check::but(
        name,
        super::Level::Warning,
        format!("not checked: {reason}"),
        hint,
    )
}
