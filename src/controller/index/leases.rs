//! Selects the events about leases: those of this process, and those of agents that this cluster only observes.

use kube::Resource;

use super::{Index, LockSnapshot, World, lease_end::SeenEnd, locks::holder_facts};
use crate::{
    api::{leader_lock::Candidates, lock_status::LeaderLockStatus},
    controller::{
        events::{EventReason, EventRecord},
        index::lock_store::LockEntry,
        object::ObjectKey,
        status::{HolderFacts, taken},
    },
    lease::{BootInstant, ClusterId, EndReason, Holder},
    operator::metrics_watcher::EndedLease,
};

impl Index {
    /// Emits the event of a change of holder.
    pub(super) fn emit_lease_event(
        &mut self,
        key: &ObjectKey,
        snapshot: &LockSnapshot,
        ended: Option<EndedLease>,
        at: &World<'_>,
    ) {
        let Some(entry) = self.locks.get(key) else { return };
        let happened = if is_of_agents(entry) {
            self.seen(key, snapshot, at)
        } else {
            self.happened(entry, snapshot, ended)
        };
        if let (Some((reason, note)), Some(entry)) = (happened, self.locks.get(key)) {
            let object = entry.object.object_ref(&());
            self.record(EventRecord { reason, object, note });
        }
    }

    /// Returns the event about the lease of this process.
    fn happened(
        &self,
        entry: &LockEntry,
        snapshot: &LockSnapshot,
        ended: Option<EndedLease>,
    ) -> Option<(EventReason, String)> {
        if let Some(ended) = ended {
            return Some(self.lease_ended(ended));
        }
        snapshot.authority?;
        let holder = holder_facts(snapshot, &self.me.cluster, &self.me.identity)?;
        let note = taken(&holder, &entry.object.status.clone().unwrap_or_default());
        let expired = snapshot.takeover.is_some_and(|takeover| !takeover.released);
        Some((
            if expired {
                EventReason::TakenOver
            } else {
                EventReason::Acquired
            },
            note,
        ))
    }

    /// Returns the event about the end of the lease of this process.
    fn lease_ended(&self, ended: EndedLease) -> (EventReason, String) {
        let (event, text) = match ended.reason {
            EndReason::Released => (EventReason::Released, "released the lock"),
            EndReason::Reserved => (EventReason::Released, "passed the lock on"),
            EndReason::SteppedDown => (EventReason::Released, "stepped down"),
            EndReason::Abandoned => (
                EventReason::Abandoned,
                "gave the lock up without a release, since its targets may run: other candidates wait until its lease has \
                 ended",
            ),
            EndReason::Expired => (EventReason::LeaseLost, "did not renew the lease in time"),
            EndReason::QuorumLost => (EventReason::LeaseLost, "lost the majority of the masters"),
            EndReason::ClockStepped => (
                EventReason::LeaseLost,
                "lost the lease: the clock of its machine stepped",
            ),
            EndReason::SealedForAnother => (
                EventReason::LeaseLost,
                "lost the lease: the masters are sealed for another quorum",
            ),
            EndReason::Refused => (
                EventReason::LeaseLost,
                "lost the lease: the masters refused to renew it",
            ),
        };
        let token = ended
            .token
            .map_or_else(String::new, |token| format!(", token {}", token.0));
        let me = format!("{}/{}", self.me.cluster.name(), self.me.identity);
        (event, format!("{me} {text}{token}"))
    }

    /// Returns the event about the lease of an agent of this cluster. Only the replica that reports emits the
    /// event, so that it appears once.
    fn seen(
        &mut self,
        key: &ObjectKey,
        snapshot: &LockSnapshot,
        at: &World<'_>,
    ) -> Option<(EventReason, String)> {
        let now = at.now;
        let entry = self.locks.get_mut(key)?;
        let ended_before = entry.lease_end.see(snapshot, now);
        let entry = self.locks.get(key)?;
        let quorum = self.quorums.get(&entry.object.spec.quorum_ref.name)?;
        if !quorum.reporting.reporter()?.reports_locks() {
            return None;
        }
        let status = entry.object.status.clone().unwrap_or_default();
        let holder = holder_facts(snapshot, &self.me.cluster, &self.me.identity);
        match (holder, entry.lease_end.seen) {
            (Some(holder), _) => begun(&holder, snapshot, ended_before, &status, now),
            (None, Some(end)) => over(snapshot.last_holder.as_ref()?, end, &self.me.cluster),
            (None, None) => None,
        }
    }
}

fn is_of_agents(entry: &LockEntry) -> bool {
    let plan = entry.phase.active_plan();
    plan.is_some_and(|plan| plan.candidates == Candidates::Agents)
}

fn begun(
    holder: &HolderFacts,
    snapshot: &LockSnapshot,
    ended_before: Option<SeenEnd>,
    status: &LeaderLockStatus,
    now: BootInstant,
) -> Option<(EventReason, String)> {
    let known = status.holder_identity.as_deref() == Some(&holder.identity)
        && status.holder_cluster.as_deref() == Some(&holder.cluster);
    // A replica that has just begun to observe does not know the state before.
    if !holder.own_cluster || (known && snapshot.former_holder.is_none()) {
        return None;
    }
    let former = snapshot.former_holder.as_ref();
    let end = ended_before.or_else(|| former.map(|former| SeenEnd::of(former, now)));
    let what = match end {
        Some(SeenEnd::Expired) => EventReason::TakenOver,
        Some(SeenEnd::Released) | None => EventReason::Acquired,
    };
    Some((what, taken(holder, status)))
}

fn over(last: &Holder, end: SeenEnd, own: &ClusterId) -> Option<(EventReason, String)> {
    if last.cluster.uid() != own.uid() {
        return None;
    }
    let (name, token) = (format!("{}/{}", last.cluster.name(), last.identity), last.token.0);
    Some(match end {
        SeenEnd::Released => (
            EventReason::Released,
            format!("{name} released the lock, token {token}"),
        ),
        SeenEnd::Expired => (
            EventReason::LeaseLost,
            format!("{name} did not renew the lease in time, token {token}"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::lease_end::tests::holder, *};

    #[test]
    fn the_end_of_a_lease_is_reported_in_its_own_cluster_only() {
        let own: ClusterId = "eu/u".parse().unwrap();
        let (what, note) = over(&holder("eu/u", 10), SeenEnd::Expired, &own).unwrap();
        assert_eq!(what, EventReason::LeaseLost);
        assert_eq!(note, "eu/ns/web-0/u did not renew the lease in time, token 7");
        let (what, _) = over(&holder("eu/u", 10), SeenEnd::Released, &own).unwrap();
        assert_eq!(what, EventReason::Released);
        assert!(over(&holder("eu/another", 10), SeenEnd::Released, &own).is_none());
    }
}
