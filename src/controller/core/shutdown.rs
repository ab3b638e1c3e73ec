//! The core's last work: every lock is passed on.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time};

use super::{Core, Job};
use crate::{
    api::{
        leader_lock::{Candidates, Enforcement},
        plan::LockPlan,
    },
    clock,
    controller::{
        object::{ObjectKey, trim},
        target_task::{Command, StopRequest, TargetReport},
    },
    lease::LockName,
};

/// However many locks there are, they are given back in this time.
const ENDING: Duration = Duration::from_millis(1_600);
/// And their finalizers are removed in this time, where nobody is left to do it.
const FINALIZERS: Duration = Duration::from_secs(2);

impl Core {
    /// Passes every lock on: to siblings where targets run and one of them sees a majority of the masters and contends,
    /// else stopped first; the others released.
    /// Writes what is left to say of them, and returns when that is done. `reports` brings what the wardens report
    /// meanwhile.
    pub(in crate::controller) async fn stop(&mut self, reports: &mut mpsc::UnboundedReceiver<TargetReport>) {
        self.state.in_use.store(Arc::new(self.in_use(true)));
        let held = self.held_at_end(clock::now());
        let put = self
            .locks
            .with_targets()
            .filter_map(|(_, entry, _)| entry.put.as_deref());
        let successors = self.successors(put, clock::now()).await;
        let now = clock::now();
        let mut reserve: HashMap<String, HashSet<LockName>> = HashMap::new();
        let mut keep = |plan: &LockPlan| {
            let locks = reserve.entry(plan.quorum.clone()).or_default();
            locks.insert(plan.lock_name.clone());
        };
        // A sibling of another version may have started targets that this one cannot read.
        let unreadable = self.locks.unreadable.keys();
        let unreadable = unreadable.filter_map(|key| self.locks.get(key)?.put.as_deref());
        unreadable.for_each(&mut keep);
        let (mut stopped, mut asked, mut kept) = (Vec::new(), Vec::new(), HashSet::new());
        for (key, entry, warden) in self.locks.with_targets() {
            let Some(plan) = &entry.put else { continue };
            // What an agent has is looked after by every replica: the last one takes it back.
            let looks_after = plan.candidates == Candidates::Agents || self.holds(key, now);
            if !looks_after || plan.enforcement == Enforcement::Observe {
                continue;
            }
            let observed = plan.candidates == Candidates::Agents;
            if successors.has_successor(&plan.quorum, &plan.lock_name, observed) {
                keep(plan);
                continue;
            }
            let (done, end) = tokio::sync::oneshot::channel();
            let bound = plan.timings.stop + plan.timings.lease_duration;
            let halt = StopRequest {
                by: now + bound,
                lease: None,
            };
            warden.send(Command::Stop(halt, done));
            asked.push((key.clone(), plan.clone()));
            stopped.push(time::timeout(bound, end));
        }
        if !stopped.is_empty() {
            tracing::info!(
                locks = stopped.len(),
                "no ready sibling can take the locks over: stops the targets first"
            );
            let ends = futures_util::future::join_all(stopped).await;
            let mut confirmed = Vec::new();
            for ((key, plan), end) in asked.into_iter().zip(ends) {
                if matches!(end, Ok(Ok(_))) {
                    confirmed.push(key);
                } else {
                    tracing::warn!(object = %format!("LeaderLock {key}"),
                        "targets were not stopped; its lease is left to this cluster until it runs out");
                    keep(&plan);
                    kept.insert(key);
                }
            }
            // The last replica takes its finalizers along: nobody would be there to remove them.
            let stopped: BTreeSet<ObjectKey> = confirmed.iter().cloned().collect();
            for key in confirmed {
                if let Some(entry) = self.locks.get_mut(&key) {
                    // This is the last try.
                    entry.guard_backoff.reset();
                }
                self.set_finalizer(&key, false);
            }
            if time::timeout(FINALIZERS, self.finalizers_removed())
                .await
                .is_err()
            {
                tracing::warn!("not every finalizer could be removed in time");
            }
            self.take_reports(reports, &stopped).await;
        }
        let last = self.last_statuses(&held, &kept, &successors);
        // From here on the locks are not held: a warden would stop what a sibling is about to adopt.
        self.locks.dismiss_wardens();
        if time::timeout(ENDING, self.fleet.stop(reserve)).await.is_err() {
            tracing::warn!("not everything could be given back in time: leases run out by themselves");
        }
        self.write_last(last).await;
    }

    /// The answers show the objects as they are now, which the last statuses are written to.
    async fn finalizers_removed(&mut self) {
        while let Some(end) = self.jobs.ended().await {
            if let Job::Finalizer(_, Ok(Some(mut object))) = end {
                trim(&mut object.metadata);
                self.see_answer(object, clock::now());
            }
        }
    }
}
