//! Does the work of each second, and the short waits for the guardian.

use std::collections::BTreeSet;

use redlock_core::{
    BootInstant,
    fence::{Finding, Input},
};

use super::Owner;
use crate::{agent::pod::Pod, guardian::chain, spec::LockSpec, table::Found};

/// Number of ticks after which credentials are read again: a Secret that changed is in its file after about a
/// minute.
const REKEY_TICKS: u64 = 10;

/// Number of ticks after which the status of a pod with an empty cgroup is read again. The first tick reads it, because a
/// restarted agent knows no placement.
const PLACE_TICKS: u64 = 5;

impl Owner<'_> {
    pub(super) fn tick(&mut self, now: BootInstant) {
        self.ticks += 1;
        self.take_steps(now);
        self.take_releases(now);
        self.remove_ended();
        self.restore_lost();
        self.check_abilities(now);
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        for uid in &uids {
            self.acknowledged(uid);
            if self.pods.get(uid).is_some_and(|pod| pod.lock.is_none()) {
                self.resolve_again(uid);
            }
            if self.pods.get(uid).is_some_and(|pod| {
                pod.is_running()
                    || pod.is_released()
                    || pod.is_storing()
                    || pod.is_confirming()
                    || is_killed(pod)
                    || !pod.lets_run()
            }) {
                self.check_cgroup(uid);
            }
        }
        if self.ticks % PLACE_TICKS == 1 {
            self.read_containers();
        }
        self.follow_urls();
        self.reopen();
        self.read_locks();
        if self.ticks.is_multiple_of(REKEY_TICKS) {
            self.rekey();
        }
        self.show_waiting(now);
        self.publish_readiness(now);
    }

    /// Checks the records that wait for their acknowledgement, at each turn of the task.
    pub(super) fn poll_soon(&mut self) {
        let waiting = self.pods.iter().filter(|(_, pod)| pod.is_storing());
        let waiting: Vec<String> = waiting.map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            // A container that the kubelet started in the meantime comes first.
            self.check_cgroup(&uid);
            self.acknowledged(&uid);
        }
    }

    fn acknowledged(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(stored) = pod.stored.as_mut().filter(|stored| !stored.bytes.is_empty()) else {
            return;
        };
        if stored.acknowledged || self.shared.table.is_acknowledged(uid, &stored.bytes) {
            stored.acknowledged = true;
            if pod.is_storing() && pod.has_shown_freeze() {
                self.input(uid, Input::Stored);
            }
        }
    }

    fn take_steps(&mut self, now: BootInstant) {
        let quorums = self.quorums.values_mut();
        let findings: Vec<(LockSpec, Finding)> = quorums.flat_map(|quorum| quorum.on_steps(now)).collect();
        self.on_findings(findings);
    }

    fn remove_ended(&mut self) {
        let (table, pods) = (&self.shared.table, &self.pods);
        self.ended.retain(|uid, bytes| {
            if pods.contains_key(uid) {
                // The pod was published again: the entry is that of a new record.
                return false;
            }
            if !table.is_acknowledged(uid, bytes) {
                return true;
            }
            if let Err(error) = table.remove(uid) {
                tracing::warn!(pod = uid, error = %chain(&error), "an entry that has ended is left");
            }
            false
        });
    }

    /// Rewrites entries that were deleted or could not be written.
    fn restore_lost(&mut self) {
        let lost = |(uid, pod): &(&String, &Pod)| {
            let stored = pod.stored.as_ref();
            stored.is_some_and(|stored| stored.bytes.is_empty())
                || stored.is_some() && self.shared.table.read(uid) == Found::Missing
        };
        let lost: Vec<String> = self
            .pods
            .iter()
            .filter(lost)
            .map(|(uid, _)| uid.clone())
            .collect();
        if lost.is_empty() {
            return;
        }
        if let Err(error) = self.shared.table.create() {
            tracing::error!(error = %chain(&error), "the table cannot be created");
        }
        for uid in lost {
            let stored = self.pods.get(&uid).and_then(|pod| pod.stored.as_ref());
            if let Some(state) = stored.map(|stored| stored.entry.state.clone()) {
                tracing::warn!(pod = uid, "the entry was lost, and is written again");
                self.store(&uid, state);
            }
        }
    }

    /// Connects to the masters of restored pods, if that failed before.
    fn reopen(&mut self) {
        let locks: Vec<LockSpec> = self.pods.values().filter_map(|pod| pod.lock.clone()).collect();
        for lock in locks {
            if !self.quorums.contains_key(&lock.quorum)
                && let Err(error) = self.open(&lock)
            {
                tracing::warn!(lock = lock.name, error = %chain(&error), "the lock gives no permit");
            }
        }
    }

    /// Applies changed urls of masters to the known pods. Otherwise, a long-running pod would lose one master
    /// after the other.
    fn follow_urls(&mut self) {
        let declared: BTreeSet<String> = self.pods.values().map(|pod| pod.declared.clone()).collect();
        for declared in declared {
            let Some((namespace, name)) = declared.split_once('/') else {
                continue;
            };
            // A lock that no longer fences, or is unknown at present, stays as it is.
            let Ok(resolved) = self.shared.resolver.resolve(namespace, name) else {
                continue;
            };
            let pods = self.pods.iter().filter(|(_, pod)| pod.declared == declared);
            let moved =
                pods.filter_map(|(uid, pod)| Some((uid.clone(), pod.lock.as_ref()?.moved_to(&resolved)?)));
            let moved: Vec<(String, LockSpec)> = moved.collect();
            for (uid, lock) in moved {
                if let Err(error) = self.open(&lock) {
                    tracing::warn!(pod = uid, lock = declared, error = %chain(&error), "changed urls of masters cannot be used");
                    continue;
                }
                tracing::info!(
                    pod = uid,
                    lock = declared,
                    "the urls of masters or the id of the quorum have changed"
                );
                self.move_to(&uid, lock);
            }
        }
        self.close_unused();
    }

    fn move_to(&mut self, uid: &str, lock: LockSpec) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.lock = Some(lock);
        let state = pod.stored.as_ref().map(|stored| stored.entry.state.clone());
        if let Some(state) = state {
            self.store(uid, state);
        }
    }

    fn rekey(&self) {
        for (spec, quorum) in &self.quorums {
            let rekeyed = self.shared.resolver.access(spec);
            let rekeyed = rekeyed.and_then(|access| quorum.rekey(access).map_err(|error| error.to_string()));
            if let Err(reason) = rekeyed {
                tracing::warn!(quorum = spec.name, reason, "credentials cannot be renewed");
            }
        }
    }

    fn publish_readiness(&self, now: BootInstant) {
        let guardian = self.shared.table.heartbeat();
        let able = guardian.is_some_and(|guardian| guardian.runs(now) && guardian.node_unable.is_none());
        let able = able && self.cannot_freeze.is_none();
        let ready = able && self.kubelet.is_known() && self.pods.values().all(Pod::is_guarded);
        self.shared
            .ready
            .send_if_modified(|known| std::mem::replace(known, ready) != ready);
    }
}

/// Reports whether the pod is killed: the kubelet may start a container in the frozen cgroup at any time.
fn is_killed(pod: &Pod) -> bool {
    pod.waits_for_empty() || crate::agent::pod::name(pod.record.state()) == "killed"
}
