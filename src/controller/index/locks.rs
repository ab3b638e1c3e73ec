//! Handles observations of LeaderLock objects and changes of their leases.

use std::time::Duration;

use super::{Effect, Index, LockSnapshot, MastersRequest, Planted, QuorumChange, World};
use crate::{
    api::LeaderLock,
    controller::{
        events::{EventReason, EventRecord, timestamp_at},
        index::status_memory::{CheckedToken, FormerToken, WrittenToken},
        object::ObjectKey,
        observe::Observation,
        planted::{WorldMistake, plants},
        status::HolderFacts,
        writer::Item,
    },
    lease::{Authority, FencingToken, LockName},
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
            Observation::Gone(key) => self.forget_lock(&key, at),
            Observation::Synced => {
                self.locks.list_complete(scope);
                self.due.locks.extend(self.locks.known().cloned());
            }
            Observation::Failed(_) => {}
        }
    }

    /// Handles the answer to a write. The object may have been deleted since: the answer must not restore it.
    pub(super) fn see_answer(&mut self, object: Box<LeaderLock>, at: &World<'_>) {
        let known = self.locks.get(&ObjectKey::of(object.as_ref()));
        let there = known.is_some_and(|entry| entry.object.metadata.uid == object.metadata.uid);
        if there || self.plants(Planted::AnswerBringsBack) {
            self.see_lock(object, Origin::Answer, at);
        }
    }

    /// Handles a version of an object.
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
        self.follow_others(&object, at.now);
        let known = self.locks.get(&key);
        if known.is_some_and(|known| known.object.metadata.uid != object.metadata.uid) {
            // The last report of the target task may also ask for the finalizer of the new object.
            self.due.finalizers.insert(key.clone());
            self.due.reads.insert(key.clone());
        }
        let before = self.locks.get(&key).map(|entry| content(&entry.object));
        let anew = before != Some(content(&object));
        self.locks.see(&key, *object, origin, at.now);
        self.advance_departure(&key, at);
        if let (Some(token), Some(entry)) = (token, self.locks.get_mut(&key)) {
            entry.own_tokens.remember(token);
        }
        if anew {
            self.due.locks.insert(key.clone());
        }
        self.writer.push(Item::Lock(key));
    }

    /// Returns the token in the status, if this cluster holds or held the lock with it. The name of the cluster proves
    /// nothing: an object may be copied from another cluster of the same name. A status of an older operator has no UID.
    fn own_token(&self, object: &LeaderLock) -> Option<u64> {
        let status = object.status.as_ref()?;
        // An older operator writes the name, and leaves the UID of an earlier holder in the status.
        let own = status.holder_cluster_uid.as_deref() == Some(self.me.cluster.uid())
            && status.holder_cluster.as_deref() == Some(self.me.cluster.name());
        u64::try_from(status.fencing_token.filter(|_| own)?).ok()
    }

    /// Returns the state of an active lock.
    pub(super) fn snapshot(&self, key: &ObjectKey, at: &World<'_>) -> Option<LockSnapshot> {
        let plan = self.locks.get(key)?.phase.active_plan()?;
        self.view(&plan.quorum, &plan.lock_name, at)
    }

    /// Returns the state of a lock on an open quorum; `None` while the view shows a lease that this replica has given up.
    pub(super) fn view(&self, quorum: &str, lock: &LockName, at: &World<'_>) -> Option<LockSnapshot> {
        self.open.get(quorum)?;
        let view = at.views.lock(quorum, lock, at.now)?;
        let given_up = |authority: Authority| self.open.has_given_up(quorum, lock, authority.token);
        (!view.authority.is_some_and(given_up)).then_some(view)
    }

    /// Forgets the leases that were given up and have ended.
    pub(super) fn forget_given_up(&mut self, at: &World<'_>) {
        let shown = |quorum: &str, lock: &LockName| {
            let view = at.views.lock(quorum, lock, at.now)?;
            view.authority.map(|authority| authority.token)
        };
        self.open.forget_given_up(shown);
    }

    /// Handles a change of holder.
    pub(super) fn on_change(&mut self, change: &Change, at: &World<'_>) {
        let quorum = self.open.get(&change.quorum);
        let Some(key) = quorum.and_then(|quorum| quorum.names.get(&change.lock)).cloned() else {
            return;
        };
        let snapshot = self.view(&change.quorum, &change.lock, at);
        self.writer.push(Item::Lock(key.clone()));
        self.hurry_templates(&key, at);
        self.answer_hand_over(&key, at);
        if let Some(snapshot) = snapshot {
            self.emit_lease_event(&key, &snapshot, change.ended, at);
        }
    }

    /// Reports whether the token in the status is larger than `mine`. Then it belongs to a later holder, which writes
    /// the status, unless no master ever issued the token. A counter read after the token was seen is at least as large
    /// as the token, if a master issued it.
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
        let Some(plan) = entry.phase.active_plan() else {
            return true;
        };
        if let Some(plausible) = entry.status.is_plausible(&plan.quorum, written) {
            return plausible;
        }
        if self.open.get(&plan.quorum).is_some() {
            self.effects
                .push(Effect::Masters(MastersRequest::AskCounter(WrittenToken {
                    key: key.clone(),
                    quorum: plan.quorum.clone(),
                    token: written,
                })));
        }
        true
    }

    pub(super) fn on_counter(
        &mut self,
        written: WrittenToken,
        largest: Option<FencingToken>,
        at: &World<'_>,
    ) {
        let now = at.now;
        let WrittenToken { key, quorum, token } = written;
        let item = Item::Lock(key.clone());
        let Some(largest) = largest else {
            self.writer.push_later(item, now + Duration::from_secs(1));
            return;
        };
        let Some(entry) = self.locks.get_mut(&key) else {
            return;
        };
        let plausible = u64::try_from(token).is_ok_and(|token| token <= largest.0);
        entry.status.checked = Some(CheckedToken {
            quorum,
            token,
            plausible,
        });
        if plausible {
            return;
        }
        let note = format!(
            "status.fencingToken {token} is larger than every counter of the masters ({}): no master granted it; \
             the operator overwrites it",
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

    /// Remembers the token in the status of a lock that is left for another quorum, if it is one of the present quorum: the
    /// tokens of two quorums are not comparable.
    pub(super) fn remember_former_token(&mut self, key: &ObjectKey, at: &World<'_>) {
        let observed = self.snapshot(key, at).and_then(|snapshot| {
            let holder = holder_facts(&snapshot, &self.me.cluster, &self.me.identity);
            let holder = holder.and_then(|holder| holder.token);
            holder.max(snapshot.last_token.map(|token| token.0))
        });
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let status = entry.object.status.as_ref();
        let (Some(token), Some(active)) = (
            status.and_then(|status| status.fencing_token),
            entry.phase.active_plan(),
        ) else {
            return;
        };
        let quorum = active.quorum.clone();
        let is_observed = u64::try_from(token).is_ok_and(|token| observed >= Some(token));
        let is_known = is_observed || entry.status.is_plausible(&quorum, token) == Some(true);
        if quorum != entry.object.spec.quorum_ref.name
            && is_known
            && !plants(WorldMistake::ComparesTokensOfQuorums)
        {
            entry.status.former = Some(FormerToken { quorum, token });
        }
    }

    /// Lets the masters remember the token in a status: after a total loss, it may be unknown to all masters.
    pub(super) fn remember_token(&mut self, object: &LeaderLock) {
        let token = object.status.as_ref().and_then(|status| status.fencing_token);
        let quorum = &object.spec.quorum_ref.name;
        if let Some(token) = token.and_then(|token| u64::try_from(token).ok())
            && self.open.get(quorum).is_some()
        {
            self.effects.push(Effect::Quorum(QuorumChange::RememberToken {
                quorum: quorum.clone(),
                token: FencingToken(token),
            }));
        }
    }
}

/// Returns the parts of an object whose change requires a new judgement.
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

/// Returns the holder of the lock for a status.
pub(super) fn holder_facts(
    snapshot: &LockSnapshot,
    cluster: &crate::lease::ClusterId,
    identity: &crate::lease::HolderIdentity,
) -> Option<HolderFacts> {
    if let Some(authority) = snapshot.authority {
        return Some(HolderFacts {
            identity: identity.to_string(),
            cluster: cluster.name().to_owned(),
            cluster_uid: cluster.uid().to_owned(),
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
    // An agent that was configured with the name of this cluster but another UID does not count as part of it.
    let namesake = holder.cluster.name() == cluster.name() && !own_cluster;
    Some(HolderFacts {
        identity: holder.identity.clone(),
        cluster: if namesake {
            holder.cluster.to_string()
        } else {
            holder.cluster.name().to_owned()
        },
        cluster_uid: holder.cluster.uid().to_owned(),
        own_cluster,
        token: snapshot.last_token.map(|token| token.0),
        acquired: None,
        takeover: None,
    })
}
