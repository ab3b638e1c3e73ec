//! Keeps a RedisQuorum while locks of this operator name it: another quorum of the same name, with other masters, would
//! grant locks that are still held on the present masters.

use std::{collections::BTreeSet, time::Duration};

use super::{Effect, Index, ObjectRequest, SiblingRequest, World};
use crate::{
    api::{RedisQuorum, in_use},
    controller::{
        backoff,
        object::ObjectKey,
        sibling_answers::{Asked, Round},
        writer::Item,
    },
    targets::Origin,
};

/// The longest interval at which siblings that still need a finalizer are asked again.
const ASKED_AGAIN: Duration = Duration::from_secs(5);
/// The maximum number of locks that a message names.
const NAMED: usize = 5;

/// The result of a write of the finalizers.
#[derive(Debug)]
pub(in crate::controller) enum Guarded {
    Written(Box<RedisQuorum>),
    Gone,
    /// Another writer was faster: the watch delivers its version.
    Conflict,
    Failed(String),
}

/// The facts about a quorum on which the decision about its finalizer is based.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Whether a lock names the quorum, or is still active on it.
    used: bool,
    guarded: bool,
    /// Whether the release has a finalizer on the quorum for namespaces that it watched before.
    stale: bool,
    deleted: bool,
    /// Whether this version cannot read some locks, which may name the quorum.
    unread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Add,
    /// Remove the finalizers of the release, once no sibling needs them.
    Remove,
    /// Remove the finalizers of the release except this replica's own.
    RemoveStale,
}

const fn change(quorum: Use) -> Change {
    match quorum {
        // The API server adds no finalizer to an object that is being deleted.
        Use {
            used: true,
            guarded: false,
            deleted: false,
            ..
        } => Change::Add,
        Use {
            used: false,
            guarded,
            stale,
            unread: false,
            ..
        } if guarded || stale => Change::Remove,
        // A quorum that is being deleted can no longer get this replica's finalizer: the previous finalizer
        // keeps it.
        Use {
            used: true,
            guarded: true,
            stale: true,
            unread: false,
            ..
        } => Change::RemoveStale,
        _ => Change::Nothing,
    }
}

/// Returns the reason why a quorum that is being deleted still exists; `None` if it is about to disappear.
fn text(locks: &[String], foreign: &[&str]) -> Option<String> {
    let mut reasons = Vec::new();
    if !locks.is_empty() {
        let more = match locks.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = locks.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        reasons.push(format!(
            "LeaderLocks use the quorum ({named}{more}): delete them, or set their spec.quorumRef to another \
             RedisQuorum"
        ));
    }
    if !foreign.is_empty() {
        reasons.push(format!(
            "another release of the operator keeps the object by the finalizer {}",
            foreign.join(", ")
        ));
    }
    (!reasons.is_empty()).then(|| {
        format!(
            "the RedisQuorum is being deleted, and is kept for now: {}",
            reasons.join("; ")
        )
    })
}

impl Index {
    /// Adds the finalizer to the quorums in use, and removes it from the others.
    pub(super) fn check_uses(&mut self, at: &World<'_>) {
        let now = at.now;
        if self.ready.is_none() {
            return;
        }
        for name in self.quorums.names() {
            let Some(entry) = self.quorums.get(&name) else {
                continue;
            };
            if entry.object.metadata.deletion_timestamp.is_some() {
                // The status lists the locks that name the quorum.
                self.writer.push(Item::Quorum(name.clone()));
            }
            if !entry.finalizer.may_start(now) {
                continue;
            }
            match self.change_of(&name) {
                Change::Nothing => {}
                Change::Add => {
                    let own = self.me.in_use.own.clone();
                    self.set_guard(&name, true, |finalizers| finalizers.push(own));
                }
                Change::Remove | Change::RemoveStale => self.ask_for_uses(&name, at),
            }
        }
    }

    /// Returns the RedisQuorums that locks name, whether or not their masters are reachable.
    pub(super) fn named_quorums(&self) -> BTreeSet<String> {
        let names = self.quorums.names().into_iter();
        names
            .filter(|name| self.locks.users_of(name).next().is_some())
            .collect()
    }

    fn change_of(&self, name: &str) -> Change {
        let Some(entry) = self.quorums.get(name) else {
            return Change::Nothing;
        };
        let metadata = &entry.object.metadata;
        let has = |wanted: &dyn Fn(&str) -> bool| metadata.finalizers.iter().flatten().any(|one| wanted(one));
        change(Use {
            used: self.locks.users_of(name).next().is_some(),
            guarded: has(&|one| one == self.me.in_use.own),
            stale: has(&|one| self.me.in_use.is_stale(one)),
            deleted: metadata.deletion_timestamp.is_some(),
            unread: self.locks.any_unread(),
        })
    }

    /// Asks the siblings whether they use the quorum: they may still stop targets of a lock that this replica
    /// has left, or may watch other namespaces.
    fn ask_for_uses(&mut self, name: &str, at: &World<'_>) {
        let question = Asked::from([(name.to_owned(), BTreeSet::new())]);
        if !self.me.follows_siblings {
            return self.on_uses(name, Some(&Round::default()), at);
        }
        if let Some(entry) = self.quorums.get_mut(name) {
            entry.finalizer.start();
        }
        self.effects.push(Effect::Siblings(SiblingRequest::AskUses(
            name.to_owned(),
            question,
        )));
    }

    /// Removes the finalizers that neither this replica nor a sibling needs.
    pub(super) fn on_uses(&mut self, name: &str, round: Option<&Round>, at: &World<'_>) {
        let change = self.change_of(name);
        let finalizers = self.me.in_use.clone();
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        entry.finalizer.end();
        let goes = |one: &String| {
            let mine = match change {
                Change::Remove => *one == finalizers.own || finalizers.is_stale(one),
                Change::RemoveStale => finalizers.is_stale(one),
                Change::Nothing | Change::Add => false,
            };
            mine && round.is_some_and(|round| !round.needs(name, one))
        };
        if entry.object.metadata.finalizers.iter().flatten().any(goes) {
            self.set_guard(name, false, |finalizers| finalizers.retain(|one| !goes(one)));
        } else if matches!(change, Change::Remove | Change::RemoveStale) {
            entry.finalizer.fail(ASKED_AGAIN, at.now, self.random.f64());
        }
    }

    fn set_guard(&mut self, name: &str, adds: bool, change: impl FnOnce(&mut Vec<String>)) {
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        entry.finalizer.start();
        let metadata = &entry.object.metadata;
        let mut finalizers: Vec<String> = metadata.finalizers.clone().unwrap_or_default();
        change(&mut finalizers);
        // The resource version ensures that no finalizer of another writer is lost and no new object of the
        // same name is changed.
        self.effects
            .push(Effect::Object(ObjectRequest::SetQuorumFinalizers {
                name: name.to_owned(),
                version: metadata.resource_version.clone(),
                finalizers,
                adds,
            }));
    }

    pub(super) fn on_guarded(&mut self, name: &str, end: Guarded, at: &World<'_>) {
        let now = at.now;
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        entry.finalizer.end();
        match end {
            Guarded::Gone => {}
            Guarded::Written(mut object) => {
                entry.finalizer.reset();
                crate::controller::object::trim(&mut object.metadata);
                // The object may have been deleted since: the answer to the write must not restore it.
                if entry.object.metadata.uid == object.metadata.uid {
                    self.see_quorum(*object, Origin::Answer, at);
                }
            }
            Guarded::Conflict => {
                entry.finalizer.reset();
                entry.finalizer.fail(backoff::LONGEST, now, self.random.f64());
            }
            Guarded::Failed(reason) => {
                entry.finalizer.fail(backoff::LONGEST, now, self.random.f64());
                tracing::warn!(object = %format!("RedisQuorum {name}"), reason,
                    "the finalizer that keeps the RedisQuorum while locks use it could not be changed; retrying");
            }
        }
    }

    /// Returns the status message of a quorum that is being deleted while in use.
    pub(super) fn kept_by(&self, name: &str) -> Option<String> {
        let metadata = &self.quorums.get(name)?.object.metadata;
        metadata.deletion_timestamp.as_ref()?;
        let locks: Vec<String> = self.locks.users_of(name).map(ObjectKey::to_string).collect();
        let others = metadata.finalizers.iter().flatten().map(String::as_str);
        let foreign: Vec<&str> = others
            .filter(|one| in_use::is_one(one) && *one != self.me.in_use.own && !self.me.in_use.is_stale(one))
            .collect();
        text(&locks, &foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizer_is_there_while_the_quorum_is_used() {
        let used = Use {
            used: true,
            ..Use::default()
        };
        let guarded = Use {
            guarded: true,
            ..Use::default()
        };
        for (what, quorum, wanted) in [
            ("used", used, Change::Add),
            (
                "used, and being deleted",
                Use {
                    deleted: true,
                    ..used
                },
                Change::Nothing,
            ),
            (
                "used and guarded",
                Use {
                    guarded: true,
                    deleted: true,
                    ..used
                },
                Change::Nothing,
            ),
            ("used no more", guarded, Change::Remove),
            (
                "used by what cannot be read, or not",
                Use {
                    unread: true,
                    ..guarded
                },
                Change::Nothing,
            ),
            (
                "used no more, and being deleted",
                Use {
                    deleted: true,
                    ..guarded
                },
                Change::Remove,
            ),
            ("never used", Use::default(), Change::Nothing),
            (
                "used no more, and watched otherwise",
                Use {
                    stale: true,
                    ..Use::default()
                },
                Change::Remove,
            ),
            (
                "used, and watched otherwise",
                Use {
                    guarded: true,
                    stale: true,
                    ..used
                },
                Change::RemoveStale,
            ),
            (
                "used, and watched otherwise since it is being deleted",
                Use {
                    stale: true,
                    deleted: true,
                    ..used
                },
                Change::Nothing,
            ),
            (
                "watched otherwise, and used by what cannot be read, or not",
                Use {
                    stale: true,
                    ..Use {
                        unread: true,
                        ..guarded
                    }
                },
                Change::Nothing,
            ),
        ] {
            assert_eq!(change(quorum), wanted, "{what}");
        }
    }

    #[test]
    fn locks_that_keep_a_quorum_are_named() {
        let names: Vec<String> = (0..7).map(|index| format!("billing/l{index}")).collect();
        let message = text(&names[..1], &[]).unwrap();
        assert!(message.contains("(billing/l0): delete them"), "{message}");
        let message = text(&names, &["redlock.dev/in-use-1"]).unwrap();
        assert!(message.contains("billing/l4 and 2 more"), "{message}");
        assert!(message.contains(
            "another release of the operator keeps the object by the finalizer redlock.dev/in-use-1"
        ));
        assert_eq!(text(&[], &[]), None);
    }
}
