//! The core's part in what pod templates say: a lock is judged again when one was read.

use super::{Core, Seen};
use crate::controller::{object::ObjectKey, templates::Read};

impl Core {
    /// Has the templates read that stop times of this lock come from.
    pub(super) fn follow_templates(&mut self, key: &ObjectKey) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let (reader, inbox) = (&self.reader, &self.inbox);
        entry.templates.follow(&entry.object, |reference, hurry| {
            reader.start(key.clone(), reference, hurry, inbox.clone(), Seen::Template)
        });
    }

    pub(super) fn on_template(&mut self, read: &Read) {
        let entry = self.locks.get_mut(&read.key);
        if entry.is_some_and(|entry| entry.templates.take(read)) {
            self.touched_locks.insert(read.key.clone());
        }
    }
}
