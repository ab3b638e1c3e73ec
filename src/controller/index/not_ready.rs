//! What this replica reports while it is not ready. The statuses show what its siblings see, which may be well.

use std::time::Duration;

use kube::Resource;

use super::{Effect, Index, World};
use crate::controller::{
    events::{EventReason, EventRecord},
    status::OwnReadiness,
    writer::Item,
};

/// A replica that starts has its first majority within a second, unless the masters are being sealed for the first time.
const FIRST_MAJORITY: Duration = Duration::from_secs(10);
/// An event stays for an hour. To be sealed for the first time takes 65 s by default, and is no trouble of the replica.
const LASTS: Duration = Duration::from_secs(60);

impl Index {
    /// What the status of a quorum has to say about this replica.
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
            // It waits for another quorum.
            OwnReadiness::Ready
        }
    }

    fn lasts(&self, length: Duration, at: &World<'_>) -> bool {
        let now = at.now;
        self.ready.is_some_and(|ready| now.since(ready) >= length)
    }

    /// Has the entry of this replica written, where that is due.
    pub(super) fn look_at_own_readiness(&mut self, at: &World<'_>) {
        let now = at.now;
        let own = self.me.identity.to_string();
        for name in self.quorums.names() {
            let readiness = self.own_readiness(&name, at);
            let due = self.quorums.get(&name).is_some_and(|entry| {
                readiness.is_due(entry.not_ready_replicas(), &own, entry.told_not_ready, now)
            });
            if due {
                self.writer.push(Item::Quorum(name));
            }
        }
    }

    /// Reports once, by the log and an event, why this replica does not get ready.
    pub(super) fn tell_not_ready(&mut self, at: &World<'_>) {
        if self.asking.told_not_ready || !self.lasts(LASTS, at) {
            return;
        }
        self.asking.told_not_ready = true;
        let Some(unready) = at.views.unready() else {
            return;
        };
        tracing::warn!(reason = unready.message, "this replica does not get ready");
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
