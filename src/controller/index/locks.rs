//! The objects of locks, and how the locks stand.

use std::time::Duration;

use super::{Effect, Index, LockSnapshot, Planted, World};
use crate::{
    api::LeaderLock,
    controller::{
        events::{EventReason, EventRecord, timestamp_at},
        index::status_memory::CheckedToken,
        object::ObjectKey,
        observe::Observation,
        status::HolderFacts,
        writer::Item,
    },
    lease::{FencingToken, LockName},
    operator::metrics_watcher::Change,
    targets::Origin,
};
use kube::Resource;

impl Index {
    pub(super) fn on_lock(&mut self, scope: &str, observation: Observation<LeaderLock>, at: &World<'_>) {
        match observation {
            Observation::Seen(object, origin) => self.see_lock(object, origin, at),
            Observation::Malformed(metadata, error) => {
                self.on_unreadable(ObjectKey::of_metadata(&metadata), &metadata, error);
            }
            Observation::Gone(key) => self.forget_lock(&key),
            Observation::Synced => {
                self.locks.list_complete(scope);
                self.due.locks.extend(self.locks.known().cloned());
            }
            Observation::Failed(_) => {}
        }
    }

    /// The answer to a write. The object may have been deleted meanwhile: its answer must not bring it back.
    pub(super) fn see_answer(&mut self, object: Box<LeaderLock>, at: &World<'_>) {
        let known = self.locks.get(&ObjectKey::of(object.as_ref()));
        let there = known.is_some_and(|entry| entry.object.metadata.uid == object.metadata.uid);
        if there || self.plants(Planted::AnswerBringsBack) {
            self.see_lock(object, Origin::Answer, at);
        }
    }

    /// An object as it is now.
    fn see_lock(&mut self, object: Box<LeaderLock>, origin: Origin, at: &World<'_>) {
        let key = ObjectKey::of(object.as_ref());
        self.locks.note_readable(&key, origin);
        self.remember_token(&object);
        let token = self.own_token(&object);
        if !self.locks.is_news(&key, &object, origin) {
            if let (Some(token), Some(entry)) = (token, self.locks.get_mut(&key)) {
                entry.own_tokens.remember(token);
            }
            return;
        }
        self.heed_others(&object);
        let known = self.locks.get(&key);
        if known.is_some_and(|known| known.object.metadata.uid != object.metadata.uid) {
            // The last report of the target task may ask for the finalizer of this one, too.
            self.due.finalizers.insert(key.clone());
        }
        let before = self.locks.get(&key).map(|entry| content(&entry.object));
        let anew = before != Some(content(&object));
        if self.locks.see(&key, *object, origin, at.now) {
            self.effects.push(Effect::EndTargetTask(key.clone()));
        }
        if let (Some(token), Some(entry)) = (token, self.locks.get_mut(&key)) {
            entry.own_tokens.remember(token);
        }
        if anew {
            self.due.locks.insert(key.clone());
        }
        self.writer.push(Item::Lock(key));
    }

    /// The token in the status of a lock that this cluster holds or held.
    fn own_token(&self, object: &LeaderLock) -> Option<u64> {
        let status = object.status.as_ref()?;
        let own = status.holder_cluster.as_deref() == Some(self.me.cluster.name());
        u64::try_from(status.fencing_token.filter(|_| own)?).ok()
    }

    /// How a lock stands that is contended for.
    pub(super) fn snapshot(&self, key: &ObjectKey, at: &World<'_>) -> Option<LockSnapshot> {
        let plan = self.locks.get(key)?.phase.active_plan()?;
        self.view(&plan.quorum, &plan.lock_name, at)
    }

    /// The same on an open quorum.
    pub(super) fn view(&self, quorum: &str, lock: &LockName, at: &World<'_>) -> Option<LockSnapshot> {
        self.open.get(quorum)?;
        at.views.lock(quorum, lock, at.now)
    }

    /// Another holder, or none any more.
    pub(super) fn on_change(&mut self, change: &Change, at: &World<'_>) {
        let quorum = self.open.get(&change.quorum);
        let Some(key) = quorum.and_then(|quorum| quorum.names.get(&change.lock)).cloned() else {
            return;
        };
        let snapshot = self.view(&change.quorum, &change.lock, at);
        self.writer.push(Item::Lock(key.clone()));
        self.answer_hand_over(&key, at);
        if let Some(snapshot) = snapshot {
            self.tell_lease(&key, &snapshot, change.ended, at);
        }
    }

    /// A token in the status that is larger than mine is a later holder's, who writes; unless no master ever gave it.
    /// A token that was granted before it was seen is not above the largest counter that is asked for afterwards.
    pub(super) fn is_later(
        &mut self,
        key: &ObjectKey,
        written: Option<i64>,
        mine: Option<FencingToken>,
    ) -> bool {
        let (Some(written), Some(mine)) = (written, mine) else {
            return false;
        };
        if u64::try_from(written).is_ok_and(|written| written <= mine.0) {
            return false;
        }
        let Some(entry) = self.locks.get(key) else {
            return false;
        };
        if let Some(plausible) = entry.status.is_plausible(written) {
            return plausible;
        }
        if let Some(plan) = entry.phase.active_plan()
            && self.open.get(&plan.quorum).is_some()
        {
            self.effects.push(Effect::AskCounter {
                key: key.clone(),
                quorum: plan.quorum.clone(),
                written,
            });
        }
        true
    }

    pub(super) fn on_counter(
        &mut self,
        key: &ObjectKey,
        written: i64,
        largest: Option<FencingToken>,
        at: &World<'_>,
    ) {
        let now = at.now;
        let item = Item::Lock(key.clone());
        let Some(largest) = largest else {
            self.writer.push_later(item, now + Duration::from_secs(1));
            return;
        };
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let plausible = u64::try_from(written).is_ok_and(|written| written <= largest.0);
        entry.status.checked = Some(CheckedToken {
            token: written,
            plausible,
        });
        if plausible {
            return;
        }
        let note = format!(
            "status.fencingToken {written} is larger than every counter of the masters ({}): no master gave it; \
             overwritten",
            largest.0
        );
        tracing::warn!(object = %format!("LeaderLock {key}"), reason = note, "TokenImplausible");
        let object = entry.object.object_ref(&());
        self.record(EventRecord {
            reason: EventReason::TokenImplausible,
            object,
            note,
        });
        self.writer.push(item);
    }

    /// Of a token that a status remembers, no master may know any more after a total loss.
    pub(super) fn remember_token(&mut self, object: &LeaderLock) {
        let token = object.status.as_ref().and_then(|status| status.fencing_token);
        let quorum = &object.spec.quorum_ref.name;
        if let Some(token) = token.and_then(|token| u64::try_from(token).ok())
            && self.open.get(quorum).is_some()
        {
            self.effects.push(Effect::RememberToken {
                quorum: quorum.clone(),
                token: FencingToken(token),
            });
        }
    }
}

/// What makes a lock be judged anew.
fn content(object: &LeaderLock) -> impl PartialEq + use<> {
    let metadata = &object.metadata;
    (
        metadata.uid.clone(),
        metadata.generation,
        metadata.deletion_timestamp.is_some(),
        metadata.annotations.clone(),
        metadata.finalizers.clone(),
    )
}

/// Who holds the lock, in the words of a status.
pub(super) fn holder_facts(
    snapshot: &LockSnapshot,
    cluster: &crate::lease::ClusterId,
    identity: &crate::lease::HolderIdentity,
) -> Option<HolderFacts> {
    if let Some(authority) = snapshot.authority {
        return Some(HolderFacts {
            identity: identity.to_string(),
            cluster: cluster.name().to_owned(),
            own_cluster: true,
            token: Some(authority.token.0),
            acquired: snapshot.acquired.map(timestamp_at),
            takeover: snapshot
                .takeover_gap
                .map(|gap| (gap, snapshot.takeover.is_some_and(|t| t.released))),
        });
    }
    let holder = snapshot.holder.as_ref()?;
    let own_cluster = holder.cluster.uid() == cluster.uid();
    // An agent that was told the name of this cluster, and not its UID, is not taken for one of it.
    let namesake = holder.cluster.name() == cluster.name() && !own_cluster;
    Some(HolderFacts {
        identity: holder.identity.clone(),
        cluster: if namesake {
            holder.cluster.to_string()
        } else {
            holder.cluster.name().to_owned()
        },
        own_cluster,
        token: snapshot.last_token.map(|token| token.0),
        acquired: None,
        takeover: None,
    })
}
