//! Whether the status of a lock is for this replica to write, by what it sees and what its siblings answer.

use std::time::Duration;

use super::{Index, LockSnapshot, World, siblings};
use crate::{
    api::{leader_lock::Candidates, lock_status::LeaderLockStatus},
    controller::{
        object::ObjectKey,
        problem::{Problem, Reason},
        sibling_answers::Witness,
        status::{Author, AuthorFacts, HolderFacts, Visibility, author, claims},
        writer::Item,
    },
};

/// The replica that reports on the quorum writes a first status within this time, unless the lock is in a namespace that
/// only another release of the operator watches.
const REPORTED: Duration = Duration::from_secs(5);
/// A replica that has just started sees no majority before its connections are there.
const CONNECTED: Duration = Duration::from_secs(1);

/// A lock whose status may be written.
pub(super) struct Asked<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) before: &'a LeaderLockStatus,
    pub(super) snapshot: Option<&'a LockSnapshot>,
    pub(super) holder: Option<&'a HolderFacts>,
    pub(super) refused: Option<&'a Problem>,
}

impl Index {
    pub(super) fn author_of(&mut self, asked: &Asked<'_>, at: &World<'_>) -> Option<Author> {
        let now = at.now;
        let who = author(&self.author_facts(asked, at)?);
        let (key, entry) = (asked.key, self.locks.get(asked.key)?);
        let visited = asked
            .before
            .observed_generation
            .is_some_and(|generation| generation >= 0);
        let Some(problem) = asked.refused else {
            // Looked at again when a reporter must have been elected, or none can be.
            if who.is_none() && asked.before.timings.is_none() {
                let item = Item::Lock(key.clone());
                self.writer.push_later(item, now + Duration::from_millis(500));
            }
            return who;
        };
        let reported = self.is_reported(&entry.object.spec.quorum_ref.name, at);
        match who {
            // Of a replica that has just started. Whatever the status says was more.
            _ if problem.reason == Reason::Opening && visited => None,
            // It says the same whoever writes it; but this replica may be the only one that cannot use the quorum.
            None | Some(Author::Anybody) if reported && visited => {
                if claims(asked.before) {
                    let item = Item::Lock(key.clone());
                    self.writer.push_later(item, now + CONNECTED);
                }
                None
            }
            None | Some(Author::Anybody) if reported && now.since(entry.first_seen) < REPORTED => {
                let item = Item::Lock(key.clone());
                self.writer.push_later(item, entry.first_seen + REPORTED);
                None
            }
            None | Some(Author::Anybody) => Some(Author::Reporter),
            who => who,
        }
    }

    /// By the status of the quorum, unless no sibling sees a majority: the replica that reported is gone, or sees none.
    fn is_reported(&self, quorum: &str, at: &World<'_>) -> bool {
        let Some(entry) = self.quorums.get(quorum) else {
            return false;
        };
        entry.is_reported(&self.me.cluster, at.stamp())
            && self.witness_of_quorum(quorum, at) != Some(Witness::Absent)
    }

    /// What the siblings say of a quorum of which this replica sees no majority.
    pub(super) fn witness_of_quorum(&self, quorum: &str, at: &World<'_>) -> Option<Witness> {
        let since = self.quorums.get(quorum)?.sight.blind_since()?;
        Some(self.witness(quorum, None, None, since + CONNECTED, at))
    }

    fn author_facts(&mut self, asked: &Asked<'_>, at: &World<'_>) -> Option<AuthorFacts> {
        let now = at.now;
        let entry = self.locks.get(asked.key)?;
        let quorum = self.quorums.get(&entry.object.spec.quorum_ref.name);
        let agents = entry
            .phase
            .active_plan()
            .is_some_and(|plan| plan.candidates == Candidates::Agents);
        // Or only ever visited while it could not be used: that says nothing of who holds it.
        let unvisited = asked.before.timings.is_none();
        let first_seen = entry.first_seen;
        let held_here = asked
            .snapshot
            .is_some_and(|snapshot| snapshot.authority.is_some());
        let reporter = quorum.and_then(|quorum| quorum.reporting.reporter());
        let snapshot = AuthorFacts {
            held_here,
            held_by_sibling: !held_here && !agents && asked.holder.is_some_and(|holder| holder.own_cluster),
            visibility: Visibility::Majority,
            reporter: reporter.is_some_and(|reporter| reporter.reports_locks()),
            contradicted: quorum.is_some_and(|quorum| quorum.reporting.is_contradicted()),
            unreported: reporter.map_or(Some(now.since(first_seen)), |reporter| {
                reporter.locks_unreported(now)
            }),
            long: reporter.map_or(Duration::ZERO, |reporter| reporter.long()),
            unvisited: unvisited.then(|| now.since(first_seen)),
        };
        if held_here || quorum.is_none_or(|quorum| quorum.has_majority()) {
            return Some(snapshot);
        }
        Some(AuthorFacts {
            visibility: self.visibility(asked, at),
            ..snapshot
        })
    }

    /// Of a replica without a majority of the masters.
    fn visibility(&mut self, asked: &Asked<'_>, at: &World<'_>) -> Visibility {
        let now = at.now;
        let unknown = Visibility::Blind {
            former: false,
            witness: Witness::Silent,
        };
        let Some(entry) = self.locks.get(asked.key) else {
            return unknown;
        };
        let Some((quorum, lock)) = siblings::name(entry) else {
            return unknown;
        };
        let written = asked.before.fencing_token;
        let written = written.and_then(|token| u64::try_from(token).ok());
        let last_held = entry.status.last_held.filter(|held| Some(held.0) == written);
        let former = last_held.is_some();
        let blind = self
            .quorums
            .get(&quorum)
            .and_then(|entry| entry.sight.blind_since());
        let since = if former {
            // It knows the end of its own lease, and that no later one was written.
            blind.unwrap_or(now)
        } else {
            blind.map_or(now, |since| since + CONNECTED).max(entry.seen)
        };
        let waits = entry.phase.task().is_some() || claims(asked.before);
        let witness = self.witness(&quorum, Some(&lock), last_held, since, at);
        if waits && (matches!(witness, Witness::Awaited | Witness::Silent) || asked.holder.is_some()) {
            self.await_siblings(asked.key, &quorum, &lock);
        }
        Visibility::Blind { former, witness }
    }

    /// A lease that was not looked at since its renewal seems to have ended, and one that has is taken over in
    /// milliseconds: neither is a transition.
    pub(super) fn awaits_next_holder(&mut self, asked: &Asked<'_>, who: Author, at: &World<'_>) -> bool {
        let Some(entry) = self.locks.get_mut(asked.key) else {
            return true;
        };
        let ended = asked.holder.is_none()
            && asked.before.holder_identity.is_some()
            && who == Author::Reporter
            && asked.refused.is_none();
        if !ended {
            entry.lease_end.held();
            return false;
        }
        let until = entry.lease_end.unheld(at.now);
        let awaits = at.now < until;
        if awaits {
            self.writer.push_later(Item::Lock(asked.key.clone()), until);
        }
        awaits
    }
}
