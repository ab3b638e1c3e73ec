//! Reports that this replica is not ready. The other statuses show the view of its siblings, which may be ready.

use std::time::Duration;

use kube::Resource;

use super::{Effect, Index, World};
use crate::controller::{
    events::{EventReason, EventRecord},
    status::OwnReadiness,
    writer::Item,
};

/// The time after which a missing first majority is reported. A new replica has its first majority within a
/// second, unless the masters are being sealed for the first time.
const FIRST_MAJORITY: Duration = Duration::from_secs(10);
/// The time after which an event reports that the replica is not ready. It is longer than the first sealing,
/// which takes 65 s by default: that is no problem of the replica, and its event would stay for an hour.
const LASTS: Duration = Duration::from_secs(75);

impl Index {
    /// Returns the readiness of this replica for the status of a quorum.
    pub(super) fn own_readiness(&self, name: &str, at: &World<'_>) -> OwnReadiness {
        let Some(unready) = at.views.unready() else {
            return OwnReadiness::Ready;
        };
        let Some(entry) = self.quorums.get(name).filter(|_| self.lasts(FIRST_MAJORITY, at)) else {
            return OwnReadiness::TooEarly;
        };
        if unready.unseen.iter().any(|unseen| unseen == name) {
            OwnReadiness::NotReady(entry.why_unseen())
        } else {
            // The replica waits for another quorum.
            OwnReadiness::Ready
        }
    }

    fn lasts(&self, length: Duration, at: &World<'_>) -> bool {
        let now = at.now;
        self.ready.is_some_and(|ready| now.since(ready) >= length)
    }

    /// Queues the statuses in which this replica's entry is due.
    pub(super) fn check_own_readiness(&mut self, at: &World<'_>) {
        let now = at.now;
        let own = self.me.identity.to_string();
        for name in self.quorums.names() {
            let readiness = self.own_readiness(&name, at);
            let due = self.quorums.get(&name).is_some_and(|entry| {
                readiness.is_due(entry.not_ready_replicas(), &own, entry.reported_not_ready, now)
            });
            if due {
                self.writer.push(Item::Quorum(name));
            }
        }
    }

    /// Reports once, in the log and in an event, why this replica does not become ready.
    pub(super) fn report_not_ready(&mut self, at: &World<'_>) {
        if self.asking.reported_not_ready || !self.lasts(LASTS, at) {
            return;
        }
        self.asking.reported_not_ready = true;
        let Some(unready) = at.views.unready() else {
            return;
        };
        tracing::warn!(reason = unready.message, "this replica does not become ready");
        for entry in unready.unseen.iter().filter_map(|name| self.quorums.get(name)) {
            let note = format!("replica {} is not ready: {}", self.me.identity, unready.message);
            let object = entry.object.object_ref(&());
            let what = EventReason::ReplicaNotReady;
            self.effects.push(Effect::Record(EventRecord {
                reason: what,
                object,
                note,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::timing::{DEFAULT_ACQUIRE_LIMIT, DEFAULT_LONGEST_LEASE, seal_wait};

    #[test]
    fn the_first_sealing_ends_before_it_is_reported() {
        let sealing = seal_wait(DEFAULT_LONGEST_LEASE, DEFAULT_ACQUIRE_LIMIT);
        assert!(
            LASTS >= sealing + Duration::from_secs(5),
            "{LASTS:?}, {sealing:?}"
        );
    }
}
