//! What runs here does not get ready: another cluster gets the lock, and this one leaves it alone for a time.
//!
//! That is written into the object before anything is stopped: without the API server there is no failover, and the
//! siblings, whom the reservation keeps out at first, know of it by the time it has run out.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time;

use super::{
    Core, Job,
    drain::{Drained, Purpose},
    targets::paused,
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
        events::{EventReason, EventRecord, timestamp},
        object::ObjectKey,
    },
    lease::{ClusterId, FencingToken},
    targets::deepest,
};

/// An API server that takes longer is not relied upon for the rest either.
const PATIENCE: Duration = Duration::from_secs(5);
const MANAGER: &str = "redlock-operator-abstain";

/// One that was begun.
#[derive(Clone, Debug)]
pub(super) struct Failover {
    token: FencingToken,
    to: ClusterId,
}

impl Core {
    /// Passes on what has been unready for too long. Where no other cluster is alive, it stays.
    pub(super) fn look_at_unready(&mut self) {
        let unready = self.locks.with_targets().filter(|(_, entry, warden)| {
            let unready = warden.last.as_ref().is_some_and(|report| report.unready);
            unready && entry.draining.is_none() && entry.leaving.is_none()
        });
        let unready: Vec<ObjectKey> = unready.map(|(key, ..)| key.clone()).collect();
        for key in unready {
            self.fail_over(&key);
        }
    }

    fn fail_over(&mut self, key: &ObjectKey) {
        let now = timestamp();
        let authority = self.standing(key);
        let authority = authority.and_then(|standing| standing.borrow().authority_at(crate::clock::now()));
        let Some(entry) = self.locks.get(key) else { return };
        let (Some(plan), Some(authority)) = (&entry.put, authority) else {
            return;
        };
        if !plan.switches() || plan.state != LockState::Enabled || paused(&entry.object).is_some() {
            return;
        }
        let Some(to) = choose(&self.others(&plan.quorum), plan) else {
            return;
        };
        let bound = plan.timings.stop + plan.timings.lease_duration;
        let next = Abstention::next(
            abstention(&entry.object).as_ref(),
            plan.takeover_delay,
            now,
            bound,
        );
        let write = write(
            Api::namespaced(self.clients.urgent.clone(), &key.namespace),
            entry.object.clone(),
            Some(next),
        );
        let (key, token) = (key.clone(), authority.token);
        if let Some(entry) = self.locks.get_mut(&key) {
            entry.draining = Some(Purpose::Unready);
        }
        let failover = Box::new(Failover { token, to });
        let broken = Err("the write broke off".to_owned());
        let broken = Job::Abstains(key.clone(), failover.clone(), broken);
        self.jobs.start(broken, async move {
            let end = time::timeout(PATIENCE, write).await;
            let end = end.unwrap_or_else(|_| Err("the API server does not answer".to_owned()));
            Job::Abstains(key, failover, end)
        });
    }

    /// From here on this cluster does not take the lock again.
    pub(super) fn on_abstains(
        &mut self,
        key: &ObjectKey,
        failover: Failover,
        end: Result<Box<LeaderLock>, String>,
    ) {
        if let Some(entry) = self.locks.get_mut(key) {
            entry.draining = None;
        }
        match end {
            Ok(mut object) => {
                crate::controller::object::trim(&mut object.metadata);
                self.see_answer(object, crate::clock::now());
            }
            Err(reason) => {
                tracing::debug!(object = %format!("LeaderLock {key}"), reason, "cannot abstain yet");
                return;
            }
        }
        let Failover { token, to } = failover;
        let Some(plan) = self.locks.get(key).and_then(|entry| entry.put.clone()) else {
            return;
        };
        let after = plan.failover_after_unready.unwrap_or_default().as_secs();
        self.warn(
            key,
            EventReason::Unready,
            format!("targets have not been ready for {after} s: stops them and passes the lock on to {to}"),
        );
        self.drain(key, token, to, Purpose::Unready, Duration::MAX);
    }

    pub(super) fn on_unready_drained(&mut self, key: &ObjectKey, drained: &Drained) {
        if drained.stopped {
            let text = format!(
                "passed on to {}, since targets did not get ready here",
                drained.to
            );
            return self.warn(key, EventReason::FailedOver, text);
        }
        let report = self.locks.get(key).and_then(|entry| entry.warden.as_ref());
        let trouble = report.and_then(|warden| warden.last.as_ref()?.trouble.clone());
        let why = trouble.map_or_else(String::new, |trouble| format!(": {}", trouble.message));
        self.warn(
            key,
            EventReason::FailoverFailed,
            format!(
                "targets were not stopped within {} s, and run again{why}",
                drained.bound.as_secs()
            ),
        );
        // It keeps the lock: nothing to abstain from.
        if let Some(entry) = self.locks.get(key) {
            let api = Api::namespaced(self.clients.urgent.clone(), &key.namespace);
            let write = write(api, entry.object.clone(), None);
            let key = key.clone();
            self.jobs.start(Job::Over, async move {
                if let Ok(Err(reason)) = time::timeout(PATIENCE, write).await {
                    tracing::debug!(object = %format!("LeaderLock {key}"), reason, "abstains for nothing");
                }
                Job::Over
            });
        }
    }

    /// As it is put while this cluster leaves it to others, of which one is alive.
    pub(super) fn with_abstention(&mut self, key: &ObjectKey, plan: Arc<LockPlan>) -> Arc<LockPlan> {
        let Some(entry) = self.locks.get(key) else {
            return plan;
        };
        let holds = abstention(&entry.object).is_some_and(|abstention| abstention.holds(timestamp()));
        if !holds {
            return plan;
        }
        self.abstaining.insert(key.clone());
        if self.others(&plan.quorum).is_empty() {
            return plan;
        }
        Arc::new(LockPlan {
            abstains: true,
            ..plan.as_ref().clone()
        })
    }

    /// The other clusters that are alive, by the heartbeats.
    fn others(&self, quorum: &str) -> Vec<ClusterId> {
        let status = self
            .quorums
            .get(quorum)
            .and_then(|entry| entry.object.status.as_ref());
        let seen = status.map_or_else(Vec::new, |status| reporters::seen(&status.reporters));
        let others = seen
            .into_iter()
            .filter(|seen| seen.alive && seen.cluster.uid() != self.cluster.uid());
        others.map(|seen| seen.cluster).collect()
    }

    fn warn(&self, key: &ObjectKey, reason: EventReason, note: String) {
        tracing::warn!(object = %format!("LeaderLock {key}"), note, "{}", reason.name());
        if let Some(entry) = self.locks.get(key) {
            let object = kube::Resource::object_ref(&entry.object, &());
            self.events.emit(EventRecord { reason, object, note });
        }
    }
}

/// What the object says, in whatever state.
pub(super) fn abstention(object: &LeaderLock) -> Option<Abstention> {
    read(object.metadata.annotations.as_ref()?.get(ABSTAIN)?)
}

/// Until when this cluster leaves the lock to others.
pub(super) fn abstains_until(object: &LeaderLock, plan: Option<&LockPlan>) -> Option<Timestamp> {
    let abstention = abstention(object).filter(|_| plan.is_some_and(|plan| plan.abstains));
    abstention.map(|abstention| abstention.until.0)
}

/// The most wanted one.
fn choose(others: &[ClusterId], plan: &LockPlan) -> Option<ClusterId> {
    let listed = &plan.cluster_preference;
    let rank = |cluster: &ClusterId| {
        let place = listed.iter().position(|name| name == cluster.name());
        (place.unwrap_or(listed.len()), cluster.to_string())
    };
    others.iter().min_by_key(|cluster| rank(cluster)).cloned()
}

/// On the version that was looked at.
async fn write(
    api: Api<LeaderLock>,
    object: LeaderLock,
    abstention: Option<Abstention>,
) -> Result<Box<LeaderLock>, String> {
    let text = match &abstention {
        Some(abstention) => Some(serde_json::to_string(abstention).map_err(|error| error.to_string())?),
        None => None,
    };
    let patch = json!({
        "metadata": {
            "resourceVersion": object.metadata.resource_version,
            "annotations": { ABSTAIN: text },
        },
    });
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = object.metadata.name.unwrap_or_default();
    let end = api.patch(&name, &parameters, &Patch::Merge(&patch)).await;
    end.map(Box::new).map_err(|error| deepest(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::validate::{Graces, remains};

    #[test]
    fn the_most_wanted_of_those_that_are_alive_gets_it() {
        let object = "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: l, namespace: n}, \
                      spec: {quorumRef: {name: q}}}";
        let mut plan = remains(&serde_yaml::from_str(object).unwrap(), &Graces::default()).unwrap();
        let all = ["ap-1/a", "eu-2/b", "us-1/c"].map(|text| text.parse::<ClusterId>().unwrap());
        let chosen = |plan: &LockPlan| choose(&all, plan).map(|cluster| cluster.to_string());
        assert_eq!(chosen(&plan).as_deref(), Some("ap-1/a"));
        plan.cluster_preference = ["eu-1", "us-1", "eu-2"].map(str::to_owned).into();
        assert_eq!(chosen(&plan).as_deref(), Some("us-1/c"));
        assert_eq!(choose(&[], &plan), None);
    }
}
