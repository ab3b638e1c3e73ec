//! A RedisQuorum stays while locks of this operator name it: another one under its name, with other masters, would grant
//! what is still held on these.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Core, Job};
use crate::{
    api::{RedisQuorum, in_use},
    clock,
    controller::{
        backoff::{self, Backoff},
        object::ObjectKey,
        roll::Origin,
        writer::Item,
    },
    lease::Moment,
    targets::deepest,
};

const MANAGER: &str = "redlock-operator-finalizer";
/// Locks that a message names.
const NAMED: usize = 5;

/// A write of the finalizer of one quorum.
#[derive(Debug, Default)]
pub(in crate::controller) struct Guard {
    changing: bool,
    backoff: Backoff,
}

/// How a write of it ended.
#[derive(Debug)]
pub(super) enum Guarded {
    Written(Box<RedisQuorum>),
    Gone,
    /// Another writer was faster: the watch brings what it wrote.
    Conflict,
    Failed(String),
}

/// What is known of a quorum when its finalizer is decided.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// A lock names it, or is still contended for on it.
    used: bool,
    guarded: bool,
    deleted: bool,
    /// There are locks that this version cannot read: they may name it.
    unread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Add,
    Remove,
}

const fn change(quorum: Use) -> Change {
    match quorum {
        // To an object that is being deleted the API server lets no finalizer be added.
        Use {
            used: true,
            guarded: false,
            deleted: false,
            ..
        } => Change::Add,
        Use {
            used: false,
            guarded: true,
            unread: false,
            ..
        } => Change::Remove,
        _ => Change::Nothing,
    }
}

/// Why a quorum that is being deleted is still there; `None` if it goes in a moment.
fn text(locks: &[String], foreign: &[&str]) -> Option<String> {
    let mut reasons = Vec::new();
    if !locks.is_empty() {
        let more = match locks.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = locks.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        reasons.push(format!(
            "LeaderLocks name it ({named}{more}): delete them, or let them name another RedisQuorum in spec.quorumRef"
        ));
    }
    if !foreign.is_empty() {
        reasons.push(format!(
            "another release of the operator keeps it by {}",
            foreign.join(", ")
        ));
    }
    (!reasons.is_empty()).then(|| format!("it is being deleted, and goes later: {}", reasons.join("; ")))
}

impl Core {
    /// Adds the finalizer to the quorums that are used, and removes it from the others.
    pub(super) fn look_at_uses(&mut self, now: Moment) {
        if self.ready.is_none() {
            return;
        }
        let unread = self.locks.any_unread();
        for name in self.quorums.names() {
            let used = self.locks.users_of(&name).next().is_some();
            let Some(entry) = self.quorums.get(&name) else {
                continue;
            };
            let metadata = &entry.object.metadata;
            let (deleted, guarded) = (
                metadata.deletion_timestamp.is_some(),
                metadata
                    .finalizers
                    .iter()
                    .flatten()
                    .any(|one| *one == self.in_use),
            );
            if deleted {
                // Which locks name it is in its status.
                self.writer.push(Item::Quorum(name.clone()));
            }
            if entry.guard.changing || !entry.guard.backoff.is_over(now) {
                continue;
            }
            match change(Use {
                used,
                guarded,
                deleted,
                unread,
            }) {
                Change::Nothing => {}
                Change::Add => self.set_guard(&name, true),
                Change::Remove => self.set_guard(&name, false),
            }
        }
    }

    fn set_guard(&mut self, name: &str, present: bool) {
        let own = self.in_use.clone();
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        entry.guard.changing = true;
        let metadata = &entry.object.metadata;
        let mut finalizers: Vec<String> = metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|one| *one != own);
        if present {
            finalizers.push(own);
        }
        // With the version: neither another writer's finalizer is lost, nor that of an object made anew is written.
        let patch = json!({
            "metadata": { "resourceVersion": metadata.resource_version, "finalizers": finalizers },
        });
        let api = Api::<RedisQuorum>::all(self.clients.urgent.clone());
        let (name, pace) = (name.to_owned(), self.pace.clone());
        let broken = Job::Guarded(name.clone(), Guarded::Failed("the write broke off".to_owned()));
        self.jobs.start(broken, async move {
            if present {
                pace.sent().await;
            } else {
                pace.count(1, clock::now());
            }
            let parameters = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let end = match api.patch(&name, &parameters, &Patch::Merge(&patch)).await {
                Ok(object) => Guarded::Written(Box::new(object)),
                Err(kube::Error::Api(status)) if status.is_not_found() => Guarded::Gone,
                Err(kube::Error::Api(status)) if status.is_conflict() => Guarded::Conflict,
                Err(error) => Guarded::Failed(deepest(&error)),
            };
            Job::Guarded(name, end)
        });
    }

    pub(super) fn on_guarded(&mut self, name: &str, end: Guarded) {
        let now = clock::now();
        let Some(entry) = self.quorums.get_mut(name) else {
            return;
        };
        entry.guard.changing = false;
        match end {
            Guarded::Gone => {}
            Guarded::Written(mut object) => {
                entry.guard.backoff.reset();
                crate::controller::object::trim(&mut object.metadata);
                // It may have been deleted meanwhile: its answer must not bring it back.
                if entry.object.metadata.uid == object.metadata.uid {
                    self.see_quorum(*object, Origin::Answer);
                }
            }
            Guarded::Conflict => {
                entry.guard.backoff.reset();
                entry.guard.backoff.fail(backoff::LONGEST, now, fastrand::f64());
            }
            Guarded::Failed(reason) => {
                entry.guard.backoff.fail(backoff::LONGEST, now, fastrand::f64());
                tracing::warn!(object = %format!("RedisQuorum {name}"), reason,
                    "the finalizer that keeps it while locks name it could not be changed; retried");
            }
        }
    }

    /// What the status says of a quorum that is being deleted, and used.
    pub(super) fn kept_by(&self, name: &str) -> Option<String> {
        let metadata = &self.quorums.get(name)?.object.metadata;
        metadata.deletion_timestamp.as_ref()?;
        let locks: Vec<String> = self.locks.users_of(name).map(ObjectKey::to_string).collect();
        let others = metadata.finalizers.iter().flatten().map(String::as_str);
        let foreign: Vec<&str> = others
            .filter(|one| in_use::is_one(one) && *one != self.in_use)
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
        ] {
            assert_eq!(change(quorum), wanted, "{what}");
        }
    }

    #[test]
    fn locks_that_keep_a_quorum_are_named() {
        let names: Vec<String> = (0..7).map(|index| format!("billing/l{index}")).collect();
        let said = text(&names[..1], &[]).unwrap();
        assert!(said.contains("(billing/l0): delete them"), "{said}");
        let said = text(&names, &["redlock.dev/in-use-1"]).unwrap();
        assert!(said.contains("billing/l4 and 2 more"), "{said}");
        assert!(said.contains("another release of the operator keeps it by redlock.dev/in-use-1"));
        assert_eq!(text(&[], &[]), None);
    }
}
