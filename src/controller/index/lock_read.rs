//! Schedules consistent reads of a lock's object.
//!
//! The target task asks for a read before it starts, adopts or stops targets on its own: a change that was committed
//! before a lease was released is then known to the next holder, whatever the watch has delivered.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Effect, Index, ObjectRequest, World};
use crate::{
    api::LeaderLock,
    controller::{backoff::Backoff, object::ObjectKey},
    lease::BootInstant,
};

/// The longest interval between attempts: a lock that is held waits for the read.
const LONGEST: Duration = Duration::from_secs(5);

/// The result of a consistent read.
#[derive(Debug)]
pub(in crate::controller) enum LockReadEnd {
    Read(Box<LeaderLock>),
    /// The object exists, and this version cannot read it.
    Malformed(Box<ObjectMeta>, String),
    /// The object does not exist, or its definition is not served for a while.
    Gone,
    Failed(String),
}

/// The reads of one object.
#[derive(Debug, Default)]
pub(super) struct LockReads {
    /// The time at which the last successful read was sent.
    last: Option<BootInstant>,
    /// A read that was sent before this time does not suffice.
    wanted: Option<BootInstant>,
    under_way: bool,
    backoff: Backoff,
}

impl LockReads {
    /// Returns the time at which the last successful read was sent.
    pub(super) fn last(&self) -> Option<BootInstant> {
        self.last
    }

    /// Forgets the reads of an object that was replaced by another one of the same name. A wanted read stays wanted.
    pub(super) fn forget_object(&mut self) {
        let wanted = self.wanted;
        *self = Self {
            wanted,
            ..Self::default()
        };
    }

    fn want(&mut self, since: BootInstant) {
        self.wanted = self.wanted.max(Some(since));
    }

    fn is_wanted(&self) -> bool {
        self.wanted.is_some() && self.wanted > self.last
    }

    fn may_start(&self, now: BootInstant) -> bool {
        self.is_wanted() && !self.under_way && self.backoff.is_over(now)
    }

    fn end(&mut self, sent: Option<BootInstant>, now: BootInstant, jitter: f64) {
        self.under_way = false;
        match sent {
            Some(sent) => {
                self.last = self.last.max(Some(sent));
                self.backoff.reset();
            }
            None => {
                self.backoff.fail(LONGEST, now, jitter);
            }
        }
    }
}

impl Index {
    /// Requests a read that is sent at this time or later.
    pub(super) fn want_read(&mut self, key: &ObjectKey, since: BootInstant, at: &World<'_>) {
        if let Some(entry) = self.locks.get_mut(key) {
            entry.reads.want(since);
            self.start_read(key, at);
        }
    }

    /// Retries failed reads once their backoff is over, and starts those that waited for a read under way.
    pub(super) fn check_reads(&mut self, at: &World<'_>) {
        for key in std::mem::take(&mut self.due.reads) {
            self.start_read(&key, at);
        }
    }

    fn start_read(&mut self, key: &ObjectKey, at: &World<'_>) {
        let Some(entry) = self.locks.get_mut(key).filter(|entry| entry.reads.is_wanted()) else {
            return;
        };
        if entry.reads.may_start(at.now) {
            entry.reads.under_way = true;
            self.effects
                .push(Effect::Object(ObjectRequest::ReadLock(key.clone())));
        } else {
            self.due.reads.insert(key.clone());
        }
    }

    /// Handles the result of a read that was sent at this time.
    pub(super) fn on_lock_read(
        &mut self,
        key: &ObjectKey,
        sent: BootInstant,
        end: LockReadEnd,
        at: &World<'_>,
    ) {
        let jitter = self.random.f64();
        let Some(entry) = self.locks.get(key) else { return };
        let uid = entry.object.metadata.uid.clone();
        let (is_read, object) = match end {
            LockReadEnd::Read(object) => (object.metadata.uid == uid, Some(object)),
            // The last readable version stays in force.
            LockReadEnd::Malformed(metadata, error) => {
                let is_read = metadata.uid == uid;
                self.on_unreadable(key.clone(), &metadata, error);
                (is_read, None)
            }
            // The watch reports an object that is gone, or a new one of the same name.
            LockReadEnd::Gone => (false, None),
            LockReadEnd::Failed(reason) => {
                tracing::debug!(object = %format!("LeaderLock {key}"), reason, "object could not be read; retrying");
                (false, None)
            }
        };
        if let Some(entry) = self.locks.get_mut(key) {
            entry.reads.end(is_read.then_some(sent), at.now, jitter);
        }
        if is_read {
            let authority = self.snapshot(key, at).and_then(|snapshot| snapshot.authority);
            if let (Some(entry), Some(authority)) = (self.locks.get_mut(key), authority) {
                entry.read_under = Some(authority.token);
            }
            if let Some(mut object) = object {
                crate::controller::object::trim(&mut object.metadata);
                self.see_answer(object, at);
            }
            // The target task waits for the time of the read.
            self.due.locks.insert(key.clone());
        }
        self.start_read(key, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_that_was_sent_too_early_does_not_suffice() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let mut reads = LockReads::default();
        assert!(!reads.may_start(at(0)));
        reads.want(at(10));
        assert!(reads.may_start(at(10)));
        reads.under_way = true;
        assert!(!reads.may_start(at(10)), "one at a time");
        reads.want(at(12));
        reads.end(Some(at(11)), at(13), 0.5);
        assert!(reads.may_start(at(13)), "sent before the second request");
        reads.end(None, at(14), 0.5);
        assert!(!reads.may_start(at(14)), "it failed");
        assert!(reads.may_start(at(20)));
        reads.end(Some(at(20)), at(21), 0.5);
        assert!(!reads.may_start(at(30)));
        assert_eq!(reads.last(), Some(at(20)));
    }
}
