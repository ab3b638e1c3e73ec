//! Decides which statuses are to be written and when a write is retried, and writes them.
//!
//! A status is computed when its turn comes.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::object::ObjectKey;
use crate::{
    api::{LeaderLock, RedisQuorum},
    lease::BootInstant,
    targets::deepest,
};

/// The maximum number of concurrent writes, which one HTTP/2 connection carries without overloading the API
/// server.
const AT_ONCE: usize = 32;
/// Timeout of a write, long enough for an API server that takes a second per request.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Delay after a conflict: the watch delivers the newer object within milliseconds.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Delay after a refusal: a person has to change a role, a definition or the object first.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// The field manager of the statuses.
const MANAGER: &str = "redlock-operator-status";

/// An object whose status may be outdated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Item {
    Lock(ObjectKey),
    Quorum(String),
}

/// The result of a write.
#[derive(Debug)]
pub(super) enum Written {
    Lock(Box<LeaderLock>),
    Quorum(Box<RedisQuorum>),
    /// The object has changed since it was read; the status is computed again.
    Conflict,
    /// The object is gone.
    Gone,
    /// The server refuses this status of this object: only this object waits, not the others.
    Refused(String),
    Failed(String),
}

/// The queue of statuses that may be outdated. Pure.
#[derive(Debug, Default)]
pub(super) struct Queue {
    queue: VecDeque<Item>,
    queued: HashSet<Item>,
    /// The items being written; `again` holds those pushed during their write.
    writing: HashSet<Item>,
    again: HashSet<Item>,
    /// The next check of each object that is checked again without a change. One time suffices: each check decides
    /// anew whether, and when, another one follows.
    later: BTreeSet<(BootInstant, Item)>,
    next_check: HashMap<Item, BootInstant>,
    /// The time before which no write starts: the API server was unreachable at the last attempt.
    rest_until: Option<BootInstant>,
}

impl Queue {
    /// Queues the status of this object for a check.
    pub(super) fn push(&mut self, item: Item) {
        if self.writing.contains(&item) {
            self.again.insert(item);
        } else if self.queued.insert(item.clone()) {
            self.queue.push_back(item);
        }
    }

    /// Queues the status of this object for a check at this time, unless an earlier check is due.
    pub(super) fn push_later(&mut self, item: Item, at: BootInstant) {
        let before = self.next_check.get(&item).copied();
        if before.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = self.next_check.insert(item.clone(), at) {
            self.later.remove(&(before, item.clone()));
        }
        self.later.insert((at, item));
    }

    /// Returns the next object to check, if another write may start.
    pub(super) fn next(&mut self, now: BootInstant) -> Option<Item> {
        while self.later.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, item)) = self.later.pop_first()
        {
            self.next_check.remove(&item);
            self.push(item);
        }
        if self.writing.len() >= AT_ONCE || self.rest_until.is_some_and(|until| now < until) {
            return None;
        }
        let item = self.queue.pop_front()?;
        self.queued.remove(&item);
        Some(item)
    }

    /// Marks the object as being written.
    pub(super) fn start(&mut self, item: Item) {
        self.writing.insert(item);
    }

    /// Records the result of a write, and schedules the retries.
    pub(super) fn settle(&mut self, item: Item, written: &Written, now: BootInstant) {
        self.writing.remove(&item);
        let again = self.again.remove(&item);
        match written {
            Written::Lock(_) | Written::Quorum(_) => {
                self.rest_until = None;
                if again {
                    self.push(item);
                }
            }
            // The object is gone, or its definition is not served for a while.
            Written::Gone => self.push_later(item, now + AFTER_REFUSAL),
            Written::Conflict => self.push_later(item, now + AFTER_CONFLICT),
            Written::Refused(reason) => {
                tracing::warn!(?item, reason, "the API server refused the status; retrying");
                self.push_later(item, now + AFTER_REFUSAL);
            }
            Written::Failed(reason) => {
                if self.rest_until.is_none_or(|until| until < now) {
                    tracing::warn!(?item, reason, "status could not be written; retrying");
                }
                self.rest_until = Some(now + AFTER_FAILURE);
                self.push_later(item, now + AFTER_FAILURE);
            }
        }
    }
}

/// Writes the status of a lock, unless the object has changed since it was read.
pub(super) async fn write_lock(client: Client, key: ObjectKey, version: String, status: Value) -> Written {
    let api = Api::<LeaderLock>::namespaced(client, &key.namespace);
    let end = patch(&api, &key.name, &version, &status).await;
    end.map_or_else(|written| written, |object| Written::Lock(Box::new(object)))
}

/// Writes the status of a quorum under the same condition.
pub(super) async fn write_quorum(client: Client, name: String, version: String, status: Value) -> Written {
    let api = Api::<RedisQuorum>::all(client);
    let end = patch(&api, &name, &version, &status).await;
    end.map_or_else(|written| written, |object| Written::Quorum(Box::new(object)))
}

/// Returns the patch that turns one status into another; `None` if it cannot be computed. The patch also clears fields
/// that another writer has set and that should be empty: a server-side apply would leave them, and the status would be
/// written again and again.
pub(super) fn replacement<T: Serialize>(before: &T, status: &T) -> Option<Value> {
    let Ok(Value::Object(before)) = serde_json::to_value(before) else {
        return None;
    };
    let Ok(Value::Object(mut status)) = serde_json::to_value(status) else {
        return None;
    };
    for (name, _) in before {
        status.entry(name).or_insert(Value::Null);
    }
    Some(Value::Object(status))
}

async fn patch<K>(api: &Api<K>, name: &str, version: &str, status: &Value) -> Result<K, Written>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    // With the resource version, a write to a newer object is a conflict.
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    api.patch_status(name, &parameters, &Patch::Merge(&patch))
        .await
        .map_err(|error| match &error {
            kube::Error::Api(status) if status.is_conflict() => Written::Conflict,
            kube::Error::Api(status) if status.is_not_found() => Written::Gone,
            kube::Error::Api(status) if [400, 422].contains(&status.code) => {
                Written::Refused(status.message.clone())
            }
            kube::Error::Api(status) => Written::Failed(status.message.clone()),
            // The write succeeded, but this version cannot read the returned object.
            kube::Error::SerdeError(error) => Written::Refused(error.to_string()),
            other => Written::Failed(deepest(other)),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::lock_status::LeaderLockStatus;

    #[test]
    fn a_field_that_is_to_be_empty_is_removed() {
        let before = LeaderLockStatus {
            holder_identity: Some("somebody".into()),
            fencing_token: Some(3),
            ..LeaderLockStatus::default()
        };
        let status = LeaderLockStatus {
            fencing_token: Some(4),
            ..LeaderLockStatus::default()
        };
        assert_eq!(
            replacement(&before, &status),
            Some(json!({ "holderIdentity": null, "fencingToken": 4 }))
        );
    }

    #[test]
    fn object_has_one_next_check_the_earliest() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let item = || Item::Quorum("one".into());
        let mut queue = Queue::default();
        for later in [7, 5, 6] {
            queue.push_later(item(), at(later));
        }
        assert_eq!(queue.next(at(4)), None);
        assert_eq!(queue.next(at(5)), Some(item()));
        assert_eq!(queue.next(at(9)), None);
        queue.push_later(item(), at(10));
        assert_eq!(queue.next(at(10)), Some(item()));
    }

    #[test]
    fn write_that_is_refused_is_tried_again_and_holds_up_no_other() {
        let second = BootInstant::from_nanos(1_000_000_000);
        let (one, other) = (Item::Quorum("one".into()), Item::Quorum("other".into()));
        let mut queue = Queue::default();
        queue.start(one.clone());
        // A write that ended unexpectedly is handled in the same way.
        queue.settle(one.clone(), &Written::Refused("a test".into()), second);
        queue.push(other.clone());
        assert_eq!(queue.next(second), Some(other));
        assert_eq!(queue.next(second + AFTER_REFUSAL), Some(one));
    }
}
