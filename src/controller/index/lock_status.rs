//! Decides whether this replica writes the status of a lock, and computes the changes in it.

use super::{
    Effect, Index, LockSnapshot, Planted, StatusWrite, World,
    author::Asked,
    failover::abstains_until,
    locks::holder_facts,
    targets::{has_finalizer, off, paused},
};
use crate::{
    api::{
        LeaderLock,
        lock_status::{LeaderLockStatus, Role},
    },
    controller::{
        index::lock_store::LockEntry,
        node_guards::NodeGuards,
        object::ObjectKey,
        planted::{WorldMistake, plants},
        problem::Problem,
        status::{Author, BlindStatus, Health, LockFacts, adds, lock_status, rests_until, surge_news},
        writer::{self, Item},
    },
    lease::{Authority, FencingToken},
};

impl Index {
    /// Returns the write of a lock's status, if it is due and this replica has to write it.
    pub(super) fn write_lock(&mut self, key: &ObjectKey, at: &World<'_>) -> Option<Effect> {
        if self.locks.unreadable.contains_key(key) {
            // The known object is an earlier version: a write would conflict, or remove fields that this version does
            // not understand.
            return None;
        }
        let object = self.locks.get(key)?.object.clone();
        let resolution = self.locks.resolution(key)?;
        let before = object.status.clone().unwrap_or_default();
        let snapshot = self.snapshot_of_status(key, at);
        let holder = snapshot
            .as_ref()
            .and_then(|snapshot| holder_facts(snapshot, &self.me.cluster, &self.me.identity));
        let authority = snapshot.as_ref().and_then(|snapshot| snapshot.authority);
        if let (Some(authority), Some(entry)) = (authority, self.locks.get_mut(key)) {
            entry.status.last_held = Some(authority.token);
        }
        let asked = Asked {
            key,
            before: &before,
            snapshot: snapshot.as_ref(),
            holder: holder.as_ref(),
            refused: resolution.as_ref().err(),
        };
        let mine = snapshot.as_ref().and_then(|snapshot| snapshot.last_token);
        let who = self.may_write_lock(&asked, mine, at)?;
        let entry = self.locks.get(key)?;
        let health = self.health_of(entry);
        let active = entry.phase.active_plan().map(AsRef::as_ref);
        let status = lock_status(&LockFacts {
            before: &before,
            generation: object.metadata.generation.unwrap_or_default(),
            plan: resolution.as_deref(),
            author: who,
            implausible: before
                .fencing_token
                .zip(active)
                .and_then(|(token, active)| entry.status.is_plausible(&active.quorum, token))
                == Some(false),
            holder,
            last_holder: snapshot
                .as_ref()
                .and_then(|snapshot| snapshot.last_holder.as_ref()),
            masters: health.map_or(0, |health| health.masters),
            no_majority: health.and_then(|health| health.no_majority_of(&object.spec.quorum_ref.name)),
            paused: paused(&object),
            abstains: abstains_until(&object, active),
            may_be_in_force: may_be_in_force(entry, &before, resolution.as_ref().err())
                && !plants(WorldMistake::HidesLockInForce),
            observes: active.is_some_and(|plan| at.views.has_majority(&plan.quorum)),
            leftovers: entry.may_have_left(resolution.as_deref().ok()),
            targets: entry.phase.report(),
            surges: &entry.templates.surges(),
            guards: &self.guards,
            now: at.stamp(),
        });
        let same = status == before && !self.plants(Planted::StatusEachTick);
        if same || (who == Author::Anybody && !adds(&before, &status)) {
            return None;
        }
        self.replace_status(key, &object, status, who, at)
    }

    /// Handles a change of the nodes on which pods are guarded.
    pub(super) fn on_node_guards(&mut self, guards: NodeGuards) {
        if self.guards == guards {
            return;
        }
        self.guards = guards;
        let fenced = self.locks.with_targets();
        let fenced = fenced.filter(|(_, entry, _)| entry.phase.plan().is_some_and(|plan| plan.is_fenced()));
        let fenced: Vec<ObjectKey> = fenced.map(|(key, ..)| key.clone()).collect();
        fenced
            .into_iter()
            .for_each(|key| self.writer.push(Item::Lock(key)));
    }

    fn snapshot_of_status(&self, key: &ObjectKey, at: &World<'_>) -> Option<LockSnapshot> {
        let mut snapshot = self.snapshot(key, at)?;
        if self.plants(Planted::ClaimsWithoutAuthority) {
            snapshot.authority = snapshot.last_token.map(|token| Authority {
                token,
                valid_until: at.now,
            });
        }
        Some(snapshot)
    }

    fn health_of(&self, entry: &LockEntry) -> Option<&Health> {
        let quorum = self.quorums.get(&entry.object.spec.quorum_ref.name);
        quorum.and_then(|quorum| quorum.sight.health())
    }

    fn may_write_lock(
        &mut self,
        asked: &Asked<'_>,
        mine: Option<FencingToken>,
        at: &World<'_>,
    ) -> Option<Author> {
        let who = self.author_of(asked, at)?;
        if self.awaits_next_holder(asked, who, at) {
            return None;
        }
        let written = asked.before.fencing_token;
        match who {
            Author::Holder if self.is_later(asked.key, written, mine) => return None,
            // Without a holder, no other replica corrects a token that no master issued.
            Author::Reporter if asked.refused.is_none() => {
                self.is_later(asked.key, written, Some(mine.unwrap_or_default()));
                if self.is_outdated(asked, at) {
                    return None;
                }
            }
            _ => {}
        }
        Some(who)
    }

    /// Reports whether the status names a later grant than this replica observes. Its view is then older than that of the
    /// writer, so this replica waits for a newer view; not without end, since a person may have written the status.
    fn is_outdated(&mut self, asked: &Asked<'_>, at: &World<'_>) -> bool {
        let written = asked.before.fencing_token;
        let observed = asked.holder.and_then(|holder| holder.token);
        let (Some(written), Some(observed)) = (written, observed) else {
            return false;
        };
        let Some(entry) = self.locks.get_mut(asked.key) else {
            return false;
        };
        let quorum = entry.phase.active_plan().map(|plan| plan.quorum.clone());
        let memory = &mut entry.status;
        if quorum.is_some_and(|quorum| memory.is_plausible(&quorum, written) == Some(false)) {
            return false;
        }
        let Some(until) = memory.awaits_newer_view(written, observed, at.now) else {
            return false;
        };
        self.writer.push_later(Item::Lock(asked.key.clone()), until);
        true
    }

    /// Returns the write of this status, unless the status of a blind replica is still kept.
    fn replace_status(
        &mut self,
        key: &ObjectKey,
        object: &LeaderLock,
        new_status: LeaderLockStatus,
        who: Author,
        at: &World<'_>,
    ) -> Option<Effect> {
        let before = object.status.clone().unwrap_or_default();
        let entry = self.locks.get(key)?;
        let blind = who != Author::Holder && !self.health_of(entry).is_some_and(Health::has_majority);
        if blind && let Some(until) = rests_until(entry.status.blind.as_ref(), &before, at.now) {
            self.writer.push_later(Item::Lock(key.clone()), until);
            return None;
        }
        tracing::debug!(lock = %key, author = ?who, status = ?new_status, "status to be written");
        let status = writer::replacement(&before, &new_status)?;
        let entry = self.locks.get_mut(key)?;
        let switched = off(object, entry.phase.active_plan().map(AsRef::as_ref)).is_none();
        let memory = &mut entry.status;
        memory.events = if switched {
            memory.settled.news(&new_status)
        } else {
            Vec::new()
        };
        memory.events.extend(surge_news(&before, &new_status));
        memory.blind = blind.then_some(BlindStatus {
            written: at.now,
            status: new_status,
        });
        Some(Effect::Status(StatusWrite::Lock {
            key: key.clone(),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            status,
        }))
    }
}

/// Reports whether the last valid spec of a lock may be in force: this replica contends for the lock, or the targets may
/// run. A replica that was started since an edit of the lock does not know whether a sibling contends for it, and keeps the
/// status of such a sibling.
fn may_be_in_force(entry: &LockEntry, before: &LeaderLockStatus, refused: Option<&Problem>) -> bool {
    let stays = refused.is_some_and(|problem| problem.reason.leaves_in_force());
    let is_reported = before.role == Some(Role::Unknown)
        && before.holder_identity.is_some()
        && before.observed_generation == entry.object.metadata.generation;
    entry.phase.active_plan().is_some()
        || has_finalizer(&entry.object)
        || refused.is_some_and(|problem| problem.reason.is_of_the_spec())
        || (stays && is_reported && !entry.status.has_left)
}
