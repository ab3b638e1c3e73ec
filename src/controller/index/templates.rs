//! Follows pod templates: a lock is judged again when one of its templates has been read.

use super::{Effect, Index, WatchChange, World};
use crate::controller::{
    object::ObjectKey,
    problem::{Problem, Reason},
    templates::Read,
};

impl Index {
    /// Follows the templates that the stop times of this lock depend on.
    pub(super) fn follow_templates(&mut self, key: &ObjectKey) {
        let Some(entry) = self.locks.get_mut(key) else {
            return;
        };
        let (begun, ended) = entry.templates.follow(&entry.object);
        let begun = begun
            .into_iter()
            .map(|one| Effect::Watch(WatchChange::FollowTemplate(key.clone(), one)));
        let ended = ended
            .into_iter()
            .map(|one| Effect::Watch(WatchChange::UnfollowTemplate(key.clone(), one)));
        self.effects.extend(ended.chain(begun));
    }

    /// Reads templates without delay if the lock cannot be used, or its targets are not started, before.
    pub(super) fn hurry_templates(&mut self, key: &ObjectKey, at: &World<'_>) {
        let Some(entry) = self.locks.get(key).filter(|entry| entry.templates.awaited()) else {
            return;
        };
        let opening = |problem: &Problem| problem.reason == Reason::Opening;
        if entry.problem().is_some_and(opening) || self.holds(key, at) {
            let hurried = entry.templates.unread();
            let hurried =
                hurried.map(|one| Effect::Watch(WatchChange::HurryTemplate(key.clone(), one.clone())));
            self.effects.extend(hurried);
        }
    }

    pub(super) fn on_template(&mut self, read: &Read) {
        let entry = self.locks.get_mut(&read.key);
        if entry.is_some_and(|entry| entry.templates.take(read)) {
            self.due.locks.insert(read.key.clone());
        }
    }
}
