//! The core's work on locks.

use std::time::Duration;

use kube::Resource;
use tokio::sync::watch;

use super::{
    Core, Job,
    author::Asked,
    failover::abstains_until,
    targets::{off, paused},
};
use crate::{
    api::LeaderLock,
    clock,
    controller::{
        events::{EventReason, EventRecord, timestamp, timestamp_at},
        object::ObjectKey,
        observe::Observation,
        roll::Origin,
        status::{Author, Health, HolderFacts, LockFacts, adds, lock_status, rests_until, surge_news},
        writer::{self, Item},
    },
    elector::Standing,
    lease::{FencingToken, Moment},
    operator::metrics_watcher::Change,
};

impl Core {
    pub(super) fn on_lock(&mut self, scope: &str, observation: Observation<LeaderLock>, now: Moment) {
        for key in self.locks.call(scope, &observation) {
            self.forget_lock(&key);
        }
        let key = observation.key();
        match (observation, key) {
            (Observation::Seen(object), _) => self.see_lock(object, Origin::Watch, now),
            (Observation::Malformed(metadata, error), Some(key)) => {
                self.on_unreadable(key, &metadata, error);
            }
            (Observation::Synced, _) => self
                .touched_locks
                .extend(self.locks.known().cloned().collect::<Vec<_>>()),
            (Observation::Failed(trouble), _) => {
                let what = match scope {
                    "" => "LeaderLocks".to_owned(),
                    scope => format!("LeaderLocks of namespace {scope}"),
                };
                self.watch_failed(&what, &trouble.text);
            }
            _ => {}
        }
    }

    /// The answer to a write. The object may have been deleted meanwhile: its answer must not bring it back.
    pub(super) fn see_answer(&mut self, object: Box<LeaderLock>, now: Moment) {
        let known = self.locks.get(&ObjectKey::of(object.as_ref()));
        if known.is_some_and(|entry| entry.object.metadata.uid == object.metadata.uid) {
            self.see_lock(object, Origin::Answer, now);
        }
    }

    /// An object as it is now.
    fn see_lock(&mut self, object: Box<LeaderLock>, origin: Origin, now: Moment) {
        let key = ObjectKey::of(object.as_ref());
        self.locks.unreadable.remove(&key);
        self.remember_token(&object);
        let token = self.own_token(&object);
        if !self.locks.is_news(&key, &object, origin) {
            if let (Some(token), Some(entry)) = (token, self.locks.get_mut(&key)) {
                entry.own_tokens.remember(token);
            }
            return;
        }
        self.heed_others(&object);
        let before = self.locks.get(&key).map(|entry| content(&entry.object));
        let anew = before != Some(content(&object));
        self.locks.see(&key, *object, now);
        if let (Some(token), Some(entry)) = (token, self.locks.get_mut(&key)) {
            entry.own_tokens.remember(token);
        }
        if anew {
            self.touched_locks.insert(key.clone());
        }
        self.writer.push(Item::Lock(key));
    }

    /// The token in the status of a lock that this cluster holds or held.
    fn own_token(&self, object: &LeaderLock) -> Option<u64> {
        let status = object.status.as_ref()?;
        let own = status.holder_cluster.as_deref() == Some(self.cluster.name());
        u64::try_from(status.fencing_token.filter(|_| own)?).ok()
    }

    /// How a lock stands that is contended for.
    pub(super) fn standing(&self, key: &ObjectKey) -> Option<watch::Receiver<Standing>> {
        let plan = self.locks.get(key)?.put.as_ref()?;
        self.fleet.get(&plan.quorum)?.elector.watch(&plan.lock_name)
    }

    /// Another holder, or none any more.
    pub(super) fn on_change(&mut self, change: &Change) {
        let Some(quorum) = self.fleet.get(&change.quorum) else {
            return;
        };
        let Some((namespace, name)) = quorum.names.get(&change.lock) else {
            return;
        };
        let standing = quorum
            .elector
            .watch(&change.lock)
            .map(|standing| standing.borrow().clone());
        let key = ObjectKey { namespace, name };
        self.writer.push(Item::Lock(key.clone()));
        self.answer_hand_over(&key);
        if let Some(standing) = standing {
            self.tell_lease(&key, &standing, change.ended);
        }
    }

    /// Writes the status of a lock, if it is for this replica to write and something new is to be said.
    pub(super) fn write_lock(&mut self, key: &ObjectKey) {
        let now = clock::now();
        if self.locks.unreadable.contains_key(key) {
            // What is known of it is an earlier version: a write would conflict, or take away what this version does
            // not understand.
            return;
        }
        let Some(entry) = self.locks.get(key) else { return };
        let object = entry.object.clone();
        let Some(verdict) = self.locks.verdict(key) else {
            return;
        };
        let before = object.status.clone().unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or_default();
        let standing = self.standing(key).map(|standing| standing.borrow().clone());
        let holder = standing
            .as_ref()
            .and_then(|s| holder_facts(s, &self.cluster, &self.identity, now));
        let authority = standing.as_ref().and_then(|s| s.authority_at(now));
        if let (Some(authority), Some(entry)) = (authority, self.locks.get_mut(key)) {
            entry.last_held = Some(authority.token);
        }
        let asked = Asked {
            key,
            before: &before,
            standing: standing.as_ref(),
            holder: holder.as_ref(),
            refused: verdict.as_ref().err(),
        };
        let Some(who) = self.author_of(&asked, now) else {
            return;
        };
        let refused = asked.refused;
        if self.awaits_next_holder(&asked, who, now) {
            return;
        }
        let mine = standing.as_ref().and_then(Standing::last_token);
        match who {
            Author::Holder if self.is_later(key, before.fencing_token, mine) => return,
            // Nobody holds it who would object to a token that no master gave.
            Author::Reporter if refused.is_none() => {
                self.is_later(key, before.fencing_token, Some(mine.unwrap_or_default()));
            }
            _ => {}
        }
        let (Some(entry), quorum) = (
            self.locks.get(key),
            self.quorums.get(&object.spec.quorum_ref.name),
        ) else {
            return;
        };
        let health = quorum.and_then(|quorum| quorum.health.as_ref());
        let status = lock_status(&LockFacts {
            before: &before,
            generation,
            plan: verdict.as_deref(),
            author: who,
            implausible: entry.implausible.is_some() && entry.implausible == before.fencing_token,
            holder,
            masters: health.map_or(0, |health| health.masters),
            no_majority: health.and_then(|health| health.no_majority_of(&object.spec.quorum_ref.name)),
            paused: paused(&object),
            abstains: abstains_until(&object, entry.put.as_deref()),
            targets: entry.warden.as_ref().and_then(|warden| warden.last.as_ref()),
            surges: &entry.templates.surges(),
            now: timestamp(),
        });
        if status == before || (who == Author::Anybody && !adds(&before, &status)) {
            return;
        }
        let blind = who != Author::Holder && !health.is_some_and(Health::has_majority);
        if blind && let Some(until) = rests_until(entry.blind.as_ref(), &before, now) {
            return self.writer.push_later(Item::Lock(key.clone()), until);
        }
        tracing::debug!(lock = %key, author = ?who, ?status, "status to be written");
        let told = status;
        let Some(status) = writer::replacement(&before, &told) else {
            return;
        };
        if let Some(entry) = self.locks.get_mut(key) {
            let switched = off(&object, entry.put.as_deref()).is_none();
            entry.news = if switched {
                entry.settled.news(&told)
            } else {
                Vec::new()
            };
            entry.news.extend(surge_news(&before, &told));
            entry.blind = blind.then_some((now, told));
        }
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        let write = writer::write_lock(self.clients.urgent.clone(), key.clone(), version, status);
        self.pace.tell(now);
        self.writer.start(Item::Lock(key.clone()), write);
    }

    /// A token in the status that is larger than mine is a later holder's, who writes; unless no master ever gave it.
    /// A token that was granted before it was seen is not above the largest counter that is asked for afterwards.
    fn is_later(&mut self, key: &ObjectKey, written: Option<i64>, mine: Option<FencingToken>) -> bool {
        let (Some(written), Some(mine)) = (written, mine) else {
            return false;
        };
        if u64::try_from(written).is_ok_and(|written| written <= mine.0) {
            return false;
        }
        let Some(entry) = self.locks.get_mut(key) else {
            return false;
        };
        if entry.implausible == Some(written) {
            return false;
        }
        if entry.plausible == Some(written) {
            return true;
        }
        let quorum = entry.put.as_ref().and_then(|plan| self.fleet.get(&plan.quorum));
        if let Some(quorum) = quorum {
            let (masters, key) = (quorum.masters.clone(), key.clone());
            self.jobs
                .start(Job::Counter(key.clone(), written, None), async move {
                    let largest = masters.largest_counter().await;
                    Job::Counter(key, written, largest)
                });
        }
        true
    }

    pub(super) fn on_counter(&mut self, key: &ObjectKey, written: i64, largest: Option<FencingToken>) {
        let now = clock::now();
        let item = Item::Lock(key.clone());
        let Some(largest) = largest else {
            self.writer.push_later(item, now + Duration::from_secs(1));
            return;
        };
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        if u64::try_from(written).is_ok_and(|written| written <= largest.0) {
            entry.plausible = Some(written);
            return;
        }
        entry.implausible = Some(written);
        let note = format!(
            "status.fencingToken {written} is larger than every counter of the masters ({}): no master gave it; \
             overwritten",
            largest.0
        );
        tracing::warn!(object = %format!("LeaderLock {key}"), reason = note, "TokenImplausible");
        let object = entry.object.object_ref(&());
        self.events.emit(EventRecord {
            reason: EventReason::TokenImplausible,
            object,
            note,
        });
        self.writer.push(item);
    }

    /// Of a token that a status remembers, no master may know any more after a total loss.
    pub(super) fn remember_token(&self, object: &LeaderLock) {
        let token = object.status.as_ref().and_then(|status| status.fencing_token);
        let quorum = self.fleet.get(&object.spec.quorum_ref.name);
        if let (Some(token), Some(quorum)) = (token.and_then(|token| u64::try_from(token).ok()), quorum) {
            // One from too far in the future is not taken; its holder says so.
            let _ = quorum.masters.remember_token(FencingToken(token));
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
    standing: &Standing,
    cluster: &crate::lease::ClusterId,
    identity: &crate::lease::HolderIdentity,
    now: Moment,
) -> Option<HolderFacts> {
    if let Some(authority) = standing.authority_at(now) {
        return Some(HolderFacts {
            identity: identity.to_string(),
            cluster: cluster.name().to_owned(),
            own_cluster: true,
            token: Some(authority.token.0),
            acquired: standing.acquired.map(timestamp_at),
            takeover: standing
                .takeover_gap
                .map(|gap| (gap, standing.takeover.is_some_and(|t| t.released))),
        });
    }
    let holder = standing.holder_at(now)?;
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
        token: standing.last_token().map(|token| token.0),
        acquired: None,
        takeover: None,
    })
}
