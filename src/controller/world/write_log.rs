//! The writes of a random world as they are committed, and the rules for those of the operators.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use redlock_world::kubernetes::{CommittedWrite, ResourceId};

use super::{
    cluster::ClusterWorld,
    manifests::NAMESPACE,
    rates::RequestRates,
    story::{describe_write, is_told},
    universe::Universe,
    workloads::{Workload, WorkloadKind},
};
use crate::{clock, lease::BootInstant};

/// The time in which an operator confirms a stop, also that of a Lease, and also after the longest lease.
const STOPPING: Duration = Duration::from_secs(120);
/// The number of writes of a cluster that a story has.
const STORY: usize = 60;

/// The last writes of each cluster, and the workloads that no operator may write.
#[derive(Debug, Default)]
pub(super) struct WriteLog {
    last: BTreeMap<String, VecDeque<CommittedWrite>>,
    /// The workloads that are stopped while no lock names them, by the name of the cluster, and since when.
    stopped: BTreeMap<(String, &'static str), BootInstant>,
}

impl WriteLog {
    /// Follows the writes of all clusters since the last call.
    pub(super) fn follow(&mut self, universe: &Universe, rates: &mut RequestRates) -> Result<(), String> {
        let mut judged = Ok(());
        for cluster in &universe.clusters {
            let (history, _) = cluster.api.take_history();
            for write in history {
                if judged.is_ok() {
                    judged = self.check(universe, (cluster, &write), rates);
                }
                self.keep(cluster, write);
            }
            self.follow_releases(universe, cluster);
        }
        judged
    }

    /// Checks that the operators write to no object that no lock names, once it was seen stopped, and to no object
    /// too often.
    fn check(
        &self,
        universe: &Universe,
        (cluster, write): (&ClusterWorld, &CommittedWrite),
        rates: &mut RequestRates,
    ) -> Result<(), String> {
        if !is_by_operator(write) {
            return Ok(());
        }
        let mut workloads = universe.workloads.iter();
        let written = workloads.find(|workload| is_of(**workload, write));
        if let Some(workload) = written {
            rates.count_write(&cluster.name, workload.name)?;
        }
        let is_released = |workload: &&Workload| {
            let stopped = self.stopped.get(&(cluster.name.clone(), workload.name));
            stopped.is_some_and(|since| clock::now().since(*since) > STOPPING)
                && !is_named(cluster, **workload)
        };
        match written.filter(is_released) {
            Some(workload) => Err(format!(
                "{} was stopped, no lock names it, and the operator wrote:\n{}",
                workload.name,
                describe_write(&cluster.name, write)
            )),
            None => Ok(()),
        }
    }

    fn follow_releases(&mut self, universe: &Universe, cluster: &ClusterWorld) {
        for workload in &universe.workloads {
            let key = (cluster.name.clone(), workload.name);
            if is_named(cluster, *workload) {
                self.stopped.remove(&key);
            } else if !cluster.is_declared(*workload) {
                self.stopped.entry(key).or_insert_with(clock::now);
            }
        }
    }

    fn keep(&mut self, cluster: &ClusterWorld, write: CommittedWrite) {
        if !is_told(&write) && !is_surplus(&write) {
            return;
        }
        let last = self.last.entry(cluster.name.clone()).or_default();
        last.push_back(write);
        if last.len() > STORY {
            last.pop_front();
        }
    }

    /// Describes the last writes, for a person.
    pub(super) fn story(&self) -> String {
        let told = self.last.iter().flat_map(|(cluster, writes)| {
            let told = writes.iter().filter(|write| is_told(write));
            told.map(move |write| describe_write(cluster, write))
        });
        told.collect()
    }

    /// Checks that no operator has written anything since this time, except Leases, the heartbeats
    /// in the statuses of the quorums, and the runs of schedules.
    pub(super) fn writes_nothing(&self, since: Timestamp) -> Result<(), String> {
        for (cluster, writes) in &self.last {
            let surplus = writes
                .iter()
                .filter(|write| write.time > since && is_surplus(write));
            let surplus: String = surplus.map(|write| describe_write(cluster, write)).collect();
            if !surplus.is_empty() {
                return Err(format!("{cluster}: written at rest:\n{surplus}"));
            }
        }
        Ok(())
    }
}

fn is_by_operator(write: &CommittedWrite) -> bool {
    write.caller.contains('#')
}

/// Reports whether an operator never writes this at rest. Without the policy for Leases, it renews those that it holds.
fn is_surplus(write: &CommittedWrite) -> bool {
    let key = &write.key;
    let is_lease = key.resource == ResourceId::LEASES;
    let is_heartbeat = key.resource == ResourceId::REDIS_QUORUMS;
    let is_run = key.resource == ResourceId::JOBS && key.name.starts_with("report-");
    is_by_operator(write) && !is_lease && !is_heartbeat && !is_run && !is_slot_event(write)
}

/// Reports whether a write is the event of a slot that runs in another cluster.
fn is_slot_event(write: &CommittedWrite) -> bool {
    let after = write
        .after
        .as_ref()
        .filter(|_| write.key.resource == ResourceId::EVENTS);
    let reason = after.and_then(|event| event["reason"].as_str());
    reason.is_some_and(|reason| reason.starts_with("Slot"))
}

/// Reports whether a write changes the object of a workload, or a pod of a pool.
fn is_of(workload: Workload, write: &CommittedWrite) -> bool {
    if workload.kind == WorkloadKind::Pool {
        let is_pod = write.key.resource == ResourceId::PODS && write.key.namespace == NAMESPACE;
        return is_pod && write.key.name.starts_with("pool-");
    }
    write.key == workload.key()
}

/// Reports whether a lock of a cluster names a workload, also one that was stepped down or is being deleted.
pub(super) fn is_named(cluster: &ClusterWorld, workload: Workload) -> bool {
    let Some(object) = cluster.lock(workload.lock) else {
        return false;
    };
    let targets = object["spec"]["targets"].as_array();
    targets
        .into_iter()
        .flatten()
        .any(|target| target["name"] == workload.name)
}
