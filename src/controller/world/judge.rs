//! Judges a random world from objects and pods alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    cluster::{ClusterWorld, now},
    observer::{has_condition, is_active, is_current, is_paused, shows_role, works_in},
    rates::RequestRates,
    universe::Universe,
    users::{LOCKS, Users},
    workloads::{Workload, WorkloadKind},
    write_log::{WriteLog, is_named},
};
use crate::{clock, lease::BootInstant};

/// The time for which two clusters may show a lock as held by themselves, or a status another state than that of the
/// targets, while all replicas can write.
const STALE: Duration = Duration::from_secs(5);
/// The time for which work may run once its lock is gone: the observation of the pods is late.
const UNGUARDED: Duration = Duration::from_millis(300);
/// The age of a slot, in minutes, by which it has run.
const SLOT_AGE: i64 = 2;

/// The states that must not last, and since when each was seen without a break.
#[derive(Debug)]
struct LastingStates<K>(BTreeMap<K, BootInstant>);

impl<K> Default for LastingStates<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> LastingStates<K> {
    /// Records whether a state is seen now. Reports whether it has lasted for longer than `longest`.
    fn lasts(&mut self, key: K, is_seen: bool, longest: Duration) -> bool {
        if !is_seen {
            self.0.remove(&key);
            return false;
        }
        let since = *self.0.entry(key).or_insert_with(clock::now);
        clock::now().since(since) > longest
    }
}

/// The observations so far.
#[derive(Debug, Default)]
pub(super) struct Judge {
    pub(super) writes: WriteLog,
    rates: RequestRates,
    /// The locks that two clusters show as held by themselves.
    shown_twice: LastingStates<&'static str>,
    /// The workloads whose state is not the one that the status shows, by cluster.
    shown_wrongly: LastingStates<(String, &'static str)>,
    /// The workloads that work in a cluster whose status shows a standby, by cluster.
    shown_standby: LastingStates<(String, &'static str)>,
    /// The workloads that work although their lock is gone, by cluster.
    unguarded: LastingStates<(String, &'static str)>,
    /// The cluster in which each slot of the schedule has run, by its minute.
    slots: BTreeMap<i64, String>,
}

impl Judge {
    /// Checks the rules that hold at any time.
    pub(super) fn check(&mut self, universe: &Universe, users: &Users) -> Result<(), String> {
        self.rates.check(universe)?;
        self.writes.follow(universe, &mut self.rates)?;
        if users.restores() {
            (self.shown_twice, self.shown_wrongly) = Default::default();
            (self.shown_standby, self.unguarded) = Default::default();
            return Ok(());
        }
        for workload in &universe.workloads {
            self.check_work(universe, *workload)?;
            self.check_shown(universe, users, *workload)?;
            self.check_guarded(universe, users, *workload)?;
        }
        LOCKS
            .into_iter()
            .try_for_each(|lock| self.check_status(universe, users, lock))
    }

    /// Checks that the work of a target runs once.
    fn check_work(&mut self, universe: &Universe, workload: Workload) -> Result<(), String> {
        if workload.kind == WorkloadKind::Schedule {
            return self.check_slots(universe, workload);
        }
        let working = works_in(universe, workload);
        if working.len() > 1 {
            return Err(format!("{:.3}: {} runs in {working:?}", now(), workload.name));
        }
        let is_pool = workload.kind == WorkloadKind::Pool;
        let mut clusters = universe.clusters.iter().filter(|_| is_pool);
        match clusters.find(|cluster| cluster.labelled_pods(workload.name) > 1) {
            Some(cluster) => Err(format!(
                "{:.3}: {}: two pods of {} have the label",
                now(),
                cluster.name,
                workload.name
            )),
            None => Ok(()),
        }
    }

    /// Checks that each slot runs in one cluster.
    fn check_slots(&mut self, universe: &Universe, workload: Workload) -> Result<(), String> {
        for cluster in &universe.clusters {
            for pod in cluster.running_pod_names(workload.name) {
                // The name is that of the CronJob, the minute of the slot, and a suffix.
                let Some(slot) = pod.rsplit('-').nth(1).and_then(|minute| minute.parse().ok()) else {
                    continue;
                };
                let first = self.slots.entry(slot).or_insert_with(|| cluster.name.clone());
                if *first != cluster.name {
                    return Err(format!(
                        "{:.3}: slot {slot} of {} runs in {}, and ran in {first}",
                        now(),
                        workload.name,
                        cluster.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that no work runs once its lock is gone. A restored backup may have work without a lock.
    fn check_guarded(
        &mut self,
        universe: &Universe,
        users: &Users,
        workload: Workload,
    ) -> Result<(), String> {
        if workload.kind == WorkloadKind::Schedule || users.has_restored() {
            return Ok(());
        }
        for cluster in &universe.clusters {
            let key = (cluster.name.clone(), workload.name);
            let is_unguarded = cluster.lock(workload.lock).is_none() && cluster.works(workload);
            if self.unguarded.lasts(key, is_unguarded, UNGUARDED) {
                return Err(format!(
                    "{:.3}: {}: {} is gone, and {} runs for more than {UNGUARDED:?}",
                    now(),
                    cluster.name,
                    workload.lock,
                    workload.name
                ));
            }
        }
        Ok(())
    }

    /// Checks that the status shows the state of a target.
    fn check_shown(&mut self, universe: &Universe, users: &Users, workload: Workload) -> Result<(), String> {
        if workload.kind == WorkloadKind::Schedule {
            return Ok(());
        }
        for (index, cluster) in universe.clusters.iter().enumerate() {
            let key = (cluster.name.clone(), workload.name);
            let is_known = users.can_report(index)
                && !cluster.operators().is_empty()
                && cluster.api.read(&workload.key()).is_some()
                && is_named(cluster, workload)
                && is_current(cluster, workload.lock, "Enforced");
            let is_hidden = users.can_report(index)
                && !cluster.operators().is_empty()
                && is_named(cluster, workload)
                && !is_paused(cluster, workload.lock)
                && shows_role(cluster, workload.lock, "Standby")
                && cluster.works(workload);
            if self.shown_standby.lasts(key.clone(), is_hidden, STALE) {
                return Err(format!(
                    "{:.3}: {}: the status of {} shows Standby, and {} works for more than {STALE:?}",
                    now(),
                    cluster.name,
                    workload.lock,
                    workload.name
                ));
            }
            let active = is_active(cluster, workload.lock);
            let is_wrong = is_known && cluster.is_declared(workload) != active;
            if self.shown_wrongly.lasts(key, is_wrong, STALE) {
                return Err(format!(
                    "{:.3}: {}: the status of {} shows active = {active} and Enforced, and {} is not so for more than {STALE:?}",
                    now(),
                    cluster.name,
                    workload.lock,
                    workload.name
                ));
            }
        }
        Ok(())
    }

    /// Checks that a slot of the last minutes has run.
    fn has_run_lately(&self, workload: Workload) -> Result<(), String> {
        let minute = now().as_second() / 60;
        match self.slots.last_key_value() {
            Some((slot, _)) if *slot >= minute - SLOT_AGE => Ok(()),
            last => Err(format!(
                "the last run of {} was {last:?}, and it is minute {minute}",
                workload.name
            )),
        }
    }

    fn check_status(&mut self, universe: &Universe, users: &Users, lock: &'static str) -> Result<(), String> {
        let clusters = universe.clusters.iter().enumerate();
        let shown = clusters.filter(|(index, cluster)| {
            users.can_report(*index) && !cluster.operators().is_empty() && is_active(cluster, lock)
        });
        let shown: Vec<&str> = shown.map(|(_, cluster)| &*cluster.name).collect();
        if !self.shown_twice.lasts(lock, shown.len() > 1, STALE) {
            return Ok(());
        }
        Err(format!(
            "{:.3}: {lock} is shown as active in {shown:?} for more than {STALE:?}",
            now()
        ))
    }
}

/// Checks that the present objects and pods are as declared.
pub(super) fn at_rest(universe: &Universe, judge: &Judge) -> Result<(), String> {
    // Clusters whose locks declare different targets run what the holder declares.
    let mut wanted: BTreeMap<&str, (Workload, Vec<bool>)> = BTreeMap::new();
    for cluster in &universe.clusters {
        for workload in universe.workloads.iter().copied() {
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
        if workload.kind == WorkloadKind::Schedule {
            if wanted.iter().all(|named| *named) {
                judge.has_run_lately(workload)?;
            }
            continue;
        }
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
        WorkloadKind::CronJob => cluster.starts(workload),
        WorkloadKind::Deployment
        | WorkloadKind::StatefulSet
        | WorkloadKind::Schedule
        | WorkloadKind::Job
        | WorkloadKind::Pool
        | WorkloadKind::Lease
        | WorkloadKind::Service => cluster.works(workload),
    }
}

/// Reports whether a cluster has the lock, and has not stepped down from it.
fn is_enabled(cluster: &ClusterWorld, lock: &str) -> bool {
    let object = cluster.lock(lock);
    object.is_some_and(|object| object["spec"]["state"] != "SteppedDown")
}

/// Reports whether an enabled lock of a cluster names a workload.
fn names(cluster: &ClusterWorld, workload: Workload) -> bool {
    is_enabled(cluster, workload.lock) && is_named(cluster, workload)
}
