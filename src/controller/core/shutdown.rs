//! Performs the final work of the process: passes on every lock, and writes the last statuses.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join, join_all},
    stream,
};
use kube::{Api, Client};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};

use super::{Core, world};
use crate::{
    api::{LeaderLock, lock_status::LeaderLockStatus},
    clock,
    controller::{
        index::{FinalizerEnd, Handed, Input, LAST_PATIENCE, LastStatus, LastStop},
        object::ObjectKey,
        target_task::{Command, TargetReport},
        writer::{self, Written},
    },
};

/// Time limit for giving up all locks, regardless of their number.
const ENDING: Duration = Duration::from_millis(1_600);
/// Time limit for removing the finalizers of stopped locks, if no other replica is left to remove them.
const FINALIZERS: Duration = Duration::from_secs(2);
/// Time limit for the last statuses, regardless of their number. A status that is not written in time stays
/// outdated until the next operator starts.
const STATUSES: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 32;
/// Delay before the last statuses, in which unknown replicas acquire the released locks and write their
/// statuses.
const TAKEN_OVER: Duration = Duration::from_millis(300);
/// Time limit for the report of a target task after it has confirmed a stop.
const REPORTED: Duration = Duration::from_millis(500);

impl Core {
    /// Passes on every lock, writes the last statuses, and returns once that is done. `reports` delivers the reports of
    /// the target tasks during the stop.
    pub(in crate::controller) async fn stop(&mut self, reports: &mut mpsc::UnboundedReceiver<TargetReport>) {
        self.index.begin_stop(&world(&self.executor));
        self.execute_last();
        let held = self.index.held_at_end(&world(&self.executor));
        self.executor.list_siblings(LAST_PATIENCE).await;
        // The answers show which siblings would take each of these locks over: one that is not ready may wait for another
        // quorum.
        let siblings = self.executor.siblings.all();
        let question = self.index.last_question();
        let successors = self.executor.round(siblings, question, LAST_PATIENCE).await;
        let mut handed = self.index.hand_out(&successors, &world(&self.executor));
        self.end_idle_tasks(&handed);
        let kept = self.stop_last(&mut handed, reports).await;
        let last = self
            .index
            .last_statuses(&held, &kept, &successors, &world(&self.executor));
        // The locks are given up next: a target task would then stop targets that a sibling is about to
        // adopt.
        self.index.dismiss_target_tasks();
        self.executor.tasks.targets.clear();
        let giving_up = self.executor.quorums.stop(handed.reserve);
        if time::timeout(ENDING, giving_up).await.is_err() {
            tracing::warn!("not every lock was released in time: the remaining leases expire by themselves");
        }
        self.write_last(last, !successors.is_silent()).await;
    }

    /// Ends the target tasks of locks that this replica does not hold: the index decides nothing from here on, so their
    /// view of the siblings would be outdated.
    fn end_idle_tasks(&mut self, handed: &Handed) {
        let stops: HashSet<&ObjectKey> = handed.stops.iter().map(|stop| &stop.key).collect();
        let at = world(&self.executor);
        let keys = self.executor.tasks.targets.keys();
        let idle: Vec<ObjectKey> = keys
            .filter(|key| !stops.contains(key) && !self.index.holds(key, &at))
            .cloned()
            .collect();
        for key in &idle {
            self.executor.tasks.targets.remove(key);
        }
    }

    fn execute_last(&mut self) {
        let effects = self.index.take_effects();
        self.execute(effects);
    }

    /// Stops the targets that no sibling can take over. Returns the locks whose targets could not be stopped.
    async fn stop_last(
        &mut self,
        handed: &mut Handed,
        reports: &mut mpsc::UnboundedReceiver<TargetReport>,
    ) -> HashSet<ObjectKey> {
        let stops = std::mem::take(&mut handed.stops);
        let mut kept = HashSet::new();
        if stops.is_empty() {
            return kept;
        }
        tracing::info!(
            locks = stops.len(),
            "no ready replica can take over the locks: the operator stops the targets first"
        );
        let mut ends = Vec::new();
        for stop in &stops {
            let (done, end) = oneshot::channel();
            self.executor.order(&stop.key, Command::Stop(stop.halt, done));
            ends.push(time::timeout(stop.halt.by.left(clock::now()), end));
        }
        let statuses = self.index.stopping_statuses(&stops, &world(&self.executor));
        let client = &self.executor.kubernetes.clients.urgent;
        let (ends, written) = join(join_all(ends), write_statuses(client, statuses)).await;
        for end in written {
            // A last status that meets another version is written again.
            if let Written::Lock(object) = end {
                self.index.keep_object(object);
            }
        }
        let mut stopped = Vec::new();
        for (LastStop { key, plan, .. }, end) in stops.into_iter().zip(ends) {
            if matches!(end, Ok(Ok(_))) {
                stopped.push(key);
            } else {
                tracing::warn!(object = %format!("LeaderLock {key}"),
                    "targets were not stopped; a lease that this cluster has on the lock ends by itself");
                handed.keep(&plan);
                kept.insert(key);
            }
        }
        self.index
            .remove_last_finalizers(&stopped, &world(&self.executor));
        self.execute_last();
        let removing = time::timeout(FINALIZERS, self.finalizers_removed());
        if removing.await.is_err() {
            tracing::warn!("not every finalizer could be removed in time");
        }
        self.take_reports(reports, stopped.into_iter().collect()).await;
        kept
    }

    /// Waits until the finalizers are removed. The answers contain the current objects, which the last statuses are
    /// based on.
    async fn finalizers_removed(&mut self) {
        while let Some(end) = self.executor.tasks.jobs.ended().await {
            if matches!(
                end,
                Input::Finalizer {
                    end: Ok(FinalizerEnd::Written(_) | FinalizerEnd::Unread),
                    ..
                }
            ) {
                self.index.handle(end, &world(&self.executor));
            }
        }
    }

    /// Handles the reports of target tasks that confirmed a stop.
    async fn take_reports(
        &mut self,
        reports: &mut mpsc::UnboundedReceiver<TargetReport>,
        mut awaited: BTreeSet<ObjectKey>,
    ) {
        let taking = async {
            while !awaited.is_empty() || !reports.is_empty() {
                let Some(report) = reports.recv().await else {
                    return;
                };
                if !report.runs {
                    awaited.remove(&report.key);
                }
                self.index.keep_report(report);
            }
        };
        if time::timeout(REPORTED, taking).await.is_err() {
            tracing::debug!("not every target was reported as stopped");
        }
    }

    /// Writes the last statuses within a time limit.
    async fn write_last(&self, last: Vec<LastStatus>, alone: bool) {
        let count = last.len();
        if count == 0 {
            return;
        }
        if !alone {
            time::sleep(TAKEN_OVER).await;
        }
        let started = clock::now();
        let ends = write_statuses(&self.executor.kubernetes.clients.urgent, last).await;
        let failed = ends
            .iter()
            .filter(|end| matches!(end, Written::Failed(_) | Written::Refused(_)))
            .count();
        let written = ends.len() - failed;
        if written < count {
            tracing::warn!(
                written,
                of = count,
                "not every status could be written: some still show this replica"
            );
        } else {
            tracing::info!(statuses = count, took = ?clock::now().since(started), "last statuses written");
        }
    }
}

/// Writes statuses within a time limit. Returns the ends of the writes that ended in time.
async fn write_statuses(client: &Client, statuses: Vec<LastStatus>) -> Vec<Written> {
    let mut ends = Vec::new();
    let writes = statuses.into_iter().map(|status| write(client.clone(), status));
    let writing = stream::iter(writes).buffer_unordered(AT_ONCE).for_each(|end| {
        ends.push(end);
        std::future::ready(())
    });
    // The caller counts the ends that are missing.
    let _ = time::timeout(STATUSES, writing).await;
    ends
}

async fn write(client: Client, status: LastStatus) -> Written {
    match status {
        LastStatus::Lock {
            key,
            version,
            before,
            status,
            again,
        } => {
            let written = writer::write_lock(client.clone(), key.clone(), version, status.clone()).await;
            match written {
                Written::Conflict if again => write_again(client, key, &before, status).await,
                // For a lock that this replica did not hold, another writer knows more.
                end => end,
            }
        }
        LastStatus::Quorum {
            name,
            version,
            status,
        } => writer::write_quorum(client, name, version, status).await,
    }
}

/// Retries after a conflict if the present status is about the same lease; a status about another lease belongs to a
/// later holder.
async fn write_again(client: Client, key: ObjectKey, before: &LeaderLockStatus, status: Value) -> Written {
    let api = Api::<LeaderLock>::namespaced(client.clone(), &key.namespace);
    let Ok(object) = api.get(&key.name).await else {
        return Written::Conflict;
    };
    let now = object.status.unwrap_or_default();
    let same = now.fencing_token == before.fencing_token && now.holder_identity == before.holder_identity;
    if !same {
        return Written::Gone;
    }
    let version = object.metadata.resource_version.unwrap_or_default();
    writer::write_lock(client, key, version, status).await
}
