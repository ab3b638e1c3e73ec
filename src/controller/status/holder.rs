//! Writes the holder into a status.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};

use crate::api::lock_status::LeaderLockStatus;

/// The present holder of the lock.
#[derive(Clone, Debug)]
pub(in crate::controller) struct HolderFacts {
    pub(in crate::controller) identity: String,
    pub(in crate::controller) cluster: String,
    pub(in crate::controller) cluster_uid: String,
    /// Whether the holder belongs to this cluster.
    pub(in crate::controller) own_cluster: bool,
    pub(in crate::controller) token: Option<u64>,
    /// The time of the acquisition, which is known only for this replica's own lease.
    pub(in crate::controller) acquired: Option<Timestamp>,
    /// The time from the end of the previous lease to this one, and whether that lease was released.
    pub(in crate::controller) takeover: Option<(Duration, bool)>,
}

/// Writes the holder into `status`, which names no holder yet, and returns whether it is the holder of
/// `before`.
///
/// The token identifies a grant. Names alone do not: a status in between may have had no holder, because no
/// replica could see one. `holds` is true if this replica is the holder and knows its own token; other
/// replicas know the tokens they observed.
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
    status.holder_cluster_uid = Some(holder.cluster_uid.clone());
    status.fencing_token = token.or(status.fencing_token);
    let acquired = holder.acquired.map(MicroTime);
    if same {
        status.acquire_time = before.acquire_time.clone().or(acquired);
        status.renew_time = before.renew_time.clone().or(Some(MicroTime(now)));
    } else {
        status.acquire_time = acquired;
        status.renew_time = Some(MicroTime(now));
    }
    // The first holder of a lock is not a transition.
    status.lease_transitions = Some(before.lease_transitions.map_or(0, |n| n + i64::from(!same)));
    same
}

/// Keeps the holder of `before`: this replica does not observe the lock.
pub(super) fn keep(before: &LeaderLockStatus, status: &mut LeaderLockStatus) {
    status.holder.clone_from(&before.holder);
    status.holder_identity.clone_from(&before.holder_identity);
    status.holder_cluster.clone_from(&before.holder_cluster);
    status.holder_cluster_uid.clone_from(&before.holder_cluster_uid);
    status.acquire_time.clone_from(&before.acquire_time);
    status.renew_time.clone_from(&before.renew_time);
}

pub(super) fn called(cluster: &str, identity: &str) -> String {
    format!("{cluster}/{identity}")
}

/// Returns a text such as "eu-1/redlock-7c9f acquired the lock from eu-2/redlock-1 4 ms after its lease ended, token
/// 1763719203551".
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
            format!("{name} acquired the lock{from} {milliseconds} ms after {end}{token}")
        }
        None => format!("{name} acquired the lock{from}{token}"),
    }
}

fn whole(token: u64) -> i64 {
    i64::try_from(token).unwrap_or(i64::MAX)
}
