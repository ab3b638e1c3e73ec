//! Fails over a lock whose targets do not become ready: another cluster that is willing to take the lock gets it, and this
//! cluster abstains for a time. While no other cluster is willing, the lock stays.
//!
//! The abstention is written into the object before any target is stopped. Without the API server there is no failover,
//! and the siblings know of the abstention by the time the reservation no longer excludes them.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::Resource;

use super::{
    Effect, Index, ObjectRequest, Planted, World,
    drain::{Drain, Drained, Purpose},
    targets::paused,
    willing::OtherClusters,
};
use crate::{
    api::{
        LeaderLock,
        abstention::{ABSTAIN, Abstention},
        hand_over::read,
        leader_lock::LockState,
        plan::LockPlan,
        reporters,
    },
    controller::{
        events::{EventReason, EventRecord},
        object::ObjectKey,
    },
    lease::{ClusterId, FencingToken},
};

/// A failover that has begun.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Failover {
    token: FencingToken,
    pub(super) to: ClusterId,
    /// The drain that counts as under way until the abstention is written.
    drain: Drain,
}

impl Index {
    /// Fails over the locks whose targets have been unready for too long.
    pub(super) fn check_unready(&mut self, at: &World<'_>) {
        let unready = self.locks.with_targets().filter(|(_, entry, task)| {
            let unready = task.last.as_ref().is_some_and(|report| report.unready);
            unready && entry.phase.draining().is_none() && !entry.phase.is_leaving()
        });
        let unready: Vec<ObjectKey> = unready.map(|(key, ..)| key.clone()).collect();
        for key in unready {
            self.fail_over(&key, at);
        }
    }

    fn fail_over(&mut self, key: &ObjectKey, at: &World<'_>) {
        let authority = self.snapshot(key, at).and_then(|snapshot| snapshot.authority);
        let Some(entry) = self.locks.get(key) else { return };
        let (Some(plan), Some(authority)) = (entry.phase.active_plan(), authority) else {
            return;
        };
        if !plan.switches() || plan.state != LockState::Enabled || paused(&entry.object).is_some() {
            return;
        }
        let plan = plan.clone();
        let others = self.willing(key, &plan, at);
        let Some(to) = choose(&others.willing, &plan) else {
            return;
        };
        let Some(entry) = self.locks.get(key) else { return };
        let bound = plan.stop_bound();
        let next = Abstention::next(
            abstention(&entry.object).as_ref(),
            plan.takeover_delay,
            at.stamp(),
            bound,
        );
        let object = Box::new(entry.object.clone());
        let drain = self.next_drain(Purpose::Unready);
        let failover = Failover {
            token: authority.token,
            to,
            drain: drain.clone(),
        };
        self.effects.push(Effect::Object(ObjectRequest::Abstain {
            key: key.clone(),
            object,
            abstention: next,
            failover,
        }));
        if let Some(entry) = self.locks.get_mut(key) {
            entry.phase.drain(drain);
        }
    }

    /// Continues a failover after the write of the abstention: this cluster does not acquire the lock again.
    pub(super) fn on_abstains(
        &mut self,
        key: &ObjectKey,
        failover: Failover,
        end: Result<Box<LeaderLock>, String>,
        at: &World<'_>,
    ) {
        if let Some(entry) = self.locks.get_mut(key) {
            entry.phase.end_drain(&failover.drain);
        }
        match end {
            Ok(mut object) => {
                crate::controller::object::trim(&mut object.metadata);
                self.see_answer(object, at);
            }
            Err(_) if self.plants(Planted::DrainsWithoutAbstention) => {}
            Err(reason) => {
                tracing::debug!(object = %format!("LeaderLock {key}"), reason,
                    "the abstention could not be written yet");
                return;
            }
        }
        let Failover { token, to, .. } = failover;
        if !self.holds_lease(key, token, at) && !self.plants(Planted::DrainsEndedLease) {
            // The lease ended while the abstention was written.
            return;
        }
        let Some(plan) = self
            .locks
            .get(key)
            .and_then(|entry| entry.phase.active_plan().cloned())
        else {
            return;
        };
        let after = plan.failover_after_unready.unwrap_or_default().as_secs();
        self.warn(
            key,
            EventReason::Unready,
            format!("targets have not been ready for {after} s: the operator stops them and passes the lock on to \
                {to}"),
        );
        self.drain(key, token, to, Purpose::Unready, Duration::MAX, at);
    }

    pub(super) fn on_unready_drained(&mut self, key: &ObjectKey, drained: &Drained) {
        if drained.stopped {
            let how = if drained.is_confirmed() {
                "the lock was passed on"
            } else {
                "the lease runs out and then passes"
            };
            let text = format!(
                "{how} to {}, because targets did not become ready in this cluster",
                drained.to
            );
            return self.warn(key, EventReason::FailedOver, text);
        }
        let report = self.locks.get(key).and_then(|entry| entry.phase.report());
        let trouble = report.and_then(|report| report.trouble.clone());
        let why = trouble.map_or_else(String::new, |trouble| format!(": {}", trouble.message));
        self.warn(
            key,
            EventReason::FailoverFailed,
            format!(
                "targets were not stopped within {} s, and were started again{why}",
                drained.bound.as_secs()
            ),
        );
        // The cluster keeps the lock, so the abstention is removed.
        if let Some(entry) = self.locks.get(key) {
            self.effects.push(Effect::Object(ObjectRequest::EndAbstention {
                key: key.clone(),
                object: Box::new(entry.object.clone()),
            }));
        }
    }

    /// Returns the plan, with an abstention if this cluster leaves the lock to others and one of them may be willing to take
    /// it.
    pub(super) fn with_abstention(
        &mut self,
        key: &ObjectKey,
        plan: Arc<LockPlan>,
        at: &World<'_>,
    ) -> Arc<LockPlan> {
        let Some(entry) = self.locks.get(key) else {
            return plan;
        };
        let holds = abstention(&entry.object).is_some_and(|abstention| abstention.holds(at.stamp()));
        if !holds || self.plants(Planted::ContendsWhileAbstaining) {
            return plan;
        }
        if plan.state != LockState::Enabled {
            return plan;
        }
        self.due.abstaining.insert(key.clone());
        let others = self.willing(key, &plan, at);
        if others == OtherClusters::default() {
            return plan;
        }
        Arc::new(LockPlan {
            abstains: true,
            ..plan.as_ref().clone()
        })
    }

    /// Returns the other live clusters, according to the heartbeats.
    pub(super) fn others(&self, quorum: &str) -> Vec<ClusterId> {
        let status = self
            .quorums
            .get(quorum)
            .and_then(|entry| entry.object.status.as_ref());
        let seen = status.map_or_else(Vec::new, |status| reporters::seen(&status.reporters));
        let others = seen
            .into_iter()
            .filter(|seen| seen.alive && seen.cluster.uid() != self.me.cluster.uid());
        others.map(|seen| seen.cluster).collect()
    }

    pub(super) fn warn(&mut self, key: &ObjectKey, reason: EventReason, note: String) {
        tracing::warn!(object = %format!("LeaderLock {key}"), note, "{}", reason.name());
        if let Some(entry) = self.locks.get(key) {
            let object = entry.object.object_ref(&());
            self.record(EventRecord { reason, object, note });
        }
    }
}

/// Returns the abstention in the object, regardless of the state of the lock.
pub(super) fn abstention(object: &LeaderLock) -> Option<Abstention> {
    read(object.metadata.annotations.as_ref()?.get(ABSTAIN)?)
}

/// Returns the time until which this cluster leaves the lock to others.
pub(super) fn abstains_until(object: &LeaderLock, plan: Option<&LockPlan>) -> Option<Timestamp> {
    let abstention = abstention(object).filter(|_| plan.is_some_and(|plan| plan.abstains));
    abstention.map(|abstention| abstention.until.0)
}

/// Returns the most preferred cluster.
fn choose(others: &[ClusterId], plan: &LockPlan) -> Option<ClusterId> {
    let listed = &plan.cluster_preference;
    let rank = |cluster: &ClusterId| {
        let place = listed.iter().position(|name| name == cluster.name());
        (place.unwrap_or(listed.len()), cluster.to_string())
    };
    others.iter().min_by_key(|cluster| rank(cluster)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::validate::{Graces, leftovers};

    #[test]
    fn the_most_wanted_of_those_that_are_alive_gets_it() {
        let object = "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: l, namespace: n}, \
                      spec: {quorumRef: {name: q}}}";
        let mut plan = leftovers(&serde_yaml::from_str(object).unwrap(), &Graces::default()).unwrap();
        let all = ["ap-1/a", "eu-2/b", "us-1/c"].map(|text| text.parse::<ClusterId>().unwrap());
        let chosen = |plan: &LockPlan| choose(&all, plan).map(|cluster| cluster.to_string());
        assert_eq!(chosen(&plan).as_deref(), Some("ap-1/a"));
        plan.cluster_preference = ["eu-1", "us-1", "eu-2"].map(str::to_owned).into();
        assert_eq!(chosen(&plan).as_deref(), Some("us-1/c"));
        assert_eq!(choose(&[], &plan), None);
    }
}
