//! `redlock doctor --fencing`: is every node of a cluster guarded, and may the Redis user of the nodes only read?

mod facts;
mod judge;
mod user;

use super::{Check, ObjectReport};
use crate::{
    api::RedisQuorum,
    inspect::cluster::{Cluster, Given},
};

/// Judges the driver, both DaemonSets, the Redis user, and each node that is not as it should be.
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

/// Why something was not checked, for a check that is neither good nor bad.
fn unknown(name: &'static str, reason: &str, hint: &str) -> Check {
    Check::but(
        name,
        super::Level::Warning,
        format!("not checked: {reason}"),
        hint,
    )
}
