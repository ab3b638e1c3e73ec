//! The last statuses of a replica that ends and finds no sibling to write the next ones.

use std::{
    collections::{BTreeSet, HashSet},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::{Api, Client};
use serde_json::Value;
use tokio::{sync::mpsc, time};

use super::Core;
use crate::{
    api::{
        LeaderLock, RedisQuorum, leader_lock::Candidates, lock_status::LeaderLockStatus,
        quorum_status::RedisQuorumStatus,
    },
    clock,
    controller::{
        events::timestamp,
        object::ObjectKey,
        said::Round,
        status::{EndedFacts, HeldUntilEnd, claims, ended_quorum, ended_status},
        target_task::TargetReport,
        writer::{self, Written},
    },
    lease::Moment,
};

/// However many statuses there are: what is not written then says more than is known until the next operator.
const STATUSES: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 32;
/// Replicas that this one does not know take a lock that was released within milliseconds, and write.
const TAKEN_OVER: Duration = Duration::from_millis(300);
/// A warden reports a moment after it has confirmed a stop.
const REPORTED: Duration = Duration::from_millis(500);

/// What is left to write, once everything is given back.
pub(super) struct Last {
    writes: Vec<BoxFuture<'static, Written>>,
    alone: bool,
}

impl Core {
    /// The locks that this replica holds.
    pub(super) fn held_at_end(&self, now: Moment) -> HashSet<ObjectKey> {
        let held = self.locks.known().filter(|key| self.holds(key, now));
        held.cloned().collect()
    }

    /// Takes the reports of wardens that confirmed a stop.
    pub(super) async fn take_reports(
        &mut self,
        reports: &mut mpsc::UnboundedReceiver<TargetReport>,
        stopped: &BTreeSet<ObjectKey>,
    ) {
        let mut awaited = stopped.clone();
        let taking = async {
            while let Ok(report) = reports.try_recv() {
                self.keep_report(report, &mut awaited);
            }
            while !awaited.is_empty()
                && let Some(report) = reports.recv().await
            {
                self.keep_report(report, &mut awaited);
            }
        };
        if time::timeout(REPORTED, taking).await.is_err() {
            tracing::debug!("not every target was reported to be stopped");
        }
    }

    fn keep_report(&mut self, report: TargetReport, awaited: &mut BTreeSet<ObjectKey>) {
        if !report.runs {
            awaited.remove(&report.key);
        }
        let entry = self.locks.get_mut(&report.key);
        if let Some(warden) = entry.and_then(|entry| entry.warden.as_mut()) {
            warden.last = Some(report);
        }
    }

    /// Of what no sibling sees. Without knowledge of the siblings only of the locks that this replica held.
    pub(super) fn last_statuses(
        &self,
        held: &HashSet<ObjectKey>,
        kept: &HashSet<ObjectKey>,
        successors: &Round,
    ) -> Last {
        // A ready sibling that does not answer may hold locks, and write.
        let alone = !successors.is_silent();
        let seen_by_siblings = &successors.seen_by_siblings();
        let locks = self.locks.known().filter_map(|key| {
            let had = match (held.contains(key), kept.contains(key)) {
                (_, true) => HeldUntilEnd::LeftToRunOut,
                (true, false) => HeldUntilEnd::Released,
                (false, false) if alone => HeldUntilEnd::No,
                (false, false) => return None,
            };
            self.last_of_lock(key, had, seen_by_siblings)
        });
        let quorums = self.quorums.names().into_iter().filter(|_| alone);
        let quorums = quorums.filter(|name| !seen_by_siblings.contains(name));
        let quorums = quorums.filter_map(|name| self.last_of_quorum(&name));
        Last {
            writes: locks.chain(quorums).collect(),
            alone,
        }
    }

    fn last_of_lock(
        &self,
        key: &ObjectKey,
        held: HeldUntilEnd,
        seen_by_siblings: &BTreeSet<String>,
    ) -> Option<BoxFuture<'static, Written>> {
        let entry = self.locks.get(key)?;
        let object = &entry.object;
        let before = object.status.clone().unwrap_or_default();
        let left = self.locks.unreadable.contains_key(key)
            || object.metadata.deletion_timestamp.is_some()
            || seen_by_siblings.contains(&object.spec.quorum_ref.name);
        if left || !claims(&before) {
            return None;
        }
        let plan = entry.put.as_ref();
        let status = ended_status(&EndedFacts {
            before: &before,
            generation: object.metadata.generation.unwrap_or_default(),
            replica: &format!("{}/{}", self.cluster.name(), self.identity),
            held,
            agents: plan.is_some_and(|plan| plan.candidates == Candidates::Agents),
            targets: entry.warden.as_ref().and_then(|warden| warden.last.as_ref()),
            now: timestamp(),
        });
        let value = writer::replacement(&before, &status)?;
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        let (client, key) = (self.clients.urgent.clone(), key.clone());
        let again = !matches!(held, HeldUntilEnd::No);
        let write = async move {
            let written = writer::write_lock(client.clone(), key.clone(), version, value.clone()).await;
            match written {
                Written::Conflict if again => write_again(client, key, before, value).await,
                // Another writer knows more of a lock that this replica did not hold.
                end => end,
            }
        };
        Some(write.boxed())
    }

    fn last_of_quorum(&self, name: &str) -> Option<BoxFuture<'static, Written>> {
        let entry = self.quorums.get(name)?;
        let object: &RedisQuorum = &entry.object;
        let before = object.status.clone().unwrap_or_default();
        if object.metadata.deletion_timestamp.is_some() || before == RedisQuorumStatus::default() {
            return None;
        }
        let generation = object.metadata.generation.unwrap_or_default();
        let replica = format!("{}/{}", self.cluster.name(), self.identity);
        let status = ended_quorum(
            &before,
            (generation, &replica, &self.cluster.to_string()),
            timestamp(),
        );
        let value = writer::replacement(&before, &status)?;
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        let client = self.clients.urgent.clone();
        Some(writer::write_quorum(client, name.to_owned(), version, value).boxed())
    }

    /// Within bounded time: the process ends.
    pub(super) async fn write_last(&self, last: Last) {
        let count = last.writes.len();
        if count == 0 {
            return;
        }
        if !last.alone {
            time::sleep(TAKEN_OVER).await;
        }
        let started = clock::now();
        let done = AtomicUsize::new(0);
        let writing = stream::iter(last.writes)
            .buffer_unordered(AT_ONCE)
            .for_each(|written| {
                if !matches!(written, Written::Failed(_) | Written::Refused(_)) {
                    done.fetch_add(1, Ordering::Relaxed);
                }
                std::future::ready(())
            });
        let _ = time::timeout(STATUSES, writing).await;
        let written = done.into_inner();
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

/// A status that was written since about the same lease is replaced; one about another lease is a later holder's.
async fn write_again(client: Client, key: ObjectKey, before: LeaderLockStatus, status: Value) -> Written {
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
