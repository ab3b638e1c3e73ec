//! The holder in a status.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};

use crate::api::lock_status::LeaderLockStatus;

/// Who holds the lock now.
#[derive(Clone, Debug)]
pub(in crate::controller) struct HolderFacts {
    pub(in crate::controller) identity: String,
    pub(in crate::controller) cluster: String,
    /// Of this cluster.
    pub(in crate::controller) own_cluster: bool,
    pub(in crate::controller) token: Option<u64>,
    /// Known of an own lease only.
    pub(in crate::controller) acquired: Option<Timestamp>,
    /// From the end of the lease before to this one, and whether it was given back.
    pub(in crate::controller) takeover: Option<(Duration, bool)>,
}

/// Writes the holder into `status`, which otherwise has none, and returns whether it is the one of `before`.
///
/// A grant is known by its token. Names alone do not tell: a status in between may have had no holder, because nobody
/// could see one. `holds` where this replica is the holder, which knows its own token; others know a token that they saw.
pub(super) fn show(
    holder: &HolderFacts,
    holds: bool,
    before: &LeaderLockStatus,
    status: &mut LeaderLockStatus,
    now: Timestamp,
) -> bool {
    let token = holder.token.map(whole);
    let same_token = token.is_some() && before.fencing_token == token;
    let same = match (&before.holder_identity, &before.holder_cluster) {
        (Some(identity), Some(cluster)) => {
            *identity == holder.identity && *cluster == holder.cluster && (!holds || same_token)
        }
        _ => same_token,
    };
    status.holder = Some(called(&holder.cluster, &holder.identity));
    status.holder_identity = Some(holder.identity.clone());
    status.holder_cluster = Some(holder.cluster.clone());
    status.fencing_token = token.or(status.fencing_token);
    let acquired = holder.acquired.map(MicroTime);
    if same {
        status.acquire_time = before.acquire_time.clone().or(acquired);
        status.renew_time = before.renew_time.clone().or(Some(MicroTime(now)));
    } else {
        status.acquire_time = acquired;
        status.renew_time = Some(MicroTime(now));
    }
    // The first holder of all changes nothing over.
    status.lease_transitions = Some(before.lease_transitions.map_or(0, |n| n + i64::from(!same)));
    same
}

/// Keeps the holder that `before` has: this replica does not look at the lock.
pub(super) fn keep(before: &LeaderLockStatus, status: &mut LeaderLockStatus) {
    status.holder.clone_from(&before.holder);
    status.holder_identity.clone_from(&before.holder_identity);
    status.holder_cluster.clone_from(&before.holder_cluster);
    status.acquire_time.clone_from(&before.acquire_time);
    status.renew_time.clone_from(&before.renew_time);
}

pub(super) fn called(cluster: &str, identity: &str) -> String {
    format!("{cluster}/{identity}")
}

/// As in "eu-1/redlock-7c9f took the lock from eu-2/redlock-1 4 ms after its lease ended, token 1763719203551".
pub(in crate::controller) fn taken(holder: &HolderFacts, before: &LeaderLockStatus) -> String {
    let name = called(&holder.cluster, &holder.identity);
    let token = holder
        .token
        .map_or_else(String::new, |token| format!(", token {token}"));
    let from = match (&before.holder_cluster, &before.holder_identity) {
        (Some(cluster), Some(identity)) if *cluster != holder.cluster || *identity != holder.identity => {
            format!(" from {}", called(cluster, identity))
        }
        _ => String::new(),
    };
    match holder.takeover {
        Some((gap, released)) => {
            let end = if released {
                "it was released"
            } else {
                "its lease ended"
            };
            let milliseconds = (gap.as_secs_f64() * 1e4).round() / 10.0;
            format!("{name} took the lock{from} {milliseconds} ms after {end}{token}")
        }
        None => format!("{name} took the lock{from}{token}"),
    }
}

fn whole(token: u64) -> i64 {
    i64::try_from(token).unwrap_or(i64::MAX)
}
