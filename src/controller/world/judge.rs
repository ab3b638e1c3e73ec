//! Judges a random world from objects and pods alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use redlock_world::kubernetes::{CommittedWrite, ResourceId};

use super::{
    cluster::{ClusterWorld, now},
    manifests::OPERATOR_NAMESPACE,
    observer::{has_condition, is_active, running_in},
    story::describe_write,
    universe::Universe,
    users::{LOCKS, Users},
    workloads::{WORKLOADS, Workload, WorkloadKind},
};
use crate::{clock, lease::BootInstant};

/// The time for which two clusters may show a lock as held by themselves, while all of their replicas can write.
const STALE: Duration = Duration::from_secs(5);

/// The observations so far.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The locks that two clusters show as held by themselves, and since when.
    shown_twice: BTreeMap<&'static str, BootInstant>,
}

impl Judge {
    /// Checks the rules that hold at any time.
    pub(super) fn check(&mut self, universe: &Universe, users: &Users) -> Result<(), String> {
        if users.restores() {
            self.shown_twice.clear();
            return Ok(());
        }
        for workload in WORKLOADS {
            let running = running_in(universe, workload.name);
            if running.len() > 1 {
                return Err(format!("{:.3}: {} runs in {running:?}", now(), workload.name));
            }
        }
        LOCKS
            .into_iter()
            .try_for_each(|lock| self.check_status(universe, users, lock))
    }

    fn check_status(&mut self, universe: &Universe, users: &Users, lock: &'static str) -> Result<(), String> {
        let clusters = universe.clusters.iter().enumerate();
        let shown = clusters.filter(|(index, cluster)| {
            users.can_report(*index) && !cluster.operators().is_empty() && is_active(cluster, lock)
        });
        let shown: Vec<&str> = shown.map(|(_, cluster)| &*cluster.name).collect();
        if shown.len() < 2 {
            self.shown_twice.remove(lock);
            return Ok(());
        }
        let since = *self.shown_twice.entry(lock).or_insert_with(clock::now);
        if clock::now().since(since) <= STALE {
            return Ok(());
        }
        Err(format!(
            "{:.3}: {lock} is shown as active in {shown:?} for more than {STALE:?}",
            now()
        ))
    }
}

/// Checks that the present objects and pods are as declared.
pub(super) fn at_rest(universe: &Universe) -> Result<(), String> {
    // Clusters whose locks declare different targets run what the holder declares.
    let mut wanted: BTreeMap<&str, (Workload, Vec<bool>)> = BTreeMap::new();
    for cluster in &universe.clusters {
        for workload in WORKLOADS {
            let named = names(cluster, workload);
            if !named && is_running(cluster, workload) {
                return Err(format!(
                    "{}: {} runs, and no lock that is enabled names it",
                    cluster.name, workload.name
                ));
            }
            if is_enabled(cluster, workload.lock) {
                let (_, all) = wanted.entry(workload.name).or_insert((workload, Vec::new()));
                all.push(named);
            }
        }
        LOCKS
            .into_iter()
            .try_for_each(|lock| lock_at_rest(cluster, lock))?;
    }
    for (name, (workload, wanted)) in wanted {
        let running: BTreeSet<&str> = universe
            .clusters
            .iter()
            .filter(|cluster| is_running(cluster, workload))
            .map(|cluster| &*cluster.name)
            .collect();
        if wanted.iter().all(|named| *named) && running.len() != 1 {
            return Err(format!(
                "{name} is to run in one cluster, and runs in {running:?}"
            ));
        }
    }
    Ok(())
}

fn lock_at_rest(cluster: &ClusterWorld, lock: &str) -> Result<(), String> {
    let Some(object) = cluster.lock(lock) else {
        return Ok(());
    };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Err(format!("{}: {lock} is deleted and not gone", cluster.name));
    }
    if has_condition(cluster, lock, "Ready") {
        Ok(())
    } else {
        Err(format!("{}: {lock} is not Ready", cluster.name))
    }
}

/// Reports whether a workload runs. A CronJob runs from time to time.
fn is_running(cluster: &ClusterWorld, workload: Workload) -> bool {
    match workload.kind {
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => cluster.running_pods(workload.name) > 0,
        WorkloadKind::CronJob => cluster.starts(workload),
    }
}

/// Reports whether a cluster has the lock, and has not stepped down from it.
fn is_enabled(cluster: &ClusterWorld, lock: &str) -> bool {
    let object = cluster.lock(lock);
    object.is_some_and(|object| object["spec"]["state"] != "SteppedDown")
}

/// Reports whether an enabled lock of a cluster names a workload.
fn names(cluster: &ClusterWorld, workload: Workload) -> bool {
    let Some(object) = cluster.lock(workload.lock) else {
        return false;
    };
    let targets = object["spec"]["targets"].as_array();
    let mut targets = targets.into_iter().flatten();
    is_enabled(cluster, workload.lock) && targets.any(|target| target["name"] == workload.name)
}

/// Checks that no operator has written anything since this time, except the Leases of its own namespace and the
/// heartbeats in the statuses of the quorums.
pub(super) fn writes_nothing(universe: &Universe, since: Timestamp) -> Result<(), String> {
    for cluster in &universe.clusters {
        let (history, _) = cluster.api.take_history();
        let is_surplus = |write: &&CommittedWrite| {
            let is_lease =
                write.key.resource == ResourceId::LEASES && write.key.namespace == OPERATOR_NAMESPACE;
            let is_heartbeat = write.key.resource == ResourceId::REDIS_QUORUMS;
            write.time > since && write.caller.contains('#') && !is_lease && !is_heartbeat
        };
        let surplus: Vec<String> = history
            .iter()
            .filter(is_surplus)
            .map(|write| describe_write(&cluster.name, write))
            .collect();
        if !surplus.is_empty() {
            return Err(format!(
                "{}: written at rest:\n{}",
                cluster.name,
                surplus.concat()
            ));
        }
    }
    Ok(())
}
