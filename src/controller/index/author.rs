//! Decides whether this replica writes the status of a lock, from its own view and the answers of its siblings.

use std::time::Duration;

use super::{Index, LockSnapshot, World, lock_store::LockEntry, siblings};
use crate::{
    api::{leader_lock::Candidates, lock_status::LeaderLockStatus},
    controller::{
        object::ObjectKey,
        problem::{Problem, Reason},
        sibling_answers::Witness,
        status::{Author, AuthorFacts, HolderFacts, Visibility, author, claims},
        writer::Item,
    },
    lease::BootInstant,
};

/// The replica that reports on the quorum writes a first status within this time, unless the lock is in a namespace
/// that only another release of the operator watches.
const REPORTED: Duration = Duration::from_secs(5);
/// The time that a new replica needs to connect; it sees no majority before.
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
        let facts = self.author_facts(asked, at)?;
        let who = author(&facts);
        let (key, entry) = (asked.key, self.locks.get(asked.key)?);
        let quorum = judged_quorum(entry, asked);
        let contradicted_until = self
            .quorums
            .get(quorum)
            .and_then(|quorum| quorum.reporting.contradicted_until(now));
        if let (None, Some(until)) = (who, contradicted_until) {
            self.writer.push_later(Item::Lock(key.clone()), until);
        }
        let visited = asked
            .before
            .observed_generation
            .is_some_and(|generation| generation >= 0);
        let Some(problem) = asked.refused else {
            // The status is checked again once a reporter must have been elected, or none can be.
            if who.is_none() && asked.before.timings.is_none() {
                let item = Item::Lock(key.clone());
                self.writer.push_later(item, now + Duration::from_millis(500));
            }
            return who;
        };
        let reported = self.is_reported(quorum, at);
        let coordinated_elsewhere = self.has_other_coordinator(now);
        match who {
            // The sibling that holds the lock writes the status.
            None if facts.held_by_sibling && holder_may_report(asked, entry, now) => {
                let until = entry.seen + REPORTED;
                if now < until {
                    self.writer.push_later(Item::Lock(key.clone()), until);
                }
                None
            }
            // This replica has just started, and the present status contains more information.
            _ if problem.reason == Reason::Opening && visited => None,
            // Every replica would write the same, but this replica may be the only one that cannot use the quorum.
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
            // Replicas that see different problems would replace each other's status without end.
            None | Some(Author::Anybody) if coordinated_elsewhere => {
                self.writer.push_later(Item::Lock(key.clone()), now + REPORTED);
                None
            }
            None | Some(Author::Anybody) => Some(Author::Reporter),
            who => who,
        }
    }

    /// Reports whether the status of the quorum shows a reporter. If no sibling sees a majority, this
    /// reporter does not count: it is gone, or has no majority.
    fn is_reported(&self, quorum: &str, at: &World<'_>) -> bool {
        let Some(entry) = self.quorums.get(quorum) else {
            return false;
        };
        entry.is_reported(&self.me.cluster, at.stamp())
            && self.witness_of_quorum(quorum, at) != Some(Witness::Absent)
    }

    /// Returns the siblings' answer about a quorum of which this replica sees no majority.
    pub(super) fn witness_of_quorum(&self, quorum: &str, at: &World<'_>) -> Option<Witness> {
        let since = self.quorums.get(quorum)?.sight.blind_since()?;
        Some(self.witness(quorum, None, None, since + CONNECTED, at))
    }

    fn author_facts(&mut self, asked: &Asked<'_>, at: &World<'_>) -> Option<AuthorFacts> {
        let now = at.now;
        let entry = self.locks.get(asked.key)?;
        let quorum = self.quorums.get(judged_quorum(entry, asked));
        let agents = entry
            .phase
            .active_plan()
            .is_some_and(|plan| plan.candidates == Candidates::Agents);
        // The status may have been written only while the lock was unusable, which is no evidence about the holder.
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
            contradicted: quorum.is_some_and(|quorum| quorum.reporting.is_contradicted(now)),
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

    /// Returns the visibility of the masters for a replica without a majority.
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
            // The former holder knows the end of its own lease, and that no later one was written.
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

    /// Reports whether the next holder is awaited. A lease not observed since its renewal seems to have ended, and an
    /// ended lease is taken over within milliseconds: neither is a transition.
    pub(super) fn awaits_next_holder(&mut self, asked: &Asked<'_>, who: Author, at: &World<'_>) -> bool {
        let Some(entry) = self.locks.get_mut(asked.key) else {
            return true;
        };
        let ended =
            asked.holder.is_none() && asked.before.holder_identity.is_some() && who == Author::Reporter;
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

/// Returns the quorum on which a lock is held, if at all: for a lock that cannot be used, that of its last valid spec.
fn judged_quorum<'a>(entry: &'a LockEntry, asked: &Asked<'_>) -> &'a str {
    let active = entry.phase.active_plan().filter(|_| asked.refused.is_some());
    active.map_or(&entry.object.spec.quorum_ref.name, |plan| &plan.quorum)
}

/// Reports whether the sibling that holds a lock has written the status of this generation, or still has time for that: it
/// may not be able to read the object, or to reach the API server.
fn holder_may_report(asked: &Asked<'_>, entry: &LockEntry, now: BootInstant) -> bool {
    let has_written = asked.before.observed_generation == entry.object.metadata.generation;
    has_written || now.since(entry.seen) < REPORTED
}
